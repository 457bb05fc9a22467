"""Checkers: invariants of every run.

Each reads the records of a run (`records`, `fault_log`, `plans`) and yields a sentence for each
violation. None of them uses the code under test.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from proxyless.controlplane.resource import CLUSTER, ENDPOINTS, LB_ENDPOINT, LISTENER, ROUTE_CONFIG
from proxyless.lb.policies.per_endpoint.endpoint_list import REMOVED_RETENTION_S
from tools.simulation.expected_failures import EXPECTED_FAILURE_CHECKERS, is_expected_failure
from tools.simulation.fault_log import AWAY, CONTROL, RECOVERY_S
from tools.simulation.plans import DELAY_S, ROUTES, SERVICE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.simulation.plans import MeshPlan
    from tools.simulation.records import (
        ClientRecord,
        ClusterView,
        ConfigRecord,
        PickRecord,
        RpcRecord,
    )
    from tools.simulation.scenario import Scenario

# Time in which a client connects to a sound endpoint of its config: the failover timer of higher
# priorities (10 s), and a margin.
CONNECTING_S: Final = 12.0
# Time in which a client without a failover timer connects to a sound endpoint.
PATIENT_S: Final = 5.0
# Maximum duration of an RPC without faults: round trips, and the pauses of a stream.
ANSWER_S: Final = {"unary": 1.0, "session": 1.0, "stream": 8.0}
# Maximum time on the network: a fault may affect an RPC that was sent before it.
IN_FLIGHT_S: Final = 1.0


def check_routes(scenario: Scenario) -> Iterator[str]:
    """Every RPC is sent to a cluster of the routes in force, and its attempts to the same one."""
    for rpc in scenario.recorder.rpcs.values():
        if not rpc.picks:
            continue
        first = rpc.picks[0]
        generations = _generations_of(scenario, rpc, first)
        plans = [scenario.generations[each] for each in generations if each]
        if not any(first.cluster in plan.lanes[rpc.lane] for plan in plans):
            yield (
                f"{rpc.name}: lane {rpc.lane!r} went to cluster {first.cluster!r}"
                f" under generation {generations[-1]}"
            )
        clusters = {pick.cluster for pick in rpc.picks}
        if len(clusters) != 1:
            yield f"{rpc.name}: picked from several clusters: {sorted(clusters)}"


def check_configs(scenario: Scenario) -> Iterator[str]:
    """Each cluster in a client's config was published in that form."""
    for client in scenario.recorder.channels:
        for config in client.configs:
            for name, view in config.clusters.items():
                forms = scenario.cluster_forms.get(name, [])
                if view.is_error or any(form.leaves for form in forms):
                    continue
                if any(form.has_collections for form in forms):
                    # Collections change one by one.
                    known = {each for form in forms for found in form.priorities for each in found}
                    if view.addresses <= known:
                        continue
                published = {_live(form.live_priorities) for form in forms}
                if any(form.dns_name for form in forms):
                    published |= {(answer,) for answer in scenario.dns_answers}
                # There are no priorities before the endpoints arrive.
                if view.priorities and _live(view.priorities) not in published:
                    yield f"{client.name}: cluster {name!r} at {config.at_s:.3f} s was never so"


def check_picks(scenario: Scenario) -> Iterator[str]:
    """No pick goes to an endpoint outside the config in force.

    A removed endpoint may be used until its locality has a connection again (D45).
    """
    for rpc in scenario.recorder.rpcs.values():
        for pick in rpc.picks:
            view = rpc.view_of(pick)
            # A draining endpoint keeps its sessions.
            allowed = view.addresses | (view.draining & rpc.homes)
            if not pick.address or pick.address in allowed:
                continue
            if pick.address not in _removed_addresses(scenario, rpc, pick):
                yield (
                    f"{rpc.name}: picked {pick.address} at {pick.at_s:.3f} s,"
                    f" which is not in cluster {pick.cluster!r}"
                )


def _removed_addresses(scenario: Scenario, rpc: RpcRecord, pick: PickRecord) -> frozenset[str]:
    """Addresses of earlier configs, which a policy may use until it has connected to a new one."""
    views = _retained_views(scenario, rpc, pick)
    return frozenset().union(*(view.addresses for view in views))


