"""Table of the bugs that `tools/mutants.py` plants, with the tests that must fail.

One entry per bug: the file, the source text and its replacement, the requirement that it breaks,
and the tests or seeds of the simulator that must fail. Each changes one line.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """One bug."""

    name: str
    # Relative to src/proxyless.
    file: str
    # Occurs exactly once in the file.
    old: str
    new: str
    # The requirement of docs/spec, or the section of an RFC.
    breaks: str
    # At least one of these must fail: arguments of pytest, or seeds of the simulator.
    tests: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()


A56 = "tests/spec/test_a56.py"
INTERLEAVINGS = "tests/sim/test_interleavings.py::"
FLAPPING = f"{INTERLEAVINGS}test_priority_policy_follows_the_rules_in_every_order[3-2460]"
TEARS = f"{INTERLEAVINGS}test_rpcs_see_no_part_of_overlapping_changes_in_every_order[5-15181]"
FAILOVER_STORY = (
    "tests/sim/test_stories.py::test_lower_priority_serves_ten_seconds_after_the_higher_one_is_cut"
)
XDS_CLIENT = "tests/spec/test_xds_client.py"
OVERRIDE_HOST = "tests/spec/test_a75_override_host.py"
# Most bugs need a rare situation: one of these seeds has it.
SEEDS = (1, 2, 5, 15)
# Changes of routes in whose middle all control planes are lost.
OUTAGE_SEEDS = (1, 12, 13, 25)

PRIORITY = (
    Mutation(
        "priority-duplicate-connecting-restarts-failover-timer",
        "lb/policies/priority/policy.py",
        "if before is not State.CONNECTING and self._ready_or_idle_since_failure:",
        "if self._ready_or_idle_since_failure:",
        "A56-43",
        tests=(FLAPPING,),
    ),
    Mutation(
        "priority-deactivates-others-while-connecting",
        "lb/policies/priority/policy.py",
        "if choice.reason is Reason.CONNECTED:",
        "if choice.reason is not Reason.EXHAUSTED:",
        "A56-30",
        tests=(A56,),
    ),
    Mutation(
        "failover-timer-starts-again-after-it-fired",
        "lb/policies/priority/policy.py",
        "            self._ready_or_idle_since_failure = False\n            self.report = _Report(",
        "            self.report = _Report(",
        "A56-47",
        tests=(A56,),
    ),
    Mutation(
        "priority-passes-over-idle",
        "lb/policies/priority/choice.py",
        "_CONNECTED: Final = frozenset({State.READY, State.IDLE})",
        "_CONNECTED: Final = frozenset({State.READY})",
        "A56-58",
        tests=(A56,),
    ),
    Mutation(
        "priority-shows-error-of-the-first",
        "lb/policies/priority/choice.py",
        "return Use(count - 1, Reason.EXHAUSTED, count)",
        "return Use(0, Reason.EXHAUSTED, count)",
        "A56-61",
        tests=(A56,),
    ),
    Mutation(
        "priority-child-that-reconnects-delays-the-next",
        "lb/policies/priority/choice.py",
        "if child is None or child.failover_timer_pending or child.state in _CONNECTED:",
        "if child is None or child.state is State.CONNECTING or child.state in _CONNECTED:",
        "A56-63",
        tests=(FLAPPING,),
    ),
    Mutation(
        "priority-ignores-the-failover-timer",
        "lb/policies/priority/policy.py",
        "FailPicker(error))\n        self._owner.on_change(self)\n",
        "FailPicker(error))\n",
        "A56-44",
        tests=(FAILOVER_STORY,),
    ),
    Mutation(
        "retention-timer-restarts-with-each-deactivation",
        "lb/retained_child.py",
        "        if not self._retention_timer.pending:\n            clock",
        "        if self._retention_timer.cancel() is None:\n            clock",
        "A56-29",
        tests=(A56,),
    ),
)

PICK_FIRST = (
    Mutation(
        "pick-first-leaves-failure-to-connect",
        "lb/policies/pick_first/policy.py",
        "if self._phase.state is State.TRANSIENT_FAILURE:",
        "if self._phase is None:",
        "A62-06",
        tests=("tests/spec/test_a62.py",),
    ),
    Mutation(
        "pick-first-does-not-shuffle",
        "lb/policies/pick_first/shuffling.py",
        "    random.shuffle(shuffled)\n",
        "",
        "A62-21",
        tests=("tests/spec/test_a62.py",),
    ),
    Mutation(
        "happy-eyeballs-does-not-alternate-families",
        "lb/policies/pick_first/happy_eyeballs.py",
        "return _interleave(targets.items())",
        "return tuple(targets.items())",
        "HE-08",
        tests=("tests/spec/test_happy_eyeballs.py",),
    ),
    Mutation(
        "happy-eyeballs-waits-for-a-failure",
        "lb/policies/pick_first/happy_eyeballs.py",
        "    def on_delay_over(self) -> list[Action]:\n        return self._attempt_next()",
        "    def on_delay_over(self) -> list[Action]:\n        return []",
        "HE-02",
        tests=("tests/spec/test_happy_eyeballs.py",),
    ),
)

POLICIES = (
    Mutation(
        "graceful-switch-takes-over-while-connecting",
        "lb/graceful_switch.py",
        "if child is self._pending and state is not State.CONNECTING:",
        "if child is self._pending:",
        "GS-01",
        tests=("tests/spec/test_graceful_switch.py",),
    ),
    Mutation(
        "weighted-target-ignores-weights",
        "lb/policies/weighted_target.py",
        "accumulate(weight for weight, _ in shares)",
        "accumulate(1 for _ in shares)",
        "WT-02",
        tests=("tests/spec/test_weighted_target.py",),
    ),
    Mutation(
        "outlier-cap-counts-only-new-ejections",
        "lb/policies/outlier_detection/algorithms.py",
        "PERCENT_MAX * len(ejected) >= rules.max_ejection_percent",
        "PERCENT_MAX * len(found) >= rules.max_ejection_percent",
        "OD-08",
        tests=("tests/spec/test_outlier_detection.py",),
    ),
    Mutation(
        "cluster-breaker-slot-is-not-freed",
        "xds/lb/cluster_impl/call_counters.py",
        "        self._counter.end_call()\n",
        "",
        "A32-07",
        tests=("tests/spec/test_a32_cluster_impl.py",),
    ),
    Mutation(
        "cluster-drops-by-first-category-only",
        "xds/lb/cluster_impl/policy.py",
        "for per_million, name, drop in self._categories:",
        "for per_million, name, drop in self._categories[:1]:",
        "A27-55",
        tests=("tests/spec/test_a32_cluster_impl.py",),
    ),
    Mutation(
        "session-sweep-is-not-armed-again",
        "xds/lb/override_host/policy.py",
        "self._idle_timeout_s)\n        self._restart_sweep_timer()\n        for host in dropped:",
        "self._idle_timeout_s)\n        for host in dropped:",
        "A75-38",
        tests=(OVERRIDE_HOST,),
    ),
    Mutation(
        "session-leaves-a-draining-host",
        "xds/lb/override_host/policy.py",
        "endpoints if HealthStatus.DRAINING in self.usable else active",
        "active",
        "A75-31",
        tests=(OVERRIDE_HOST,),
    ),
    Mutation(
        "session-host-closed-while-in-use",
        "xds/lb/override_host/hosts.py",
        "if host.subchannel is None and self._owner.should_keep(host):",
        "if host.subchannel is not None and self._owner.should_keep(host):",
        "A75-41",
        tests=(OVERRIDE_HOST,),
    ),
)

ROUTING = (
    Mutation(
        "exact-routes-overtake-earlier-ones",
        "xds/routing/route_table.py",
        "for index in merge(self._exact.get(path, ()), others):",
        "for index in (*self._exact.get(path, ()), *others):",
        "A31-17",
        tests=("tests/spec/test_a31_xds.py",),
    ),
    Mutation(
        "weights-of-clusters-are-ignored",
        "xds/routing/selector.py",
        "choice = choices[bisect_right(self._ends, self._random.randrange(self._ends[-1]))]",
        "choice = choices[self._random.randrange(len(choices))]",
        "A31-19",
        tests=("tests/spec/test_a31_xds.py",),
    ),
    Mutation(
        "removed-cluster-leaves-in-one-step",
        "xds/resolver.py",
        "keys, plugins = self._refs.keys,",
        "keys, plugins = [*getattr(self._selector, '_refs', ())],",
        "A31-33",
        tests=(TEARS,),
    ),
    Mutation(
        "removed-cluster-is-never-dropped",
        "xds/resolver.py",
        "if self._manager is not None:\n            self._drop_soon.request()",
        "if self._manager is None:\n            self._drop_soon.request()",
        "A31-36",
        tests=("tests/spec/test_a31_xds.py",),
    ),
    Mutation(
        "incomplete-config-is-published",
        "xds/config/dependencies.py",
        "        if isinstance(found, tuple) and not self.plan.missing:\n",
        "        if isinstance(found, tuple):\n",
        "A74-16",
        tests=(TEARS,),
    ),
    Mutation(
        "second-subscriber-is-not-counted",
        "xds/config/dependency_manager.py",
        "self._subscribed[name] = count + 1",
        "self._subscribed[name] = 1",
        "A74-44",
        tests=("tests/spec/test_a74_dependencies.py",),
    ),
)

XDS = (
    Mutation(
        "watch-again-in-the-same-turn-is-lost",
        "xds/client/client.py",
        "        self._abandoned.pop(entry, None)\n",
        "",
        "A27-40",
        tests=(XDS_CLIENT,),
    ),
    Mutation(
        "missing-resource-timer-not-started-on-new-stream",
        "xds/client/resource_timers.py",
        "            wait.timer.cancel()\n        self._waits = {}\n",
        "            wait.timer.cancel()\n",
        "A57-08",
        tests=(XDS_CLIENT,),
    ),
    Mutation(
        "nack-drops-the-resource-in-use",
        "xds/client/response.py",
        "nack_drops=False,",
        "nack_drops=True,",
        "A46-02",
        tests=(XDS_CLIENT,),
    ),
    Mutation(
        "ack-has-the-version-of-another-type",
        "xds/client/ads.py",
        "            self._versions[answer.type_url] = answer.version\n        return",
        "            self._versions = dict.fromkeys(self._names, answer.version)\n        return",
        "A27-07",
        tests=(XDS_CLIENT,),
    ),
    Mutation(
        "delta-keeps-the-version-of-another-server",
        "xds/client/connection.py",
        "cache.bytes_of(name) == entry.serialized",
        "True",
        "DX-08",
        tests=("tests/spec/test_xds_delta.py",),
    ),
    Mutation(
        "delta-removes-endpoints-in-use",
        "controlplane/delta.py",
        "gone = new_names | had.keys() if is_full_state else new_names - in_use",
        "gone = new_names | had.keys()",
        "DX-11",
        tests=("tests/unit/controlplane/test_delta.py",),
    ),
    Mutation(
        "nonce-survives-its-stream",
        "xds/client/ads.py",
        "        self._nonces = {}\n        self._errors = {}\n",
        "        self._errors = {}\n",
        "A27-35",
        tests=(XDS_CLIENT,),
    ),
    Mutation(
        "missing-endpoints-count-as-deleted",
        "xds/client/response.py",
        "if self._type.is_full_state and not self._is_any_nameless:",
        "if not self._is_any_nameless:",
        "A27-10",
        tests=(XDS_CLIENT,),
    ),
    Mutation(
        "fallback-server-is-kept",
        "xds/client/authorities.py",
        "keep = self.used.index(connection) + 1",
        "keep = len(self.used)",
        "A71-06",
        tests=(XDS_CLIENT,),
    ),
    Mutation(
        "unreachable-control-plane-is-an-error-of-the-resource",
        "xds/client/connection.py",
        "return NoAnswer(StatusCode.UNAVAILABLE",
        "return Status(StatusCode.UNAVAILABLE",
        "HOLD-01",
        seeds=OUTAGE_SEEDS,
    ),
    Mutation(
        "silent-stream-means-does-not-exist",
        "xds/client/retried_stream.py",
        'return "" if self.has_answered else ", nor anything else"',
        'return ""',
        "HOLD-09",
        seeds=OUTAGE_SEEDS,
    ),
    Mutation(
        "host-of-a-quiet-server-is-not-probed",
        "xds/client/resource_timers.py",
        "        if self._stream.has_answered:\n",
        "        if self._timeout_s < 0:\n",
        "HOLD-09",
        seeds=OUTAGE_SEEDS,
    ),
    Mutation(
        "clusters-of-held-routes-stop-changing",
        "xds/config/dependencies.py",
        "clusters[name] = found if found and is_found else self._keep(name, config)",
        "clusters[name] = config.clusters[name]",
        "HOLD-02",
        tests=("tests/spec/test_d50_held_config.py",),
    ),
    Mutation(
        "early-deletion-is-final-at-once",
        "xds/client/early_deletions.py",
        "if not self._must_wait(resource_type) or",
        "if True or",
        "HOLD-10",
        tests=("tests/spec/test_d50_held_config.py",),
    ),
    Mutation(
        "saved-resource-ends-the-fallback",
        "xds/client/cache.py",
        "        is_received = self.has_resource and self.saved_s is None\n",
        "        is_received = self.has_resource\n",
        "CACHE-03",
        tests=("tests/unit/xds/client/test_last_good.py",),
    ),
    Mutation(
        "config-in-progress-is-saved",
        "xds/client/last_good.py",
        "        if not all(entry.is_settled for entry in entries):\n",
        "        if not any(entry.is_settled for entry in entries):\n",
        "CACHE-01",
        tests=("tests/unit/xds/client/test_last_good.py",),
    ),
    Mutation(
        "load-report-repeats-errors",
        "xds/client/load_counters.py",
        "self.issued = self.succeeded = self.errors = 0\n",
        "self.issued = self.succeeded = 0\n",
        "LRS-09",
        tests=("tests/unit/xds/client/test_load_counters.py",),
    ),
)

CALL_SEQUENCES = "tests/spec/test_call_sequences.py"

CHANNEL = (
    Mutation(
        "retry-after-commit",
        "channel/call_attempts.py",
        "        if self.station is _COMMITTED or code is _CODE_OK:\n",
        "        if code is _CODE_OK:\n",
        "A6",
        tests=("tests/unit/channel/test_call.py", "tests/unit/channel/test_retry_strategies.py"),
    ),
    Mutation(
        "second-attempt-has-the-whole-timeout",
        "channel/call.py",
        "timeout_s = time.remaining_s() if has_waited else time.timeout_s",
        "timeout_s = time.timeout_s",
        "A6",
        tests=("tests/unit/channel/test_call.py",),
    ),
    Mutation(
        "failed-pick-is-no-attempt-of-a-hedged-rpc",
        "channel/retry.py",
        "requested=self.requested + 1, unended=self.unended + 1)",
        "unended=self.unended + 1)",
        "A6",
        tests=("tests/unit/channel/test_retry_strategies.py",),
    ),
    Mutation(
        "second-hedge-waits-beside-the-first",
        "channel/retry.py",
        "is_exhausted or is_throttled or is_waiting):",
        "is_exhausted or is_throttled):",
        "A6",
        tests=("tests/unit/channel/test_retry.py",),
    ),
    Mutation(
        "throttled-hedge-leaves-its-rpc-without-an-end",
        "channel/retry_strategies.py",
        "self._call.finish(self._last_failure)",
        "pass",
        "A6",
        tests=(CALL_SEQUENCES,),
    ),
    Mutation(
        "writer-is-not-woken-when-the-slowest-attempt-ends",
        "channel/call_attempts.py",
        "        if others:\n",
        "        if others and end.is_unprocessed:\n",
        "A6",
        tests=(CALL_SEQUENCES,),
    ),
    Mutation(
        "backoff-does-not-grow",
        "base/backoff.py",
        "self._base_s = min(base_s * policy.multiplier, policy.max_s)",
        "self._base_s = min(base_s, policy.max_s)",
        "SUB-02",
        tests=("tests/spec/test_subchannel.py",),
    ),
    Mutation(
        "goaway-retries-processed-streams",
        "wire/client.py",
        "takewhile(lambda s: s.id > last_stream_id,",
        "takewhile(lambda s: s.id >= last_stream_id,",
        "RFC 9113 6.8",
        tests=("tests/unit/wire/test_client.py",),
    ),
    Mutation(
        "stream-send-window-is-not-reduced",
        "wire/flow.py",
        "            stream.window_change -= size\n",
        "",
        "RFC 9113 6.9.1",
        tests=("tests/unit/wire/test_flow.py",),
    ),
    Mutation(
        "receive-window-is-not-restored",
        "wire/flow.py",
        "    stream.recv_window = window\n",
        "",
        "RFC 9113 6.9.1",
        tests=("tests/unit/wire/test_flow.py", "tests/unit/wire/test_connection.py"),
    ),
)

# Caught here by the simulated mesh alone.
SIMULATED = (
    Mutation(
        "queued-picks-are-lost",
        "channel/pick_queue.py",
        "        advance_all(calls)\n",
        "        advance_all(list(calls)[:1])\n",
        "A31-10",
        seeds=SEEDS,
    ),
    Mutation(
        "outage-of-the-control-plane-loses-the-config",
        "xds/client/cache.py",
        "        self._outage = error\n        if self.has_resource:\n",
        "        self._outage = error\n        if self.has_resource and not self.watches:\n",
        "A57-04",
        seeds=SEEDS,
    ),
    Mutation(
        "removed-cluster-keeps-its-subscription",
        "xds/routing/cluster_refs.py",
        "                if ref.subscription is not None:\n",
        "                if ref.subscription is None:\n",
        "A31-35",
        seeds=SEEDS,
    ),
    Mutation(
        "commit-hook-skipped-on-cancel",
        "channel/call.py",
        "if station is not _COMMITTED and has_hook:",
        "if end.status.code.name != 'CANCELLED' and has_hook:",
        "A31-08",
        seeds=SEEDS,
    ),
    Mutation(
        "selector-published-before-policy-update",
        "channel/channel.py",
        "        status = self._policy.update(update)\n",
        "        self.config.publish(attributes.get(CONFIG_SELECTOR) or "
        "ServiceConfigSelector(service_config)); status = self._policy.update(update)\n",
        "A31-13",
        seeds=SEEDS,
    ),
)

SECURITY = (
    Mutation(
        "root-of-another-trust-domain-counts",
        "transport/spiffe.py",
        "    if roots.isdisjoint(chain[1:]):\n",
        "    if not roots:\n",
        "A87-03",
        tests=("tests/unit/transport/test_spiffe.py",),
    ),
    Mutation(
        "sni-that-was-not-sent-is-compared",
        "xds/security/cluster_security.py",
        "    if tls.auto_sni_san_validation and sni:\n",
        "    if tls.auto_sni_san_validation:\n",
        "A101-07",
        tests=("tests/unit/xds/security/test_cluster_security.py",),
    ),
)

PROXIES = (
    Mutation(
        "bytes-after-the-proxy-response-are-lost",
        "transport/tunnel.py",
        "        unread = memoryview(self._rest + protocol.received)\n",
        "        unread = memoryview(bytes(protocol.received))\n",
        "A86-12",
        tests=("tests/hostile/test_hostile_proxies.py",),
    ),
    Mutation(
        "proxy-may-send-bytes-before-tls",
        "transport/tunnel.py",
        "        if self._rest:\n",
        "        if False:\n",
        "A86-12",
        tests=("tests/unit/transport/test_tunnel.py",),
    ),
    Mutation(
        "proxy-of-the-locality-wins",
        "xds/lb/cds/priority_children.py",
        "    proxy = info.http_proxy or proxy\n",
        "    proxy = proxy or info.http_proxy\n",
        "A86-07",
        tests=("tests/unit/xds/lb/cds/test_priority_children.py",),
    ),
    Mutation(
        "proxy-is-not-part-of-the-subchannel-key",
        "base/http_proxy.py",
        "    target: str | None = None\n",
        "    target: str | None = field(default=None, compare=False)\n",
        "A86-10",
        tests=("tests/unit/base/test_http_proxy.py",),
    ),
)

A17 = "tests/spec/test_a17.py"

HEALTH = (
    Mutation(
        "health-stream-is-retried-without-backoff",
        "channel/health.py",
        "if self.phase is Phase.RESPONDED and",
        "if self.phase is not Phase.BACKOFF and",
        "HC-05",
        tests=("tests/unit/channel/test_health.py",),
    ),
    Mutation(
        "backend-without-health-service-is-unhealthy",
        "channel/health.py",
        "self._enter(Phase.UNCHECKED, State.READY)",
        "self._enter(Phase.UNCHECKED, State.TRANSIENT_FAILURE)",
        "HC-04",
        tests=(A17,),
    ),
    Mutation(
        "health-stream-outlives-its-watches",
        "channel/health_watch.py",
        "        if not checker.is_watched:\n",
        "        if checker.is_watched:\n",
        "HC-09",
        tests=(A17,),
    ),
    Mutation(
        "health-request-is-never-changed",
        "channel/health_watch.py",
        "        if request != self._request:\n",
        "        if self._request is None:\n",
        "HC-11",
        tests=(A17,),
    ),
    Mutation(
        "pick-first-alone-watches-health",
        "lb/policies/pick_first/policy.py",
        "        if self._settings.has_health_watch:\n",
        "        if self._settings is not None:\n",
        "HC-08",
        tests=(A17,),
    ),
    Mutation(
        "health-watch-is-not-ended",
        "lb/policies/pick_first/policy.py",
        "            self._selected.end_health_watch()\n",
        "",
        "HE-12",
        tests=("tests/spec/test_happy_eyeballs.py",),
    ),
)

AUTHORITY = (
    Mutation(
        "authority-is-rewritten-for-every-route",
        "xds/lb/cluster_impl/policy.py",
        "return self._rewritten if info.attributes.get(AUTO_HOST_REWRITE) else self._unchanged",
        "return self._rewritten",
        "A81-06",
        tests=("tests/spec/test_a81_authority.py",),
    ),
    Mutation(
        "wrapper-drops-the-authority",
        "lb/forwarding.py",
        "parent_result = Complete(self.inner, tracker, result.authority)",
        "parent_result = Complete(self.inner, tracker)",
        "A81-16",
        tests=("tests/spec/test_a81_authority.py",),
    ),
    Mutation(
        "authority-is-not-checked-with-the-certificate",
        "channel/call.py",
        "elif (refusal := transport.refuse_authority(authority)) is not None:",
        "elif (refusal := None) is not None:",
        "A81-09",
        tests=("tests/spec/test_a81_authority.py",),
    ),
)

METRICS = (
    Mutation(
        "cluster-is-not-in-metrics",
        "xds/lb/cds/policy.py",
        "NotePicker(picker, instruments.BACKEND_SERVICE, cluster)",
        "NotePicker(picker, instruments.BACKEND_SERVICE, '')",
        "A89-01",
        tests=("tests/spec/test_a78_metrics.py",),
    ),
    Mutation(
        "repeated-failures-of-a-control-plane-are-counted",
        "xds/client/connection.py",
        "            self._owner.on_failure(self)\n",
        "        self._owner.on_failure(self)\n",
        "A78-02",
        tests=("tests/spec/test_a78_metrics.py",),
    ),
    Mutation(
        "closed-connections-are-counted-as-open",
        "channel/subchannel_metrics.py",
        "SUBCHANNEL_OPEN_CONNECTIONS, self._target, labels, value=-1)",
        "SUBCHANNEL_OPEN_CONNECTIONS, self._target, labels, value=0)",
        "A94-04",
        tests=("tests/unit/channel/test_subchannel_metrics.py",),
    ),
    Mutation(
        "last-reason-of-a-disconnection-is-used",
        "transport/client.py",
        "if self.unusable_cause is None:",
        "if cause is not None:",
        "A94-03",
        tests=("tests/unit/transport/test_client.py",),
    ),
    Mutation(
        "transparent-retries-are-counted-as-retries",
        "channel/measured_call.py",
        "others = attempts - 1 - transparent",
        "others = attempts - 1",
        "A96-02",
        tests=("tests/unit/channel/test_measured_call.py",),
    ),
    Mutation(
        "outliers-beyond-the-limit-are-not-counted",
        "lb/policies/outlier_detection/algorithms.py",
        "found.append(Detection(outlier, Unenforced.MAX_EJECTION_OVERFLOW))",
        "break",
        "A91-02",
        tests=("tests/unit/lb/policies/outlier_detection/test_algorithms.py",),
    ),
    Mutation(
        "slow-start-does-not-begin",
        "lb/policies/weighted_round_robin/policy.py",
        "        self._ready_since_s = now_s\n",
        "",
        "A100-02",
        tests=("tests/spec/test_a100_slow_start.py",),
    ),
)

MUTATIONS = (
    *PRIORITY,
    *PICK_FIRST,
    *POLICIES,
    *ROUTING,
    *XDS,
    *CHANNEL,
    *SECURITY,
    *PROXIES,
    *HEALTH,
    *AUTHORITY,
    *METRICS,
    *SIMULATED,
)
