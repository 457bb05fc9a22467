"""Does the session of an RPC decide where it goes?

Specs: A55 (the cookie), A60 (its cluster), A75 (which host is used).

The decisions are those of the filter and of xds_override_host, run again: `read_place` says where
the session lives, `choose_host` what becomes of that, by the states that are seen in a channel's
policies. Without a channel only what is listed is known, and hosts are taken to be reachable.
A session's host is chosen before priorities and localities are asked, so their failures do not stop
its RPCs; drops and the circuit breaker do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from proxyless.base import State, quote
from proxyless.base.explanation import Explanation
from proxyless.base.frozen import frozen
from proxyless.observe.explain_clusters import choose_leaf
from proxyless.observe.explain_lb import find_barrier, used_path
from proxyless.xds.config import ClusterError
from proxyless.xds.filters.session_calls import NOWHERE, matches_path, read_place
from proxyless.xds.filters.stateful_session import StatefulSessionConfig
from proxyless.xds.lb.override_host import policy as override_host
from proxyless.xds.lb.override_host.hosts import Verdict, choose_host
from proxyless.xds.resources import HealthStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxyless.base import Metadata
    from proxyless.lb import LbNode
    from proxyless.xds.config import ClusterConfig
    from proxyless.xds.config.xds_config import ClusterResult
    from proxyless.xds.filters.session_calls import SessionPlace


@frozen
class ListedHost:
    """One address, as the choice sees it."""

    address: str
    health: HealthStatus
    state: State | None


def find_session(
    configs: Sequence[object], path: str, metadata: Metadata
) -> tuple[str, SessionPlace] | None:
    """The cookie's name and where it says that the RPC's session lives; None without sessions."""
    for config in configs:
        if isinstance(config, StatefulSessionConfig) and (cookie := config.cookie) is not None:
            if matches_path(cookie.path, path):
                return cookie.name, read_place(metadata, cookie.name)
            return None
    return None


def explain_session(
    cookie: str, place: SessionPlace, entry: ClusterConfig | None, node: LbNode | None
) -> Explanation:
    """What the session means for an RPC that was routed to this cluster."""
    if place == NOWHERE or not place.addresses:
        text = f"session: the RPC has no cookie {quote(cookie)}, so the policies pick"
        return Explanation("session", text, {"cookie": cookie})
    where = ", ".join(place.addresses)
    facts: dict[str, object] = {"cookie": cookie, "addresses": list(place.addresses)}
    hosts = {} if entry is None else dict(_listed_hosts(entry, node))
    usable = frozenset[HealthStatus]() if entry is None else entry.cluster.override_host_status
    verdict, host = choose_host(place.addresses, hosts, usable)
    facts["verdict"] = verdict.name
    if host is not None:
        facts["host"] = host.address
    if node is not None:
        return Explanation("session", f"session lives at {where}: {verdict.value}", facts)
    known = [hosts[each].health.value for each in place.addresses if each in hosts]
    text = f"session lives at {where}, which is {known[0] if known else 'not listed'}"
    is_kept = verdict is not Verdict.DELEGATE
    text += ": it stays there" if is_kept else ": sessions do not stay there, so the policies pick"
    return Explanation("session", text, facts)


def stays(session: Explanation) -> bool:
    """Whether RPCs of the session go where it lives, or wait to."""
    return session.facts.get("verdict", Verdict.DELEGATE.name) != Verdict.DELEGATE.name


def find_leaf(result: ClusterResult | None, node: LbNode | None) -> ClusterConfig | None:
    """The cluster whose hosts count: of an aggregate, the leaf that its policies use."""
    if result is None or isinstance(result, ClusterError):
        return None
    first, *leaves = result
    if not leaves:
        return first
    if node is None:
        return choose_leaf(leaves)
    used = {each.name for each in used_path(node)}
    return next((leaf for leaf in leaves if leaf.cluster_name in used), first)


def override_pick(pick: Explanation, session: Explanation, node: LbNode) -> Explanation:
    """What becomes of an RPC of this session, of which the policies say that as a pick."""
    # Drops and the circuit breaker are above the policy that chooses the host.
    if not stays(session) or find_barrier(node):
        return pick
    verdict = Verdict[str(session.facts["verdict"])]
    facts: dict[str, object] = {"result": "queue", "waits": verdict.value}
    text = f"now: waits: {verdict.value}"
    if verdict is Verdict.USE:
        facts = {"result": "complete", "addresses": [session.facts["host"]]}
        text = f"now: goes to {session.facts['host']}, where its session lives"
    return replace(pick, text=text, facts={**facts, "session": verdict.name}, problem="")


def _find_chooser(node: LbNode) -> LbNode:
    """Who knows the hosts. Other leaves of an aggregate may have the same addresses."""
    return next((each for each in used_path(node) if each.policy == override_host.NAME), node)


def _listed_hosts(entry: ClusterConfig, node: LbNode | None) -> Iterator[tuple[str, ListedHost]]:
    states = {} if node is None else dict(_connections(_find_chooser(node)))
    if entry.endpoints is None:
        return
    for priority in entry.endpoints.priorities:
        for locality in priority:
            for endpoint in locality.endpoints:
                for address in map(str, endpoint.addresses):
                    yield address, ListedHost(address, endpoint.health, states.get(address))


def _connections(node: LbNode) -> Iterator[tuple[str, State]]:
    if not node.policy and node.state:
        yield node.name, State[node.state]
    for child in node.children:
        yield from _connections(child)