def _retained_views(scenario: Scenario, rpc: RpcRecord, pick: PickRecord) -> list[ClusterView]:
    """The cluster in all configs whose endpoints a policy may still have (D45)."""
    if scenario.options.lb_policy == "RING_HASH":
        return []
    configs = _configs_in_force(rpc.client, pick.at_s - REMOVED_RETENTION_S, pick.at_s)
    return [config.cluster(pick.cluster) for config in configs]


def check_priorities(scenario: Scenario) -> Iterator[str]:
    """No pick goes to a lower priority while a sound endpoint is in a higher one.

    An endpoint that has moved to a lower priority may be used by the higher one, as if it were
    removed, until that has a connection again (D45).
    """
    for rpc in scenario.recorder.rpcs.values():
        for pick in rpc.picks:
            view = rpc.view_of(pick)
            priority = view.priority_of(pick.address)
            if not priority or pick.address in rpc.homes:
                continue
            better = find_sound(scenario, rpc, pick.cluster, (pick.at_s, pick.at_s))
            if better is None or better[0] >= priority:
                continue
            if _may_hang_on_a_ring(scenario, view, better[0], pick.at_s):
                continue
            earlier = [
                each.priority_of(pick.address) for each in _retained_views(scenario, rpc, pick)
            ]
            if any(each is not None and each <= better[0] for each in earlier):
                continue
            yield (
                f"{rpc.name}: picked {pick.address} of priority {priority} at"
                f" {pick.at_s:.3f} s, while {better[1]} of priority {better[0]} is sound"
            )


def _may_hang_on_a_ring(scenario: Scenario, view: ClusterView, priority: int, at_s: float) -> bool:
    """Whether a ring may have been CONNECTING to a faulty endpoint until the failover timer.

    Such a ring connects to no other endpoint in the meantime (A56, A61).
    """
    return scenario.options.lb_policy == "RING_HASH" and any(
        scenario.fault_log.is_faulty(scenario.backend_at(address), at_s - CONNECTING_S, at_s)
        for address in view.addresses
        if view.priority_of(address) == priority
    )


def check_outcomes(scenario: Scenario) -> Iterator[str]:
    """No RPC fails while a sound endpoint of its cluster exists, unless a faulty one had it."""
    for rpc in scenario.recorder.rpcs.values():
        if rpc.ended_s is None:
            yield f"{rpc.name}: never ended"
        elif rpc.code == "OK":
            if rpc.served_by not in rpc.arrivals:
                yield f"{rpc.name}: answered by {rpc.served_by!r}, at which it never arrived"
        elif not rpc.is_cancelled_by_us and not _is_excused(scenario, rpc):
            yield (
                f"{rpc.name} of {rpc.client.name}, started at {rpc.started_s:.3f} s: {rpc.code}"
                f" {rpc.details!r} though {_sound_for(scenario, rpc)} is sound"
            )


def check_attempts(scenario: Scenario) -> Iterator[str]:
    """An RPC that was sent to sound backends does not fail."""
    for rpc in scenario.recorder.rpcs.values():
        if rpc.code in {"OK", "CANCELLED"} or rpc.ended_s is None or rpc.is_cancelled_by_us:
            continue
        last = rpc.picks[-1] if rpc.picks else None
        if last is None or not last.address or _was_with_faulty_backend(scenario, rpc):
            continue
        if rpc.code != "DEADLINE_EXCEEDED" or rpc.ended_s - last.at_s > ANSWER_S[rpc.kind]:
            name = scenario.backend_at(last.address)
            yield f"{rpc.name}: {rpc.code} {rpc.details!r}, though nothing was wrong with {name}"


def check_retries(scenario: Scenario) -> Iterator[str]:
    """A unary RPC is retried as its route says before it fails; drops are not retried."""
    expected = 1 + scenario.options.retries
    for rpc in scenario.recorder.rpcs.values():
        answers = [pick.answer for pick in rpc.picks]
        # An RPC with a partial reply is committed, and not retried.
        has_begun = bool(scenario.options.reply_bytes) and bool(rpc.arrivals)
        if rpc.kind == "stream" or rpc.code != "UNAVAILABLE" or not answers or has_begun:
            continue
        attempts = answers.count("Complete") + answers.count("Fail")
        if attempts < expected and answers[-1] != "Drop":
            yield f"{rpc.name}: {rpc.details!r} after {attempts} attempts, wanted {expected}"


