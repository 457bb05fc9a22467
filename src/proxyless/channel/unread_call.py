"""UnreadCall: an RPC that the server has ended, with responses that are not read yet.

`Call` is over then, but for the application the RPC is under way until it has read everything: its
deadline may pass, and its channel may be closed. A front that delays the end tracks the RPC here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.channel.statuses import DEADLINE_EXCEEDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.base import Status
    from proxyless.channel.call import Call
    from proxyless.channel.call_owner import CallOwner


class UnreadCall:
    """An active call of its channel, until its deadline, a cancellation or `close`."""

    __slots__ = ("_channel", "_on_cut", "deadline_id")

    def __init__(
        self, channel: CallOwner, on_cut: Callable[[Status], None], remaining_s: float | None
    ) -> None:
        self._channel = channel
        self._on_cut: Callable[[Status], None] | None = on_cut
        self.deadline_id = 0
        channel.on_call_started(self)
        if remaining_s is not None:
            stack = channel.stack
            stack.deadlines.expire(self, stack.clock.now_s() + remaining_s)

    def on_deadline(self) -> None:
        self.cancel(DEADLINE_EXCEEDED)

    def cancel(self, status: Status) -> None:
        """End it with this status and call `on_cut`. No-op after its end."""
        on_cut = self._on_cut
        self.close()
        if on_cut is not None:
            on_cut(status)

    def close(self) -> None:
        """Stop tracking: everything is read. Idempotent."""
        if self._on_cut is not None:
            # The deadline queue may hold this object for long, and must not hold the front.
            self._on_cut = None
            self._channel.stack.deadlines.cancel(self)
            self._channel.on_call_ended(self)


def track_unread(call: Call, on_cut: Callable[[Status], None]) -> UnreadCall:
    """Call `on_cut` if the deadline of this ended call passes or its channel is closed.

    The front closes the result when everything is read.
    """
    return UnreadCall(call._channel, on_cut, call.time_remaining_s())  # noqa: SLF001
