"""Which event made an RPC fail?

Nobody knows for certain, so there is a rule. RPCs of one kind of traffic that fail without enough
successes in between are one trouble, and a trouble has one cause, however much happens while it
lasts: a zone that is down does not fail over any faster because something else is restarted. The
cause is what was done to the mesh while the first of these RPCs was under way; if nothing was, the
last event before it, of any kind: recoveries can go wrong, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.sim.rehearsal.script import (
    ControlFault,
    ControlFaultAction,
    Event,
    Fault,
    FaultAction,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxyless.sim.rehearsal.stage import Rpc

# So many RPCs in a row that succeed end a trouble. Fewer may just have met what is not broken.
SUCCESSES_TO_RECOVER: Final = 10

_RECOVERIES: Final = frozenset({Fault.START, Fault.HEAL, ControlFault.START, ControlFault.HEAL})


def find_causes(rpcs: Sequence[Rpc], events: Sequence[Event]) -> Iterator[tuple[Rpc, Event | None]]:
    """Each RPC that failed with its cause; None if nothing had happened. Both in order of time."""
    for flow in dict.fromkeys(rpc.flow for rpc in rpcs):
        yield from _find_causes([rpc for rpc in rpcs if rpc.flow == flow], events)


def _find_causes(
    rpcs: Sequence[Rpc], events: Sequence[Event]
) -> Iterator[tuple[Rpc, Event | None]]:
    cause: Event | None = None
    successes = SUCCESSES_TO_RECOVER
    for rpc in rpcs:
        if rpc.is_ok:
            successes += 1
            continue
        if successes >= SUCCESSES_TO_RECOVER:
            cause = _find_cause(rpc, events)
        successes = 0
        yield rpc, cause


def _find_cause(rpc: Rpc, events: Sequence[Event]) -> Event | None:
    """Of the first RPC of a trouble."""
    for event in events:
        if rpc.started_s < event.at_s <= rpc.ended_s and _is_fault(event):
            return event
    before = (event for event in reversed(events) if event.at_s <= rpc.started_s)
    return next(before, None)


def _is_fault(event: Event) -> bool:
    """Whether it breaks or changes something, rather than ends what was broken."""
    if event.is_end:
        return False
    if isinstance(event.action, FaultAction | ControlFaultAction):
        return event.action.fault not in _RECOVERIES
    return True
