"""What would a pick answer now, and why? From a look at a channel's policies.

No pick is made: picks count, take turns and make connections, and looking must change nothing. What
is said here is what the policies say of themselves (`proxyless.lb.view`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from proxyless.base import State
from proxyless.base.explanation import Explanation
from proxyless.lb.view import join_notes, ready_addresses

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxyless.lb import LbNode

# Children of one policy, and addresses in one line; more are counted, not shown.
CHILDREN_SHOWN_MAX: Final = 20
ADDRESSES_SHOWN_MAX: Final = 5

_READY: Final = State.READY.name
_IDLE: Final = State.IDLE.name
_CONNECTING: Final = State.CONNECTING.name
_PRIORITY: Final = "priority_experimental"
_RING_HASH: Final = "ring_hash_experimental"


def explain_pick(node: LbNode | None) -> Explanation:
    """What becomes of an RPC that comes to this policy now."""
    if node is None:
        return _waits("there is no LB policy yet")
    parts = (explain_node(node),)
    if problem := name_problems(find_barrier(node), node.problem):
        facts: dict[str, object] = {"result": "fail"}
        return Explanation("pick", f"now: fails: {problem}", facts, parts, problem)
    if node.state == _READY:
        addresses = ready_addresses(node)
        facts = {"result": "complete", "addresses": addresses}
        text = f"now: goes to {_any_of(addresses)}"
        if unconnected := _count_unconnected(node):
            text += f", or by its hash waits for one of {unconnected} more to connect"
        return Explanation("pick", text, facts, parts)
    if node.state == _IDLE:
        return _waits("nothing is connected, an RPC changes that", parts)
    return _waits(why_waiting(node), parts)


def _waits(reason: str, parts: tuple[Explanation, ...] = ()) -> Explanation:
    return Explanation("pick", f"now: waits: {reason}", {"result": "queue", "waits": reason}, parts)


def _any_of(addresses: Sequence[str]) -> str:
    if not addresses:
        return "what the policy chooses"
    shown = " or ".join(addresses[:ADDRESSES_SHOWN_MAX])
    more = len(addresses) - ADDRESSES_SHOWN_MAX
    return f"{shown} or {more} more" if more > 0 else shown


def _count_unconnected(node: LbNode) -> int:
    """Endpoints that no connection is made to until an RPC's hash says so (A42)."""
    used = [child for child in node.children if child.in_use]
    if node.policy == _RING_HASH:
        return sum(child.state in {_IDLE, _CONNECTING} for child in used)
    return sum(_count_unconnected(child) for child in used if child.state == _READY)


def why_waiting(node: LbNode) -> str:
    """What RPCs wait for that come here: the priority that is tried, the connections to be."""
    path = list(used_path(node))
    notes = [
        join_notes(each.detail, after.detail)
        for each, after in pairwise(path)
        if each.policy == _PRIORITY
    ]
    pending = [f"{each.name} is {each.state}" for each in _used_subchannels(node)]
    tried = ", ".join(pending[:ADDRESSES_SHOWN_MAX])
    more = len(pending) - ADDRESSES_SHOWN_MAX
    return join_notes(*notes, f"{tried} and {more} more" if more > 0 else tried) or "CONNECTING"


def find_barrier(node: LbNode) -> str:
    """What ends an RPC before policies further down are asked; empty if nothing does."""
    return next((each.barrier for each in used_path(node) if each.barrier), "")


def name_problems(first: str, second: str) -> str:
    """What ends an RPC; and what would, if that did not."""
    if not first or not second or first in second:
        return second or first
    return f"{first}; without that: {second}"


def used_path(node: LbNode) -> Iterator[LbNode]:
    """The node, and below it the first child that is in use, and so on."""
    yield node
    used = next((child for child in node.children if child.in_use), None)
    if used is not None:
        yield from used_path(used)


def _used_subchannels(node: LbNode) -> Iterator[LbNode]:
    if not node.policy:
        yield node
    for child in node.children:
        if child.in_use:
            yield from _used_subchannels(child)


# The tree


def explain_node(node: LbNode) -> Explanation:
    """A policy and what is below it; policies that have one child stand in its line."""
    chain = [node]
    while (only := _only_child(chain[-1])) is not None:
        chain.append(only)
    facts: dict[str, object] = {
        "name": node.name,
        "policies": [each.policy for each in chain if each.policy],
        "state": node.state,
        "in_use": node.in_use,
    }
    parts = tuple(explain_node(child) for child in _shown(chain[-1].children))
    more = len(chain[-1].children) - len(parts)
    if more:
        parts += (Explanation("more", f"and {more} more", {"count": more}),)
    return Explanation("lb", _describe_chain(chain), facts, parts, node.problem)


def _only_child(node: LbNode) -> LbNode | None:
    if len(node.children) != 1 or node.children[0].name not in {"", node.name}:
        return None
    return node.children[0]


def _shown(children: Sequence[LbNode]) -> Sequence[LbNode]:
    """If there are many: those that are not as they should be first."""
    if len(children) <= CHILDREN_SHOWN_MAX:
        return children
    return sorted(children, key=lambda each: each.state == _READY)[:CHILDREN_SHOWN_MAX]


def _describe_chain(chain: Sequence[LbNode]) -> str:
    top = chain[0]
    state = top.state or "not there"
    if not top.in_use:
        state += ", not in use"
    steps: list[str] = []
    for node in chain:
        # An error is told on its way up in longer and longer words: once is enough.
        is_told = any(node.detail in step for step in steps)
        steps.append(_describe_step(node, top, "" if is_told else node.detail))
    said = " > ".join(step for step in steps if step)
    text = f"{state}: {said}" if said else state
    return f"{top.name}: {text}" if top.name else text


def _describe_step(node: LbNode, top: LbNode, detail: str) -> str:
    noted = join_notes(node.state if node.state != top.state else "", detail)
    kind = node.policy or ("connection" if noted else "")
    return f"{kind} ({noted})" if noted else kind
