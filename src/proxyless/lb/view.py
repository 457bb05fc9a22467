"""What does a tree of policies look like now, to somebody who asks?

Every policy may have a method `describe`, and all of ours do; nothing is stored for it, so it costs
nothing until somebody asks. A policy tells its state, why it is in it, and what is below. Its name
among its siblings and the name of its kind are known to those above, who add them. A policy
without the method is shown by what those above know.
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

# From here on, a tenth of a second is not worth a digit.
_WHOLE_SECONDS_FROM: Final = 100.0


@frozen
class LbNode:
    """One policy or subchannel of a channel, and what is below it."""

    # In its parent: of a child, a cluster, an endpoint's addresses. That of the top is the target.
    name: str = ""
    # The kind of policy; empty for a subchannel.
    policy: str = ""
    # The name of a `State`; empty if there is nothing yet that could be in one.
    state: str = ""
    # Why: what failed, what it waits for and how long, what it counts.
    detail: str = ""
    children: tuple[LbNode, ...] = ()
    # What RPCs that come here now fail with; empty if they go on or wait.
    problem: str = ""
    # Whether its parent sends RPCs here, if any: not if another child is preferred, or it rests.
    in_use: bool = True
    # What ends RPCs here before anything below is asked: drops, a circuit breaker. Below may be
    # more that is wrong, and then `problem`, which is what the state comes from, says that.
    barrier: str = ""


def describe_policy(policy: Policy, kind: str) -> LbNode:
    """A policy of this kind, whether it can describe itself or not.

    `describe() -> LbNode` is called on its loop, between two other calls to it. It tells state,
    detail and children; no state if only those above know it.
    """
    # Not in the protocol: policies that applications wrote before do without.
    describe: Callable[[], LbNode] | None = getattr(policy, "describe", None)
    if describe is None:
        return LbNode(policy=kind)
    try:
        node = replace(describe(), policy=kind)
        _check_texts(node)
    except Exception as error:
        # It may be an application's own, and whoever asks has trouble enough.
        return LbNode(policy=kind, detail=f"describe raised {type(error).__name__}: {error}")
    return node


def _check_texts(node: LbNode) -> None:
    """Raise if those above could not read it."""
    for each in (node, *node.children):
        for text in (
            each.name,
            each.policy,
            each.state,
            each.detail,
            each.problem,
            each.barrier,
        ):
            if not isinstance(text, str):
                raise TypeError(f"{text!r} is {type(text).__name__}, wanted str")
        if each.state and each.state not in State.__members__:
            raise ValueError(f"state is {each.state!r}, wanted the name of a State")


def describe_subchannel(
    address: Address, state: State | None, error: Status = OK, note: str = ""
) -> LbNode:
    """One address; without a state it has no subchannel."""
    is_failing = state is State.TRANSIENT_FAILURE
    name = "" if state is None else state.name
    return LbNode(str(address), "", name, join_notes(error.details if is_failing else "", note))


def place(
    node: LbNode,
    name: str = "",
    *,
    state: State | None = None,
    failure: Status = OK,
    note: str = "",
    in_use: bool = True,
) -> LbNode:
    """The node as a child: with its name, and with what only its parent knows about it.

    The parent's word counts where the child is silent. Where they differ, both are told: a child
    that fails may try again and still count as failing.
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
    """Give the state to a node that has none, and to its first child if that has none, either."""
    if not node.state:
        children = node.children
        if children:
            children = (_fill_state(children[0], state, ""), *children[1:])
        node = replace(node, state=state.name, children=children)
    # Who has children leaves it to them to say why.
    if node.state == State.TRANSIENT_FAILURE.name == state.name and not node.children:
        node = replace(node, detail=node.detail or failure)
    return node


def annotate(node: LbNode, notes: Mapping[str, str]) -> LbNode:
    """Add to each subchannel below what somebody above knows about its address."""
    if not notes:
        return node
    children = tuple(annotate(child, notes) for child in node.children)
    note = "" if node.policy else notes.get(node.name, "")
    return replace(node, detail=join_notes(node.detail, note), children=children)


def join_notes(*notes: str) -> str:
    """All that is to be said, in one line."""
    return "; ".join(note for note in notes if note)


def name_endpoint(addresses: Iterable[Address]) -> str:
    """An endpoint is its addresses."""
    return ",".join(map(str, addresses))


def in_seconds(seconds: float) -> str:
    """A time that people read."""
    return f"{round(seconds, 0 if seconds >= _WHOLE_SECONDS_FROM else 1):g} s"


def left_s(timer: Timer, now_s: float) -> float:
    """How long a pending timer still has."""
    return max(timer.due_s - now_s, 0.0)


def wrap(child: LbNode, detail: str = "", others: tuple[LbNode, ...] = ()) -> LbNode:
    """What a policy tells that has one child and is whatever that is."""
    children = (child, *others)
    return LbNode(state=child.state, detail=detail, children=children, problem=child.problem)


def ready_addresses(node: LbNode) -> list[str]:
    """Where RPCs that come to this node now can go, in order; each address once."""
    if node.state != State.READY.name or not node.in_use:
        return []
    if not node.policy:
        return [node.name]
    return list(dict.fromkeys(each for child in node.children for each in ready_addresses(child)))
