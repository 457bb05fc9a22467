"""What can still happen to an RPC that the server has ended, while its responses are not read?

For the core such an RPC is over: its stream has ended, and nothing of it is kept. For the
application it is under way until it has read everything, so its deadline may pass and its channel
may be closed meanwhile. A front that keeps the end back has that looked after here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.channel.statuses import DEADLINE_EXCEEDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.base import Status
    from proxyless.channel.call import Call
    from proxyless.channel.call_owner import CallOwner


class Unread:
    """An RPC that waits for its reader. Driven by its front, its deadline and its channel."""

    __slots__ = ("_channel", "_on_cut", "deadline_id")

    def __init__(self, channel: CallOwner, on_cut: Callable[[Status], None]) -> None:
        self._channel = channel
        self._on_cut: Callable[[Status], None] | None = on_cut
        self.deadline_id = 0
        channel.on_call_started(self)

    def expire(self, remaining_s: float) -> None:
        """End it after this time."""
        stack = self._channel.stack
        stack.deadlines.expire(self, stack.clock.now_s() + remaining_s)

    def on_deadline(self) -> None:
        """The time is up."""
        self.cancel(DEADLINE_EXCEEDED)

    def cancel(self, status: Status) -> None:
        """End it with this status; the front is told. Void after its end."""
        on_cut = self._on_cut
        self.forget()
        if on_cut is not None:
            on_cut(status)

    def forget(self) -> None:
        """It has ended. Idempotent."""
        if self._on_cut is not None:
            # The queue of deadlines may remember this for long, and need not remember the front.
            self._on_cut = None
            self._channel.stack.deadlines.forget(self)
            self._channel.on_call_ended(self)


def await_reader(call: Call, on_cut: Callable[[Status], None]) -> Unread:
    """Call back if something ends this call, which the server has ended, before it is read.

    It may be the deadline of the call, or whoever closes the channel. The front forgets the result
    when everything is read.
    """
    # Asked for few calls; each attribute that a call makes public is one to keep for all.
    unread = Unread(call._channel, on_cut)  # noqa: SLF001
    remaining_s = call.time_remaining_s()
    if remaining_s is not None:
        unread.expire(remaining_s)
    return unread
