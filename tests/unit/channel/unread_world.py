"""A channel of which nothing is real but its deadlines, in virtual time."""

from proxyless.base import Status
from proxyless.channel.unread import Unread
from proxyless.runtime import DeadlineQueue, VirtualClock


class FakeChannel:
    """Knows its RPCs and cancels them when it is closed, as a channel does."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.deadlines = DeadlineQueue(self.clock)
        # A channel's clock and deadlines are those of its loop.
        self.stack = self
        self.calls: list[Unread] = []

    def on_call_started(self, call: Unread) -> None:
        self.calls.append(call)

    def on_call_ended(self, call: Unread) -> None:
        self.calls.remove(call)

    def close(self, status: Status) -> None:
        for call in self.calls[:]:
            call.cancel(status)

    @property
    def is_left_alone(self) -> bool:
        """Nothing of any RPC is left here."""
        return not self.calls and not len(self.deadlines)


class EndedCall:
    """A call that the server has ended. It had a deadline, if time remains."""

    def __init__(self, channel: FakeChannel, remaining_s: float | None = None) -> None:
        self._channel = channel
        self._remaining_s = remaining_s

    def time_remaining_s(self) -> float | None:
        return self._remaining_s
