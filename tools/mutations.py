"""Which bugs are planted, and who has to notice each of them?

One entry per bug: where it is, the text as it is and as it would be if somebody had been careless,
which requirement that breaks, and which tests or which seed of the simulator must fail. Each is one
line of the product, at a decision that matters. `tools/mutants.py` plants them, one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """One bug."""

    name: str
    # Below src/proxyless.
    file: str
    # Stands there exactly once.
    old: str
    new: str
    # The requirement of docs/spec, or the paragraph of whoever else asks for it.
    breaks: str
    # Any of these has to fail: arguments of pytest, or seeds of the simulator.
    tests: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()


A56 = "tests/spec/test_a56.py"
INTERLEAVINGS = "tests/sim/test_interleavings.py::"
FLAPPING = (
    f"{INTERLEAVINGS}test_priorities_that_flap_are_chosen_by_the_rules_in_every_order[3-2460]"
)
TEARS = f"{INTERLEAVINGS}test_changes_that_overlap_are_met_whole_in_every_order[5-15181]"
FAILOVER_STORY = (
    "tests/sim/test_stories.py::"
    "test_a_lower_priority_serves_ten_seconds_after_the_higher_one_stopped_answering"
)
XDS_CLIENT = "tests/spec/test_xds_client.py"
OVERRIDE_HOST = "tests/spec/test_a75_override_host.py"
# Most bugs need a world in which something happens to happen: one of these has it.
SEEDS = (1, 2, 5, 15)

PRIORITY = (
    Mutation(
        "priority-duplicate-connecting-restarts-failover-timer",
        "lb/policies/priority/policy.py",
        "if before is not State.CONNECTING and self._earns_failover_time:",
        "if self._earns_failover_time:",
        "A56-43",
        tests=(FLAPPING,),
    ),
    Mutation(
        "priority-rests-others-while-it-only-tries",
        "lb/policies/priority/policy.py",
        "if choice.reason is Reason.CONNECTED:",
        "if choice.reason is not Reason.EXHAUSTED:",
        "A56-30",
        tests=(A56,),
    ),
    Mutation(
        "priority-forgets-that-time-is-used-up",
        "lb/policies/priority/policy.py",
        "            self._earns_failover_time = False\n            self.report = _Report(",
        "            self.report = _Report(",
        "A56-47",
        tests=(A56,),
    ),
    Mutation(
        "priority-passes-over-idle",
        "lb/policies/priority/policy.py",
        "if child.state in {State.READY, State.IDLE}:",
        "if child.state is State.READY:",
        "A56-58",
        tests=(A56,),
    ),
    Mutation(
        "priority-shows-error-of-the-first",
        "lb/policies/priority/policy.py",
        "return Use(len(tried) - 1, Reason.EXHAUSTED, len(tried))",
        "return Use(0, Reason.EXHAUSTED, len(tried))",
        "A56-61",
        tests=(A56,),
    ),
    Mutation(
        "priority-child-that-tries-again-holds-up-the-next",
        "lb/policies/priority/policy.py",
        "        if child.failover_timer_pending:\n",
        "        if child.state is State.CONNECTING:\n",
        "A56-63",
        tests=(FLAPPING,),
    ),
    Mutation(
        "priority-does-not-hear-the-failover-timer",
        "lb/policies/priority/policy.py",
        "FailPicker(error))\n        self._owner.on_change()\n",
        "FailPicker(error))\n",
        "A56-44",
        tests=(FAILOVER_STORY,),
    ),
    Mutation(
        "retention-starts-over-with-each-rest",
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
        "lb/policies/pick_first/policy.py",
        "            self._helper.context.random.shuffle(endpoints)\n",
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
        "elif child is self._pending and state is not State.CONNECTING:",
        "elif child is self._pending:",
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
        "PERCENT_MAX * len(reasons) >= rules.max_ejection_percent",
        "OD-08",
        tests=("tests/spec/test_outlier_detection.py",),
    ),
    Mutation(
        "cluster-breaker-slot-is-not-freed",
        "xds/lb/cluster_impl/policy.py",
        "        self._counter.end_call()\n",
        "",
        "A32-02",
        tests=("tests/spec/test_a32_cluster_impl.py",),
    ),
    Mutation(
        "cluster-drops-by-first-category-only",
        "xds/lb/cluster_impl/policy.py",
        "for per_million, name, drop in self._categories:",
        "for per_million, name, drop in self._categories[:1]:",
        "A32-03",
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
        "self.hosts.replace(endpoints if HealthStatus.DRAINING in self.usable else active)",
        "self.hosts.replace(active)",
        "A75-31",
        tests=(OVERRIDE_HOST,),
    ),
    Mutation(
        "session-host-closed-while-in-use",
        "xds/lb/override_host/hosts.py",
        "if host.subchannel is None and self._owner.keeps(host):",
        "if host.subchannel is not None and self._owner.keeps(host):",
        "A75-41",
        tests=(OVERRIDE_HOST,),
    ),
)

ROUTING = (
    Mutation(
        "exact-routes-overtake-earlier-ones",
        "xds/routing/route_table.py",
        'for entry in merge(exact, others, key=attrgetter("index")):',
        "for entry in (*exact, *others):",
        "A31-17",
        tests=("tests/spec/test_a31_xds.py",),
    ),
    Mutation(
        "weighted-clusters-are-drawn-alike",
        "xds/routing/selector.py",
        "choice = choices[bisect_right(self._ends, self._random.randrange(self._ends[-1]))]",
        "choice = choices[self._random.randrange(len(choices))]",
        "A31-19",
        tests=("tests/spec/test_a31_xds.py",),
    ),
    Mutation(
        "removed-cluster-leaves-in-one-step",
        "xds/resolver.py",
        "for key in self._refs.keys}",
        "for key in self._refs.keys if self._selector and key in self._selector._refs}",
        "A31-33",
        tests=(TEARS,),
    ),
    Mutation(
        "removed-cluster-is-never-dropped",
        "xds/resolver.py",
        "if self._manager is not None and not self._timer.pending:",
        "if self._manager is None and not self._timer.pending:",
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
        "xds/config/manager.py",
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
        "A27-12",
        tests=(XDS_CLIENT,),
    ),
    Mutation(
        "missing-resource-timer-not-started-on-new-stream",
        "xds/client/connection.py",
        "            wait.timer.cancel()\n        self._waits = {}\n",
        "            wait.timer.cancel()\n",
        "A57-03",
        tests=(XDS_CLIENT,),
    ),
    Mutation(
        "nack-drops-the-resource-in-use",
        "xds/client/response.py",
        "nack_drops=False,",
        "nack_drops=True,",
        "A88-02",
        tests=(XDS_CLIENT,),
    ),
    Mutation(
        "ack-has-the-version-of-another-type",
        "xds/client/ads.py",
        "            self._versions[type_url] = version\n",
        "            self._versions = dict.fromkeys(self._names, version)\n",
        "A27-07",
        tests=(XDS_CLIENT,),
    ),
    Mutation(
        "nonce-survives-its-stream",
        "xds/client/ads.py",
        "        self._nonces = {}\n        self._changed = dict.fromkeys(self._names)\n",
        "        self._changed = dict.fromkeys(self._names)\n",
        "A27-07",
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
        "xds/client/fallback.py",
        "keep = self.used.index(connection) + 1",
        "keep = len(self.used)",
        "A71-02",
        tests=(XDS_CLIENT,),
    ),
    Mutation(
        "load-report-repeats-errors",
        "xds/client/load.py",
        "self.issued = self.succeeded = self.errors = 0\n        self.metrics = {}\n        return",
        "self.issued = self.succeeded = 0\n        self.metrics = {}\n        return",
        "LRS-02",
        tests=("tests/unit/xds/client/test_load.py",),
    ),
)

CALL_LIVES = "tests/spec/test_call_lives.py"

CHANNEL = (
    Mutation(
        "retry-after-commit",
        "channel/call_attempts.py",
        "        if self.station is _COMMITTED or code is _CODE_OK:\n",
        "        if code is _CODE_OK:\n",
        "A6",
        tests=("tests/unit/channel/test_call.py", "tests/unit/channel/test_retrying.py"),
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
        tests=("tests/unit/channel/test_retrying.py",),
    ),
    Mutation(
        "second-hedge-waits-beside-the-first",
        "channel/retry.py",
        "if reason is None and is_waiting:",
        "if False:",
        "A6",
        tests=("tests/unit/channel/test_retry.py",),
    ),
    Mutation(
        "throttled-hedge-leaves-its-rpc-without-an-end",
        "channel/retrying.py",
        "self._call.finish(self._last_failure)",
        "pass",
        "A6",
        tests=(CALL_LIVES,),
    ),
    Mutation(
        "writer-is-not-told-that-who-blocked-him-is-gone",
        "channel/call_attempts.py",
        "        if others:\n",
        "        if others and end.is_unprocessed:\n",
        "A6",
        tests=(CALL_LIVES,),
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
        "goaway-retries-what-the-server-took",
        "wire/client.py",
        "if s.id > last_stream_id]:",
        "if s.id >= last_stream_id]:",
        "RFC 9113 6.8",
        tests=("tests/unit/wire/test_client.py",),
    ),
    Mutation(
        "stream-window-is-not-used-up",
        "wire/flow.py",
        "            stream.send_window -= size\n",
        "",
        "RFC 9113 6.9.1",
        tests=("tests/unit/wire/test_flow.py",),
    ),
    Mutation(
        "receive-window-is-not-filled-up",
        "wire/flow.py",
        "    stream.recv_window = stream.recv_target\n",
        "",
        "RFC 9113 6.9.1",
        tests=("tests/unit/wire/test_flow.py", "tests/unit/wire/test_connection.py"),
    ),
)

# Seen by nobody but the simulated mesh here, to show that it sees.
SIMULATED = (
    Mutation(
        "queued-picks-are-forgotten",
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
        "A29-02",
        tests=("tests/unit/transport/test_spiffe.py",),
    ),
    Mutation(
        "name-that-was-not-sent-is-compared",
        "xds/security/cluster_security.py",
        "    if tls.auto_sni_san_validation and sni:\n",
        "    if tls.auto_sni_san_validation:\n",
        "A29-02",
        tests=("tests/unit/xds/security/test_cluster_security.py",),
    ),
)

PROXIES = (
    Mutation(
        "proxy-loses-what-came-with-its-answer",
        "transport/tunnel.py",
        "        unread = memoryview(self._rest + asker.held)\n",
        "        unread = memoryview(bytes(asker.held))\n",
        "A78-01",
        tests=("tests/hostile/test_hostile_proxies.py",),
    ),
    Mutation(
        "proxy-may-speak-before-tls",
        "transport/tunnel.py",
        "        if self._rest:\n",
        "        if False:\n",
        "A78-01",
        tests=("tests/unit/transport/test_tunnel.py",),
    ),
    Mutation(
        "proxy-of-the-locality-wins",
        "xds/lb/cds/child_names.py",
        "    proxy = info.http_proxy or proxy\n",
        "    proxy = proxy or info.http_proxy\n",
        "A78-01",
        tests=("tests/unit/xds/lb/cds/test_child_names.py",),
    ),
    Mutation(
        "proxy-is-not-part-of-what-makes-a-connection",
        "base/http_proxy.py",
        "    target: str | None = None\n",
        "    target: str | None = field(default=None, compare=False)\n",
        "A78-01",
        tests=("tests/unit/base/test_http_proxy.py",),
    ),
)

A17 = "tests/spec/test_a17.py"

HEALTH = (
    Mutation(
        "health-asks-again-without-a-pause",
        "channel/health.py",
        "if self.phase is Phase.TOLD and",
        "if self.phase is not Phase.WAITING and",
        "HC-05",
        tests=("tests/unit/channel/test_health.py",),
    ),
    Mutation(
        "health-of-a-backend-that-does-not-know-it-is-bad",
        "channel/health.py",
        "self._enter(Phase.UNCHECKED, State.READY)",
        "self._enter(Phase.UNCHECKED, State.TRANSIENT_FAILURE)",
        "HC-04",
        tests=(A17,),
    ),
    Mutation(
        "health-stream-outlives-who-wanted-it",
        "channel/health_watch.py",
        "        if not checker.is_watched:\n",
        "        if checker.is_watched:\n",
        "HC-09",
        tests=(A17,),
    ),
    Mutation(
        "health-of-the-first-name-counts-for-ever",
        "channel/health_watch.py",
        "        if question != self._question:\n",
        "        if self._question is None:\n",
        "HC-11",
        tests=(A17,),
    ),
    Mutation(
        "health-is-asked-for-by-a-lone-pick-first",
        "lb/policies/pick_first/policy.py",
        "        if self._settings.has_health_watch:\n",
        "        if self._settings is not None:\n",
        "HC-08",
        tests=(A17,),
    ),
    Mutation(
        "health-watch-is-left-over",
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
        "return self._rewritten if info.attributes.get(AUTO_HOST_REWRITE) else self._as_it_is",
        "return self._rewritten",
        "A78-01",
        tests=("tests/spec/test_a81_authority.py",),
    ),
    Mutation(
        "authority-is-lost-on-the-way-up",
        "lb/forwarding.py",
        "passed_on = Complete(self.inner, tracker, result.authority)",
        "passed_on = Complete(self.inner, tracker)",
        "A78-01",
        tests=("tests/spec/test_a81_authority.py",),
    ),
    Mutation(
        "authority-is-sent-whatever-the-certificate-says",
        "channel/call.py",
        "elif (refusal := transport.refuse_authority(authority)) is not None:",
        "elif (refusal := None) is not None:",
        "A78-01",
        tests=("tests/spec/test_a81_authority.py",),
    ),
)

METRICS = (
    Mutation(
        "cluster-is-not-said-to-who-measures",
        "xds/lb/pick_labels.py",
        "            labels[BACKEND_SERVICE] = self._cluster\n",
        "            labels.setdefault(BACKEND_SERVICE, '')\n",
        "A78-01",
        tests=("tests/spec/test_a78_metrics.py",),
    ),
    Mutation(
        "every-failure-of-a-control-plane-counts",
        "xds/client/connection.py",
        "            self._owner.on_failure(self)\n",
        "        self._owner.on_failure(self)\n",
        "A78-01",
        tests=("tests/spec/test_a78_metrics.py",),
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