def check_sessions(scenario: Scenario) -> Iterator[str]:
    """A session uses its endpoint while that is in the config, draining or not, and sound.

    It has no endpoint any more if the routes do not lead to its cluster.
    """
    for rpc in scenario.recorder.rpcs.values():
        # An endpoint with several addresses may be used at each of them.
        if len(rpc.homes) != 1 or not rpc.picks or rpc.ended_s is None:
            continue
        first = rpc.picks[0]
        generations = _generations_of(scenario, rpc, first)
        plans = [scenario.generations[each] for each in generations if each]
        if not all(rpc.home_cluster in plan.lanes[rpc.lane] for plan in plans):
            continue
        if first.cluster != rpc.home_cluster:
            yield f"{rpc.name}: left its cluster {rpc.home_cluster!r} for {first.cluster!r}"
        elif _is_at_home(scenario, rpc, rpc.ended_s):
            for pick in rpc.picks:
                if pick.address and pick.address != rpc.home:
                    yield f"{rpc.name}: picked {pick.address}, though {rpc.home} is sound"


def _is_at_home(scenario: Scenario, rpc: RpcRecord, ended_s: float) -> bool:
    """Whether the session's endpoint was in every config of the time, and sound."""
    start_s = rpc.started_s - CONNECTING_S
    configs = _configs_in_force(rpc.client, start_s, ended_s)
    views = [config.cluster(rpc.home_cluster) for config in configs]
    is_listed = configs[0].at_s <= start_s and all(
        rpc.home in view.addresses | view.draining for view in views
    )
    return is_listed and _is_usable(scenario, rpc, rpc.home, (rpc.started_s, ended_s))


def check_outages(scenario: Scenario) -> Iterator[str]:
    """Traffic that flows is never stopped by control planes that are merely away (D50).

    While none can answer, no client puts a config in force in which a routed cluster is worse than
    before: in error or without endpoints, and not so in the config before it. A config without any
    endpoint is not held (HOLD-05): no traffic flows.
    """
    # Last answers are under way for one delay; a lost connection is noticed after three.
    in_flight_s = 2 * scenario.options.latency_s
    for client in scenario.recorder.channels:
        for before, after in pairwise(client.configs):
            at_s = after.at_s
            is_away = scenario.fault_log.is_faulty_throughout(AWAY, at_s - in_flight_s, at_s)
            has_traffic = any(view.addresses for view in before.clusters.values())
            if not is_away or not before.is_routing or not has_traffic:
                continue
            plan = scenario.generations.get(after.generation)
            for name in sorted(plan.routed if plan is not None else ()):
                was_usable = name not in before.clusters or before.cluster(name).addresses
                if was_usable and not after.cluster(name).addresses:
                    yield (
                        f"{client.name}: cluster {name!r} has no endpoints since {at_s:.3f} s,"
                        " in an outage of all control planes"
                    )


def check_convergence(scenario: Scenario) -> Iterator[str]:
    """After the recovery time clients have the newest config, and every RPC succeeds."""
    for client in scenario.recorder.clients.values():
        yield from _check_newest(scenario, client)
    calm_s = scenario.faults_end_s + RECOVERY_S
    for rpc in scenario.recorder.rpcs.values():
        is_excused = rpc.code == "OK" or rpc.is_cancelled_by_us or is_expected_failure(rpc)
        if rpc.started_s >= calm_s and not is_excused and not _met_ejections(scenario, rpc):
            yield f"{rpc.name}: {rpc.code} {rpc.details!r} long after the last fault"


def _met_ejections(scenario: Scenario, rpc: RpcRecord) -> bool:
    """Whether all endpoints were ejected at its last pick: cancelled RPCs count as failures.

    `expected_failures.check_ejections` checks the ejections.
    """
    if not rpc.picks:
        return False
    last = rpc.picks[-1]
    is_ejected, client = scenario.recorder.is_ejected, rpc.client.name
    addresses = rpc.view_of(last).addresses
    return bool(addresses) and all(
        is_ejected(client, address, last.at_s, last.at_s) for address in addresses
    )


