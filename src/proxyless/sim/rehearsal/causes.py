"""Causes of failed RPCs: assigns one event of the script to each failure.

RPCs of one flow that fail without enough successes in between are one outage, and an outage has one
cause, whatever else happens while it lasts. The cause is the first fault during the first of these
RPCs; without one, the last event before that RPC, of any kind: a recovery can fail, too.
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

    from proxyless.sim.rehearsal.run import Rpc

# Consecutive successes that end an outage. Fewer may all have used healthy endpoints.
SUCCESSES_TO_RECOVER: Final = 10

_RECOVERIES: Final = frozenset({Fault.START, Fault.HEAL, ControlFault.START, ControlFault.HEAL})


def find_causes(rpcs: Sequence[Rpc], events: Sequence[Event]) -> Iterator[tuple[Rpc, Event | None]]:
    """Each failed RPC with its cause; None if there was no event before. Arguments by time."""
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
    for event in events:
        if rpc.started_s < event.at_s <= rpc.ended_s and _is_fault(event):
            return event
    before = (event for event in reversed(events) if event.at_s <= rpc.started_s)
    return next(before, None)


def _is_fault(event: Event) -> bool:
    """Whether the event is a fault or a push, and not the end of a fault."""
    if event.is_end:
        return False
    if isinstance(event.action, FaultAction | ControlFaultAction):
        return event.action.fault not in _RECOVERIES
    return True
