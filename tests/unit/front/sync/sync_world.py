"""What stands on the other side of an outcome: a call and a background that only take notes."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from proxyless.base import OK, State, Status, StatusCode
from proxyless.front.conversions import Deserializer
from proxyless.front.sync.outcomes import Binding, StreamOutcome, UnaryOutcome
from proxyless.wire import StreamEnd
from tests.unit.channel.unread_world import FakeChannel

if TYPE_CHECKING:
    from proxyless.channel import Call

ENDED = StreamEnd(OK)
# As the server says it, in trailers.
LAST_WORD = StreamEnd(OK, (("t", "1"),), is_last_word=True)
FAILED = StreamEnd(Status(StatusCode.ABORTED, "not today"), (("reason", "sunday"),))


class FakeCall:
    """A call that notes what it is told. `is_writable` is the test's to change."""

    def __init__(self, channel: FakeChannel) -> None:
        self._channel = channel
        self.told: list[object] = []
        self.is_writable = True

    def start(self) -> None:
        self.told.append("start")

    def start_unary(self, message: bytes) -> None:
        self.told.append(("start", message))

    def start_failed(self, status: Status) -> None:
        self.told.append(("start failed", status.code))

    def send_message(self, message: bytes) -> None:
        self.told.append(message)

    def close_sending(self) -> None:
        self.told.append("close sending")

    def cancel(self, status: Status) -> None:
        self.told.append(status.code)

    def hold(self) -> None:
        self.told.append("hold")

    def release(self) -> None:
        self.told.append("release")

    def time_remaining_s(self) -> float | None:
        return 7.0


class FakeBackground:
    """Runs what is posted when the test says so."""

    def __init__(self) -> None:
        self.posted: deque[Callable[[], None]] = deque()
        self.is_usable = True
        self.is_left_behind = False

    def post(self, action: Callable[[], None]) -> None:
        self.posted.append(action)

    def run(self) -> None:
        while self.posted:
            self.posted.popleft()()

    def ask(self, question: Callable[[], object]) -> object:
        return question()

    def check_may_block(self) -> None:
        return


class FakeCore:
    """A channel in some state."""

    state = State.READY


class FakeCallbacks:
    """Notes the callbacks that would be run."""

    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []

    def post(self, callback: Callable[[], None]) -> None:
        self.posted.append(callback)


class OutcomeWorld:
    """One RPC, and both of its sides."""

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

    def expect_told(self, *wanted: object) -> None:
        """What the call was told since the last time."""
        self.background.run()
        assert self.call.told == list(wanted)
        self.call.told.clear()
