"""Explanation of a pick, from the descriptions of a channel's policies (`lb.description`).

No pick is made: a pick has side effects, such as counters, rotation and connections.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from proxyless.base import State
from proxyless.base.explanation import Explanation
from proxyless.lb.description import join_notes, ready_addresses

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxyless.lb import LbNode

# More are counted, not shown.
CHILDREN_SHOWN_MAX: Final = 20
ADDRESSES_SHOWN_MAX: Final = 5

_READY: Final = State.READY.name
_IDLE: Final = State.IDLE.name
_CONNECTING: Final = State.CONNECTING.name
_PRIORITY: Final = "priority_experimental"
_RING_HASH: Final = "ring_hash_experimental"


def explain_pick(node: LbNode | None) -> Explanation:
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
    """Endpoints that are not connected until the hash of an RPC selects them (A42)."""
    used = [child for child in node.children if child.in_use]
    if node.policy == _RING_HASH:
        return sum(child.state in {_IDLE, _CONNECTING} for child in used)
    return sum(_count_unconnected(child) for child in used if child.state == _READY)


def why_waiting(node: LbNode) -> str:
    """Reason for queued picks: the priority that is tried, and its connections."""
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
    """Reason why a policy fails every RPC before it calls its children; empty if none does."""
    return next((each.barrier for each in used_path(node) if each.barrier), "")


def name_problems(first: str, second: str) -> str:
    """The problem that ends an RPC, and the next one."""
    if not first or not second or first in second:
        return second or first
    return f"{first}; without that: {second}"


def used_path(node: LbNode) -> Iterator[LbNode]:
    """The node, its first child in use, and so on."""
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


def count_more(number: int) -> tuple[Explanation, ...]:
    """Line for parts that are not shown, if there are any."""
    return (Explanation("more", f"and {number} more", {"count": number}),) if number else ()


def explain_node(node: LbNode) -> Explanation:
    """A policy and its children; a chain of policies with one child each is one line."""
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
    parts += count_more(len(chain[-1].children) - len(parts))
    return Explanation("lb", _describe_chain(chain), facts, parts, node.problem)


def _only_child(node: LbNode) -> LbNode | None:
    if len(node.children) != 1 or node.children[0].name not in {"", node.name}:
        return None
    return node.children[0]


def _shown(children: Sequence[LbNode]) -> Sequence[LbNode]:
    """The first children, those that are not READY before others."""
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
        # Parents include the error of their child: it is shown once.
        is_repeated = any(node.detail in step for step in steps)
        steps.append(_describe_step(node, top, "" if is_repeated else node.detail))
    chained = " > ".join(step for step in steps if step)
    text = f"{state}: {chained}" if chained else state
    return f"{top.name}: {text}" if top.name else text


def _describe_step(node: LbNode, top: LbNode, detail: str) -> str:
    noted = join_notes(node.state if node.state != top.state else "", detail)
    kind = node.policy or ("connection" if noted else "")
    return f"{kind} ({noted})" if noted else kind
