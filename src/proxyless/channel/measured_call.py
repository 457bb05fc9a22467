"""Calls of a channel that has stats plugins.

Specs: A66 (what an attempt is, and when it begins and ends), A78 and A89 (labels of the pick), A96
(retries), A108 (custom label), A121 (delays; a draft).

A `MeasuredCall` is a `Call` whose attempts report themselves (`measured_attempt`). It reports its
own end, and the delays before its first attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from proxyless.base import EMPTY_METADATA
from proxyless.channel.call import Call
from proxyless.channel.call_attempts import Station
from proxyless.channel.call_delays import (
    CREDENTIALS,
    FILTERS,
    RESOLVING,
    Delay,
    describe_queued_pick,
    describe_unsent,
)
from proxyless.channel.measured_attempt import (
    CODE_NAMES,
    NO_LABELS,
    MeasuredAttempt,
    MeasuredTransport,
)
from proxyless.channel.statuses import CANCELLED
from proxyless.lb.api import PickInfo
from proxyless.lb.attributes import DELAY_KIND, DELAY_PRIORITY, PICK_LABELS
from proxyless.metrics.call_labels import CUSTOM_LABEL
from proxyless.wire import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.base import Metadata, Status
    from proxyless.channel.attempt import CallObserver
    from proxyless.channel.call_owner import CallOwner
    from proxyless.channel.config_selector import Interception
    from proxyless.channel.credentials import CallCredentials
    from proxyless.channel.method import Method
    from proxyless.lb.api import CallTracker, PickResult
    from proxyless.metrics import CallRecorder
    from proxyless.runtime import Clock
    from proxyless.transport import ClientTransport
    from proxyless.wire import RequestEncoder, StreamEnd

_ENDED: Final = Station.ENDED
_COMMITTED: Final = Station.COMMITTED
# By name, because `super()` creates an object. No class is between them and `MeasuredCall`.
_pick_plain: Final = Call._pick  # noqa: SLF001 - the base class
_open_plain: Final = Call._open  # noqa: SLF001 - the base class


class MeasuredCall(Call):
    """A call whose attempts are measured."""

    __slots__ = (
        "_begun",
        "_delay",
        "_has_filters",
        "_pick_labels",
        "_retry_delay_s",
        "_started_s",
        "_unpicked",
        "clock",
        "recorder",
    )

    # A class, as `Call._make_attempt`.
    _new_attempt: ClassVar[Callable[..., MeasuredAttempt]] = MeasuredAttempt

    def __init__(  # noqa: PLR0913, PLR0917 - as the base class
        self,
        channel: CallOwner,
        method: Method,
        observer: CallObserver,
        metadata: Metadata = EMPTY_METADATA,
        timeout_s: float | None = None,
        wait_for_ready: bool | None = None,
        encoding: str = IDENTITY,
    ) -> None:
        recorder = method.recorder
        assert recorder is not None, "a channel with plugins makes methods with a recorder"
        self.clock: Final[Clock] = channel.stack.clock
        # First, so that serializing the request is part of the RPC: "payload serialization should
        # be included" - A66
        self._started_s: Final = self.clock.measured_s()
        if custom := CUSTOM_LABEL.get():
            recorder = recorder.labelled(custom)
        if recorder.current_context is not None and recorder.current_context():
            recorder = recorder.in_current_context()
        self.recorder: Final[CallRecorder] = recorder
        Call.__init__(
            self, channel, method, observer, metadata, timeout_s, wait_for_ready, encoding
        )
        # Labels that policies added to the last pick.
        self._pick_labels = NO_LABELS
        # Attempts that wait for a subchannel, the oldest first; and all others.
        self._unpicked: tuple[MeasuredAttempt, ...] = ()
        self._begun: tuple[MeasuredAttempt, ...] = ()
        # Time between attempts.
        self._retry_delay_s = 0.0
        # Present while the RPC waits before its first attempt.
        self._delay: Delay | None = None
        # The end of the RPC is reported by a `MeasuredObserver`.
        self._has_filters = False

    # Delays of the call

    def _request_credentials(self, credentials: CallCredentials) -> None:
        super()._request_credentials(credentials)
        if self.station is Station.CREDENTIALS:
            self._start_delay(CREDENTIALS)

    def on_credentials(self, found: Metadata | Status) -> None:
        self._end_delay()
        super().on_credentials(found)

    def _wait_for_selector(self) -> None:
        super()._wait_for_selector()
        if self._delay is None and not self.is_ended:
            self._start_delay(RESOLVING)

    def _intercept(self, interception: Interception) -> None:
        self._end_delay()
        # Filters may change the status, and the RPC is measured as the application gets it.
        self._has_filters = True
        self.observer = MeasuredObserver(self.observer, self)
        super()._intercept(interception)
        if self.station is Station.FILTERS:
            self._start_delay(FILTERS)

    def request_attempt(self) -> None:
        self._end_delay()
        super().request_attempt()

    def _start_delay(self, kind: str) -> None:
        self._delay = Delay((kind, ""), self.clock, self.recorder.on_call_delay)

    def _end_delay(self) -> None:
        if self._delay is not None:
            delay, self._delay = self._delay, None
            delay.end()

    # Attempts

    def _pick(self) -> None:
        if self._delay is not None:
            self._end_delay()
        # "Attempts are created after name resolution … but before the LB pick" - A66
        while len(self._unpicked) < self._attempts_wanted:
            attempt = self._new_attempt(self)
            if self._begun:
                self._note_retry(attempt)
            self._unpicked += (attempt,)
            self.recorder.on_attempt_start()
        method, info = self._method, self._info
        assert info is not None, "an RPC is picked for after it was selected"
        if info is method.plain_info:
            if info is not method.unlabelled_info:
                # The next RPC is likely to have the same attributes.
                method.unlabelled_info, method.labelled_info = info, self._add_labels(info)
            self._info = method.labelled_info
        elif info.attributes.get(PICK_LABELS) is None:
            self._info = self._add_labels(info)
        if method.pick_labels or self._pick_labels:
            self._share_labels()
        _pick_plain(self)

    def _add_labels(self, info: PickInfo) -> PickInfo:
        attributes = info.attributes.with_(PICK_LABELS, self._method.pick_labels)
        return PickInfo(info.path, info.metadata, attributes)

    def _share_labels(self) -> None:
        """Give the picker the labels of this call, in the dict that all calls of a method share.

        A pick does not await, and its result is read at once (`_take_labels`).
        """
        shared = self._method.pick_labels
        if shared:
            shared.clear()
        if self._pick_labels:
            shared.update(self._pick_labels)

    def _take_labels(self) -> Mapping[str, str]:
        """The labels of the pick that has just returned."""
        shared = self._method.pick_labels
        if shared:
            labels = self._pick_labels = dict(shared)
            # The next pick may have other labels of delays.
            labels.pop(DELAY_KIND, None)
            labels.pop(DELAY_PRIORITY, None)
        return self._pick_labels

    def _note_retry(self, attempt: MeasuredAttempt) -> None:
        # The labels are those of the previous attempt.
        self._pick_labels = NO_LABELS
        ends_s = [each.ended_s for each in self._begun if each.ended_s is not None]
        if len(ends_s) == len(self._begun) and not self._unpicked:
            # "Total time of delay while there is no active attempt" - A96
            self._retry_delay_s += attempt.began_s - max(ends_s)

    def _make_attempt(self, _call: Call) -> MeasuredAttempt:
        attempt, self._unpicked = self._unpicked[0], self._unpicked[1:]
        self._begun += (attempt,)
        return attempt

    def _open(
        self, transport: ClientTransport, tracker: CallTracker | None, encoder: RequestEncoder
    ) -> None:
        attempt = self._unpicked[0]
        # "the last pick's value should be used" - A89: of this attempt, not of the next one.
        if self._method.pick_labels:
            attempt.pick_labels = self._take_labels()
        if attempt.was_delayed:
            attempt.end_delay()
        request = self._request
        messages = request.messages
        if request.is_half_closed and len(messages) == 1 and request.encoding == IDENTITY:
            _open_plain(self, transport, tracker, encoder)
            # A stream that has ended by now has sent nothing.
            if attempt.ended_s is None:
                assert attempt.stream is not None, "an attempt without an end has a stream"
                attempt.sent_bytes = len(messages[0])
                attempt.queue = attempt.stream.queue
        else:
            measured: Any = MeasuredTransport(transport)
            _open_plain(self, measured, tracker, encoder)
        if attempt.queue is not None and attempt.ended_s is None:
            stream = attempt.wire_stream
            assert stream is not None, "messages wait in a stream"
            if (cause := describe_unsent(stream)) is not None:
                attempt.start_delay(cause)
        if self._attempts_wanted:
            # The transport may have called code that started another RPC.
            self._share_labels()

    def _queue(self, result: PickResult) -> None:
        cause = describe_queued_pick(result, self._method.pick_labels)
        self._take_labels()
        super()._queue(result)
        for attempt in self._unpicked:
            attempt.start_delay(cause)

    def _drop(self, status: Status) -> None:
        self._take_labels()
        super()._drop(status)

    def _on_failure(self, end: StreamEnd) -> None:
        # There is one more than requested if its pick failed.
        if len(self._unpicked) > self._attempts_wanted:
            self._take_labels()
            attempt, self._unpicked = self._unpicked[0], self._unpicked[1:]
            self._end_unpicked(attempt, end.status)
        super()._on_failure(end)

    def _release_call(self) -> None:
        super()._release_call()
        if self._unpicked and self.station is _COMMITTED:
            self._end_all_unpicked(CANCELLED)

    # The end

    def cancel(self, status: Status = CANCELLED) -> None:
        if not self.is_ended:
            # First, so that the application finds the attempts counted at the end of its RPC.
            self._end_all(status)
        super().cancel(status)

    def finish(self, end: StreamEnd) -> None:
        if self.station is not _ENDED:
            # The attempt that ended the RPC has reported already.
            if self._unpicked or len(self._begun) != 1 or self._begun[0].ended_s is None:
                self._end_all(CANCELLED)
            # They refer to the call.
            self._begun = ()
            if self._delay is not None:
                self._end_delay()
            if not self._has_filters:
                duration_s = self.clock.measured_s() - self._started_s
                self.recorder.on_call_end(CODE_NAMES[end.status.code], duration_s)
        Call.finish(self, end)

    def end_unstarted(self, end: StreamEnd) -> None:
        self.record_end(end)
        super().end_unstarted(end)

    def record_end(self, end: StreamEnd) -> None:
        duration_s = self.clock.measured_s() - self._started_s
        self.recorder.on_call_end(CODE_NAMES[end.status.code], duration_s)

    def _end_all(self, status: Status) -> None:
        attempts = len(self._begun) + len(self._unpicked)
        if attempts > 1:
            self._record_retries(attempts)
        self._end_all_unpicked(status)
        begun, self._begun = self._begun, ()
        for attempt in begun:
            attempt.end(status)

    def _end_all_unpicked(self, status: Status) -> None:
        unpicked, self._unpicked = self._unpicked, ()
        for attempt in unpicked:
            self._end_unpicked(attempt, status)

    def _end_unpicked(self, attempt: MeasuredAttempt, status: Status) -> None:
        attempt.pick_labels = self._pick_labels
        attempt.end(status)
        self._begun += (attempt,)

    def _record_retries(self, attempts: int) -> None:
        transparent = self._transparent_retries.count
        others = attempts - 1 - transparent
        is_hedging = self._strategy is not None and self._strategy.is_hedging
        self.recorder.on_retried_call_end(
            retries=0 if is_hedging else others,
            transparent_retries=transparent,
            hedges=others if is_hedging else 0,
            # A transparent retry has no delay but that of our own code.
            delay_s=self._retry_delay_s if others else 0.0,
        )


class MeasuredObserver:
    """Reports the end of a call with HTTP filters, as the application gets it after them."""

    __slots__ = ("_call", "_observer", "choose_unpacking", "on_head", "on_message", "on_writable")

    def __init__(self, observer: CallObserver, call: MeasuredCall) -> None:
        self._observer: Final = observer
        self._call: Final = call
        self.on_head: Final = observer.on_head
        self.choose_unpacking: Final = observer.choose_unpacking
        self.on_message: Final = observer.on_message
        self.on_writable: Final = observer.on_writable

    def on_end(self, end: StreamEnd) -> None:
        self._call.record_end(end)
        self._observer.on_end(end)
