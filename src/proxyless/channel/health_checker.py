"""Who asks one backend for the health of one service, and again if need be?

Specs: A17. What an answer means, and when to ask again, is decided by `health`; who wants to know
is the business of `health_watch`. Imported with the first question: most channels ask none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import State, Status, StatusCode, one_line
from proxyless.channel.health import (
    Answered,
    Ask,
    Disconnected,
    Ended,
    Health,
    HealthBackoffOver,
    HealthConnected,
    Phase,
    Stop,
    Wait,
    decode_answer,
    encode_question,
)
from proxyless.channel.health_watch import WATCH_PATH
from proxyless.channel.statuses import LOGGER
from proxyless.runtime import IDLE_TIMER, Timer
from proxyless.wire import RequestEncoder

if TYPE_CHECKING:
    from proxyless.base import Metadata
    from proxyless.channel.connection import SubchannelTools
    from proxyless.channel.credentials import Withdraw
    from proxyless.channel.health import Effect, Event
    from proxyless.channel.health_watch import HealthWatch, Question
    from proxyless.channel.subchannel import Subchannel
    from proxyless.transport import ClientTransport
    from proxyless.wire import ClientStream, ResponseBlock, StreamEnd

_NOT_WANTED: Final = Status(StatusCode.CANCELLED, "health is not wanted any more")


class HealthChecker:
    """Asks one backend one question, and tells all who want to know.

    Driven by the subchannel, which it observes, by its stream and by the backoff timer.
    """

    # The handles that it checks for have holders of their own.
    holder: object = None

    def __init__(self, subchannel: Subchannel, question: Question, tools: SubchannelTools) -> None:
        # Fixed at construction.
        self.subchannel: Final = subchannel
        self.question: Final = question
        self._tools = tools
        self._encoder = RequestEncoder(
            path=WATCH_PATH,
            authority=question.authority,
            scheme=question.scheme,
            user_agent=question.user_agent,
        )
        # Changed by the methods below only.
        self._health = Health(subchannel.address, question.service, tools.random)
        self._watches: dict[HealthWatch, None] = {}
        self._transport: ClientTransport | None = None
        self._stream: _WatchStream | None = None
        # Pending while a stream is about to be opened, now or after a backoff.
        self._timer: Timer = IDLE_TIMER

    @property
    def latest(self) -> tuple[State, Status]:
        return self._health.state, self._health.status

    @property
    def is_watched(self) -> bool:
        return bool(self._watches)

    def add(self, watch: HealthWatch) -> None:
        self._watches[watch] = None

    def remove(self, watch: HealthWatch) -> None:
        del self._watches[watch]

    def start(self) -> None:
        subchannel = self.subchannel
        subchannel.add_observer(self)
        self.on_change(subchannel.state, subchannel.status, subchannel.transport)

    def close(self) -> None:
        """Nobody wants to know any more."""
        self.subchannel.remove_observer(self)
        self._stop()

    # What the subchannel says

    def on_change(self, state: State, status: Status, transport: ClientTransport | None) -> None:
        self._transport = transport
        self._step(Disconnected(state, status) if transport is None else HealthConnected())

    # What the stream says

    def on_answer(self, stream: _WatchStream, message: bytes) -> None:
        if stream is self._stream:
            self._step(Answered(decode_answer(message)))

    def on_end(self, stream: _WatchStream, status: Status) -> None:
        if stream is self._stream:
            self._stream = None
            self._step(Ended(status, self._tools.clock.now_s()))
            if self._health.phase is Phase.UNCHECKED:
                # "It will also log a message at priority ERROR" - A17
                text = "%s does not know health checking, so it counts as healthy: %s"
                LOGGER.error(text, self.subchannel.address, one_line(status.details))

    # Enacting

    def _step(self, event: Event) -> None:
        before = self.latest
        effect = self._health.step(event)
        # First, so that a state that the effect ends soon is told before.
        if self.latest != before:
            self._publish()
        if effect is not None:
            self._enact(effect)

    def _enact(self, effect: Effect) -> None:
        match effect:
            case Ask():
                # Soon: this may be inside a call of a policy, or the end of the last stream.
                self._timer = self._tools.clock.call_later(0, self._ask)
            case Wait(delay_s):
                self._stop()
                self._timer = self._tools.clock.call_later(delay_s, self._on_backoff_over)
            case Stop():
                self._stop()

    def _publish(self) -> None:
        state, status = self.latest
        trace = self._tools.trace
        if trace.active:
            where, service = self.subchannel.address, self.question.service
            trace.emit("health.state", address=where, service=service, state=state, status=status)
        for watch in self._watches:
            watch.on_change()

    def _ask(self) -> None:
        assert self._transport is not None, "the timer ends with the connection"
        self._stream = _WatchStream(self)
        self._stream.open(self._transport, self._encoder)

    def _stop(self) -> None:
        self._timer.cancel()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    def _on_backoff_over(self) -> None:
        self._step(HealthBackoffOver())


class _WatchStream:
    """One call of the backend's `Watch`. Driven by the call credentials and the wire."""

    __slots__ = ("_is_cancelled", "_owner", "_stream", "_withdraw")

    def __init__(self, owner: HealthChecker) -> None:
        self._owner: Final = owner
        self._is_cancelled = False
        self._stream: ClientStream | None = None
        # What spares call credentials the work, if they did not answer at once.
        self._withdraw: Withdraw | None = None

    def open(self, transport: ClientTransport, encoder: RequestEncoder) -> None:
        question = self._owner.question

        def on_metadata(found: Metadata | Status) -> None:
            if self._is_cancelled:
                return
            if isinstance(found, Status):
                self._owner.on_end(self, found)
                return
            message = encode_question(question.service)
            self._stream = transport.open_unary(encoder.block(metadata=found), self, message)

        if question.credentials is None:
            on_metadata(())
        else:
            request = question.credentials.request
            self._withdraw = request(question.service_url, WATCH_PATH, on_metadata)

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._stream is not None:
            self._stream.cancel(_NOT_WANTED)
        elif self._withdraw is not None:
            self._withdraw()

    # What the wire says

    def on_head(self, head: ResponseBlock) -> None:
        return

    def on_message(self, message: bytes) -> None:
        self._owner.on_answer(self, message)

    def on_writable(self) -> None:
        return

    def on_end(self, end: StreamEnd) -> None:
        self._owner.on_end(self, end.status)
