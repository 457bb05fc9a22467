"""Explanation of the session of an RPC: whether it decides the RPC's host.

Specs: A55 (the cookie), A60 (its cluster), A75 (which host is used).

`xds.view.Session` repeats the decisions of the filter and of xds_override_host, with the states of
the subchannels of a channel. Without a channel all hosts count as reachable. The host of a session
is chosen above the priority policy, so failures of priorities do not stop its RPCs; drops and the
circuit breaker do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from proxyless.base import State, quote
from proxyless.base.explanation import Explanation
from proxyless.observe.explain_clusters import choose_leaf
from proxyless.observe.explain_lb import find_barrier, used_path
from proxyless.xds.view import OVERRIDE_HOST_POLICY, ClusterError, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.lb import LbNode
    from proxyless.xds.view import ClusterConfig, ClusterResult, Session


def explain_session(
    session: Session, entry: ClusterConfig | None, node: LbNode | None
) -> Explanation:
    facts: dict[str, object] = {"cookie": session.cookie}
    if not session.addresses:
        text = f"session: the RPC has no cookie {quote(session.cookie)}, so the policies pick"
        return Explanation("session", text, facts)
    where = ", ".join(session.addresses)
    host = session.choose_host(entry, _states(node))
    facts |= {"addresses": list(session.addresses), "verdict": host.verdict.name}
    if host.address:
        facts["host"] = host.address
    if node is not None:
        return Explanation("session", f"session lives at {where}: {host.verdict.value}", facts)
    health = "not listed" if host.health is None else host.health.value
    text = f"session lives at {where}, which is {health}"
    is_kept = host.verdict is not Verdict.DELEGATE
    text += ": it stays there" if is_kept else ": sessions do not stay there, so the policies pick"
    return Explanation("session", text, facts)


def stays(session: Explanation) -> bool:
    """Whether RPCs of the session go to its host, or wait for it."""
    return session.facts.get("verdict", Verdict.DELEGATE.name) != Verdict.DELEGATE.name


def find_leaf(result: ClusterResult | None, node: LbNode | None) -> ClusterConfig | None:
    """The cluster, or of an aggregate the leaf that its policies use."""
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
    """The explanation of a pick, changed for an RPC of this session."""
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


def _states(node: LbNode | None) -> dict[str, State]:
    """States of subchannels by address, of the leaf in use: leaves may share addresses."""
    if node is None:
        return {}
    used = (each for each in used_path(node) if each.policy == OVERRIDE_HOST_POLICY)
    return dict(_connections(next(used, node)))


def _connections(node: LbNode) -> Iterator[tuple[str, State]]:
    if not node.policy and node.state:
        yield node.name, State[node.state]
    for child in node.children:
        yield from _connections(child)
