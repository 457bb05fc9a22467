"""Queue of the RPCs of a channel whose pick was queued, and the picker that they use next.

Specs: A31-10 (an RPC is selected once and picked for again with each new picker).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from proxyless.base import OK, Status
from proxyless.lb.pickers import QUEUE_PICKER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.lb.api import Picker


class QueuedCall(Protocol):
    """The methods of a call that waits for a picker or a selector."""

    @property
    def is_ended(self) -> bool: ...

    def advance(self) -> None:
        """Pick or select; the call adds itself again if need be."""

    def on_bug(self, source: str, error: Exception) -> None:
        """End the RPC, because code that it depends on has raised."""


class PickQueue:
    """The current picker, and the RPCs that wait for the next one."""

    __slots__ = ("calls", "picker")

    def __init__(self) -> None:
        self.picker: Picker = QUEUE_PICKER
        # In the order of their first pick, each with the failure of its last one, or OK.
        self.calls: dict[QueuedCall, Status] = {}

    def add(self, call: QueuedCall, failure: Status = OK) -> None:
        self.calls[call] = failure

    def remove(self, call: QueuedCall) -> None:
        """Idempotent."""
        self.calls.pop(call, None)

    def pick_all(self) -> None:
        """Pick for every queued RPC with the current picker."""
        calls, self.calls = self.calls, {}
        advance_all(calls)


def advance_all(calls: Iterable[QueuedCall]) -> None:
    """Advance each RPC that has not ended. An exception ends only its own RPC."""
    for call in calls:
        if not call.is_ended:
            try:
                call.advance()
            except Exception as error:
                call.on_bug("channel", error)