def _check_newest(scenario: Scenario, client: ClientRecord) -> Iterator[str]:
    if not client.configs:
        yield f"{client.name}: never had a config"
        return
    config, plan = client.configs[-1], scenario.plan
    if config.generation != plan.generation:
        yield f"{client.name}: has generation {config.generation}, wanted {plan.generation}"
        return
    if config.children != plan.routed:
        left, lost = config.children - plan.routed, plan.routed - config.children
        yield f"{client.name}: still holds clusters {sorted(left)}, lacks {sorted(lost)}"
    for name in sorted(plan.routed):
        cluster, view = plan.clusters[name], config.cluster(name)
        # A DNS name is not resolved again while its endpoint is connected.
        if not cluster.has_eds:
            continue
        if _live(view.priorities) != _live(cluster.live_priorities):
            yield f"{client.name}: cluster {name!r} is not the newest"


def check_subscriptions(scenario: Scenario) -> Iterator[str]:
    """At the end clients subscribe to the resources of their routes, and to nothing else."""
    expected = {LISTENER: {SERVICE}, ROUTE_CONFIG: {ROUTES}, **_needed(scenario.plan)}
    for client, by_type in scenario.subscriptions.items():
        for type_url, names in by_type.items():
            if names != expected.get(type_url, set()):
                what = f"{type_url.rpartition('.')[2]} {sorted(names)}"
                yield f"{client}: asks for {what}, wanted {sorted(expected.get(type_url, ()))}"
    for client in sorted(scenario.channels.keys() - scenario.subscriptions.keys()):
        yield f"{client}: has no stream to a control plane"


def _needed(plan: MeshPlan) -> dict[str, set[str]]:
    clusters = set(plan.routed)
    clusters |= {leaf for name in plan.routed for leaf in plan.clusters[name].leaves}
    return {
        CLUSTER: clusters,
        ENDPOINTS: {name for name in clusters if plan.clusters[name].has_eds},
        LB_ENDPOINT: {
            collection
            for name in clusters
            if plan.clusters[name].has_collections
            for collection in plan.clusters[name].collections(name)
        },
    }


def check_stickiness(scenario: Scenario) -> Iterator[str]:
    """No pick_first goes from TRANSIENT_FAILURE to CONNECTING (A62)."""
    for at_s, client in scenario.recorder.unstuck:
        yield f"{client}: left TRANSIENT_FAILURE for CONNECTING at {at_s:.3f} s"


def check_nothing_broke(scenario: Scenario) -> Iterator[str]:
    """There is no uncaught exception."""
    for text, times in sorted(Counter(scenario.world.exceptions).items()):
        yield f"exception, {times} times: {text}"


def check_nothing_is_left(scenario: Scenario) -> Iterator[str]:
    """No connection, stream, task or timer is left in a closed world."""
    for text, times in sorted(Counter(scenario.world.left_behind).items()):
        yield f"left behind, {times} times: {text}"


CHECKERS: Final = (
    check_routes,
    check_configs,
    check_picks,
    check_priorities,
    check_outcomes,
    check_attempts,
    check_retries,
    check_stickiness,
    *EXPECTED_FAILURE_CHECKERS,
    check_sessions,
    check_outages,
    check_convergence,
    check_subscriptions,
    check_nothing_broke,
    check_nothing_is_left,
)

# ---------------------------------------------------------------------------------------------
# Shared by several checkers


def find_sound(
    scenario: Scenario,
    rpc: RpcRecord,
    cluster: str,
    time: tuple[float, float],
    settled_s: float = CONNECTING_S,
) -> tuple[int, str] | None:
    """The most preferred endpoint that was in the client's config and sound all the time.

    Returns its least preferred priority in this time, and its name. It has been in the config for
    `settled_s`, in which the client had time to connect.
    """
    start_s, end_s = time
    configs = _configs_in_force(rpc.client, start_s - settled_s, end_s)
    if not configs or configs[0].at_s > start_s - settled_s:
        return None
    found: list[tuple[int, str]] = []
    for address in configs[0].cluster(cluster).addresses:
        priorities = [config.cluster(cluster).priority_of(address) for config in configs]
        if None not in priorities and _is_usable(scenario, rpc, address, time):
            name = scenario.backend_at(address)
            found.append((max(each for each in priorities if each is not None), name))
    return min(found, default=None)


def _is_usable(scenario: Scenario, rpc: RpcRecord, address: str, time: tuple[float, float]) -> bool:
    """Whether an endpoint was sound all the time, and outlier detection left it alone."""
    start_s, end_s = time
    is_ejected = scenario.recorder.is_ejected
    return scenario.fault_log.is_sound(scenario.backend_at(address), start_s, end_s) and (
        not is_ejected(rpc.client.name, address, start_s - CONNECTING_S, end_s)
    )


