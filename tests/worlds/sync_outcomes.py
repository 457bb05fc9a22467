"""Helpers for tests of outcomes: a call and a background that record."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from proxyless.base import OK, State, Status, StatusCode
from proxyless.front.conversions import Deserializer
from proxyless.front.sync.outcomes import Binding, StreamOutcome, UnaryOutcome
from proxyless.wire import StreamEnd
from tests.worlds.unread_calls import FakeChannel

if TYPE_CHECKING:
    from proxyless.channel import Call

ENDED = StreamEnd(OK)
# From the trailers of the server.
END_FROM_TRAILERS = StreamEnd(OK, (("t", "1"),), is_from_trailers=True)
FAILED = StreamEnd(Status(StatusCode.ABORTED, "not today"), (("reason", "sunday"),))


class FakeCall:
    """A call that records its calls. Tests change `is_writable`."""

    def __init__(self, channel: FakeChannel) -> None:
        self._channel = channel
        self.calls: list[object] = []
        self.is_writable = True
        # The end behind unread responses, and what a request for one of them does.
        self.undelivered_end: StreamEnd | None = None
        self.on_request: Callable[[], None] = lambda: None

    def start(self) -> None:
        self.calls.append("start")

    def start_unary(self, message: bytes) -> None:
        self.calls.append(("start", message))

    def start_failed(self, status: Status) -> None:
        self.calls.append(("start failed", status.code))

    def send_message(self, message: bytes) -> None:
        self.calls.append(message)

    def close_sending(self) -> None:
        self.calls.append("close sending")

    def cancel(self, status: Status) -> None:
        self.calls.append(status.code)

    def hold(self) -> None:
        self.calls.append("hold")

    def release(self) -> None:
        self.calls.append("release")

    def request_message(self) -> None:
        self.calls.append("request")
        self.on_request()

    def time_remaining_s(self) -> float | None:
        return 7.0


class FakeBackground:
    """Runs posted actions when the test calls `run`."""

    def __init__(self) -> None:
        self.posted: deque[Callable[[], None]] = deque()
        self.is_usable = True
        self.is_abandoned = False

    def post(self, action: Callable[[], None]) -> None:
        self.posted.append(action)

    def run(self) -> None:
        while self.posted:
            self.posted.popleft()()

    def call(self, function: Callable[[], object]) -> object:
        return function()

    def check_may_block(self) -> None:
        return


class FakeCore:
    """A core with a state."""

    state = State.READY


class FakeCallbacks:
    """Records posted callbacks."""

    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []

    def post(self, callback: Callable[[], None]) -> None:
        self.posted.append(callback)


class OutcomeWorld:
    """One RPC, with a fake call and a fake background."""

    def __init__(self) -> None:
        self.background = FakeBackground()
        self.callbacks = FakeCallbacks()
        self.core = FakeCore()
        self.channel = FakeChannel()
        self.call = FakeCall(self.channel)
        self._binding = cast("Binding", self)

    def unary(self, deserializer: Deserializer = None) -> UnaryOutcome:
        outcome = UnaryOutcome(self._binding, deserializer, None)
        outcome.call = cast("Call", self.call)
        return outcome

    def stream(self, deserializer: Deserializer = None) -> StreamOutcome:
        outcome = StreamOutcome(self._binding, deserializer, None)
        outcome.call = cast("Call", self.call)
        return outcome

    def expect_calls(self, *expected: object) -> None:
        """The methods of the call that were called since the last time."""
        self.background.run()
        assert self.call.calls == list(expected)
        self.call.calls.clear()
