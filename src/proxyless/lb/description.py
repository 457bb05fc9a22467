"""Description of a policy tree as `LbNode` values.

A policy may have a method `describe`, which computes its node on demand: nothing is stored for it.
The node contains the policy's state, the reason and the children. The parent adds the name and the
kind, and it describes a policy without `describe` from its last report.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxyless.base import OK, State, Status
from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from proxyless.base import Address
    from proxyless.lb.api import Policy
    from proxyless.runtime import Timer

# Longer times are rounded to whole seconds.
_WHOLE_SECONDS_FROM: Final = 100.0


@frozen
class LbNode:
    """One policy or subchannel, and its children."""

    # The name in the parent: a child's name, a cluster, or addresses. At the top, the target.
    name: str = ""
    # The kind of policy; empty for a subchannel.
    policy: str = ""
    # The name of a `State`; empty if there is none yet.
    state: str = ""
    # The reason for the state: the last error, a pending timer, counts.
    detail: str = ""
    children: tuple[LbNode, ...] = ()
    # The error of RPCs that are picked here now; empty if they are sent or queued.
    problem: str = ""
    # False if the parent sends no RPCs here: it prefers another child, or deactivated this one.
    in_use: bool = True
    # The error of RPCs that fail here before a child picks: drops, or a circuit breaker. `problem`
    # is then the error of the state, which may have another reason.
    barrier: str = ""


def describe_policy(policy: Policy, kind: str) -> LbNode:
    """Describe a policy of this kind, with or without its `describe`.

    `describe() -> LbNode` is called on the policy's loop, never inside another call to it. It sets
    state, detail and children; the state may be left empty.
    """
    # Not in the protocol, because policies of applications may lack it.
    describe: Callable[[], LbNode] | None = getattr(policy, "describe", None)
    if describe is None:
        return LbNode(policy=kind)
    try:
        node = replace(describe(), policy=kind)
        _check_texts(node)
    except Exception as error:
        # The policy may be an application's: its bug must not hide the rest of the tree.
        return LbNode(policy=kind, detail=f"describe raised {type(error).__name__}: {error}")
    return node


def _check_texts(node: LbNode) -> None:
    """Raise if a field of the node or of its children has a wrong type or value."""
    for each in (node, *node.children):
        texts = (each.name, each.policy, each.state, each.detail, each.problem, each.barrier)
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"{text!r} is {type(text).__name__}, wanted str")
        if each.state and each.state not in State.__members__:
            raise ValueError(f"state is {each.state!r}, wanted the name of a State")


def describe_subchannel(
    address: Address, state: State | None, error: Status = OK, note: str = ""
) -> LbNode:
    """Describe one address; `state` is None if it has no subchannel."""
    is_failing = state is State.TRANSIENT_FAILURE
    name = "" if state is None else state.name
    return LbNode(str(address), "", name, join_notes(error.details if is_failing else "", note))


def as_child(
    node: LbNode,
    name: str = "",
    *,
    state: State | None = None,
    failure: Status = OK,
    note: str = "",
    in_use: bool = True,
) -> LbNode:
    """Add the name, and the state and note that the parent holds, to the node of a child.

    The parent's state fills in a missing one. If the two differ, the description has both: a child
    that connects again after a failure may still count as failing.
    """
    problem = node.problem
    if state is not None:
        node = _fill_state(node, state, failure.details)
        if node.state != state.name:
            note = join_notes(f"counts as {state.name}", failure.details, note)
        if state is State.TRANSIENT_FAILURE:
            problem = failure.details or problem or node.detail
    detail = join_notes(node.detail, note)
    return replace(node, name=name, detail=detail, problem=problem, in_use=in_use)


def _fill_state(node: LbNode, state: State, failure: str) -> LbNode:
    """Set a missing state of a node, and of its first child, and so on."""
    if not node.state:
        children = node.children
        if children:
            children = (_fill_state(children[0], state, ""), *children[1:])
        node = replace(node, state=state.name, children=children)
    # A node with children has the reason in its children.
    if node.state == State.TRANSIENT_FAILURE.name == state.name and not node.children:
        node = replace(node, detail=node.detail or failure)
    return node


def annotate(node: LbNode, notes: Mapping[str, str]) -> LbNode:
    """Add notes to the subchannels below the node, by address."""
    if not notes:
        return node
    children = tuple(annotate(child, notes) for child in node.children)
    note = "" if node.policy else notes.get(node.name, "")
    return replace(node, detail=join_notes(node.detail, note), children=children)


def join_notes(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def endpoint_name(addresses: Iterable[Address]) -> str:
    return ",".join(map(str, addresses))


def format_seconds(seconds: float) -> str:
    return f"{round(seconds, 0 if seconds >= _WHOLE_SECONDS_FROM else 1):g} s"


def format_time_left(timer: Timer, now_s: float) -> str:
    """Return the remaining time of a pending timer."""
    return format_seconds(max(timer.due_s - now_s, 0.0))


def wrap(child: LbNode, detail: str = "", others: tuple[LbNode, ...] = ()) -> LbNode:
    """Describe a policy that has the state of its one child."""
    children = (child, *others)
    return LbNode(state=child.state, detail=detail, children=children, problem=child.problem)


def ready_addresses(node: LbNode) -> list[str]:
    """Return the addresses that RPCs picked at this node can be sent to, without duplicates."""
    if node.state != State.READY.name or not node.in_use:
        return []
    if not node.policy:
        return [node.name]
    return list(dict.fromkeys(each for child in node.children for each in ready_addresses(child)))