def _generations_of(scenario: Scenario, rpc: RpcRecord, pick: PickRecord) -> list[int]:
    """Generations whose routes the RPC may have used; a fault filter delays some RPCs."""
    if not scenario.options.has_injected_faults:
        return [rpc.config_of(pick).generation]
    configs = _configs_in_force(rpc.client, pick.at_s - DELAY_S, pick.at_s)
    return sorted({config.generation for config in configs})


def _is_excused(scenario: Scenario, rpc: RpcRecord) -> bool:
    """Whether the RPC may fail."""
    return (
        is_expected_failure(rpc)
        or _was_with_faulty_backend(scenario, rpc)
        or _waited_for_faulty_backend(scenario, rpc)
        or _waited_for_routes(scenario, rpc)
        or not _sound_for(scenario, rpc)
    )


def _waited_for_routes(scenario: Scenario, rpc: RpcRecord) -> bool:
    """Whether its deadline passed while the client had no routes."""
    assert rpc.ended_s is not None, "it has failed"
    has_waited = bool(rpc.picks) and rpc.picks[0].at_s > rpc.started_s
    return has_waited and not scenario.fault_log.is_sound(CONTROL, rpc.started_s, rpc.ended_s)


def _waited_for_faulty_backend(scenario: Scenario, rpc: RpcRecord) -> bool:
    """Whether a hash or a session may have queued it for an endpoint that was slow to connect.

    Both queue an RPC whose endpoint is CONNECTING (A42, A55). A ring that does so until the
    failover timer fails RPCs, and connects to no other endpoint in the meantime (A56, A61).
    """
    assert rpc.ended_s is not None, "it has failed"
    is_late = scenario.options.lb_policy == "RING_HASH" and "while CONNECTING" in rpc.details
    if rpc.code != "DEADLINE_EXCEEDED" and not is_late:
        return False
    if scenario.options.lb_policy == "RING_HASH":
        views = [rpc.view_of(pick) for pick in rpc.picks]
        addresses = frozenset().union(*(view.addresses for view in views))
    else:
        addresses = rpc.homes
    start_s = rpc.started_s - CONNECTING_S
    return any(
        scenario.fault_log.is_faulty(scenario.backend_at(address), start_s, rpc.ended_s)
        for address in addresses
    )


def _sound_for(scenario: Scenario, rpc: RpcRecord) -> str:
    """Name of a backend that could have served a failed RPC all the time, or empty."""
    assert rpc.ended_s is not None, "it has failed"
    time = (rpc.started_s, rpc.ended_s)
    if not rpc.picks:
        # It was never routed: its deadline was short, or the client had no routes.
        is_patient = rpc.timeout_s >= PATIENT_S
        return CONTROL if is_patient and scenario.fault_log.is_sound(CONTROL, *time) else ""
    cluster = rpc.picks[0].cluster
    if rpc.wait_for_ready and rpc.timeout_s >= PATIENT_S:
        # The client connects to a new endpoint while the RPC waits.
        found = find_sound(scenario, rpc, cluster, time, settled_s=0.0)
        if found is not None and found[0] == 0:
            return found[1]
    found = find_sound(scenario, rpc, cluster, time)
    if found is None:
        return ""
    priority, name = found
    # The failover timers of higher priorities take longer than a short deadline.
    waits_in_vain = priority > 0 and rpc.timeout_s < CONNECTING_S
    return "" if waits_in_vain and rpc.code == "DEADLINE_EXCEEDED" else name


def _was_with_faulty_backend(scenario: Scenario, rpc: RpcRecord) -> bool:
    assert rpc.ended_s is not None, "it has failed"
    return any(
        scenario.fault_log.is_faulty(
            scenario.backend_at(pick.address), pick.at_s - IN_FLIGHT_S, rpc.ended_s
        )
        for pick in rpc.picks
        if pick.address
    )


def _configs_in_force(client: ClientRecord, start_s: float, end_s: float) -> list[ConfigRecord]:
    """Configs that were in force at any moment of this time, oldest first."""
    started = [config for config in client.configs if config.at_s <= end_s]
    first = max((n for n, each in enumerate(started) if each.at_s <= start_s), default=0)
    return started[first:]


def _live(priorities: tuple[frozenset[str], ...]) -> tuple[frozenset[str], ...]:
    """Priorities without those that have only draining endpoints."""
    return tuple(filter(None, priorities))
