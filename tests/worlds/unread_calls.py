"""A fake channel with real deadlines, in virtual time."""

from proxyless.base import Status
from proxyless.channel.unread_call import UnreadCall
from proxyless.runtime import DeadlineQueue, VirtualClock


class FakeChannel:
    """Cancels its RPCs when it is closed, like a channel."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.deadlines = DeadlineQueue(self.clock)
        # The stack of the channel has its clock and deadlines.
        self.stack = self
        self.calls: list[UnreadCall] = []

    def on_call_started(self, call: UnreadCall) -> None:
        self.calls.append(call)

    def on_call_ended(self, call: UnreadCall) -> None:
        self.calls.remove(call)

    def close(self, status: Status) -> None:
        for call in self.calls[:]:
            call.cancel(status)

    @property
    def is_left_alone(self) -> bool:
        """No RPC, deadline or timer is left."""
        return not self.calls and not len(self.deadlines)


class EndedCall:
    """A call that the server has ended, with or without a deadline."""

    def __init__(self, channel: FakeChannel, remaining_s: float | None = None) -> None:
        self._channel = channel
        self._remaining_s = remaining_s

    def time_remaining_s(self) -> float | None:
        return self._remaining_s
