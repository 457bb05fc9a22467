"""InterceptedObserver: the HTTP filters of one RPC, between its call and its observer.

Specs: A39 (filters), A33 (delay and abort).

A filter may be an application's own. An exception in it ends its RPC only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from proxyless.channel.attempt import ForwardingObserver
from proxyless.channel.statuses import LOGGER, raised
from proxyless.runtime import IDLE_TIMER, Timer
from proxyless.wire import StreamEnd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.base import Metadata, Status
    from proxyless.channel.attempt import CallObserver
    from proxyless.channel.config_selector import Interception, Mirror
    from proxyless.runtime import Clock


class InterceptedCall(Protocol):
    """The methods of a call that its filters use."""

    def request_attempt(self) -> None: ...
    def request_mirrored_attempt(self, mirrors: Sequence[Mirror]) -> None: ...
    def finish(self, end: StreamEnd) -> None: ...
    def cancel(self, status: Status) -> None: ...


class InterceptedObserver(ForwardingObserver):
    """Observer that calls the filters before the application's observer."""

    def __init__(
        self, call: InterceptedCall, observer: CallObserver, interception: Interception
    ) -> None:
        self._call = call
        self._observer = observer
        self._interception = interception
        self._had_head = False
        # Pending while the RPC is delayed.
        self._timer: Timer = IDLE_TIMER

    def start(self, clock: Clock) -> None:
        """Continue the call, now or after the delay."""
        if self._interception.delay_s > 0:
            self._timer = clock.call_later(self._interception.delay_s, self._on_delay_over)
            try:
                self._interception.on_delay_start()
            except Exception as error:
                self._call.cancel(_bug(error))
        else:
            self._continue()

    def _on_delay_over(self) -> None:
        try:
            self._interception.on_delay_end()
        except Exception as error:
            self._call.cancel(_bug(error))
        else:
            self._continue()

    def _continue(self) -> None:
        if self._interception.abort is not None:
            self._call.finish(StreamEnd(self._interception.abort))
        elif self._interception.mirrors:
            self._call.request_mirrored_attempt(self._interception.mirrors)
        else:
            self._call.request_attempt()

    def on_head(self, metadata: Metadata) -> None:
        self._had_head = True
        try:
            passed_on = self._interception.on_head(metadata)
        except Exception as error:
            self._call.cancel(_bug(error))
        else:
            self._observer.on_head(passed_on)

    def on_end(self, end: StreamEnd) -> None:
        try:
            if self._timer.pending:
                self._timer.cancel()
                self._interception.on_delay_end()
            passed_on = self._interception.on_end(end, had_head=self._had_head)
        except Exception as error:
            # The application is notified of the end even so.
            passed_on = StreamEnd(_bug(error))
        self._observer.on_end(passed_on)


def _bug(error: Exception) -> Status:
    LOGGER.exception("http filter raised")
    return raised("http filter", error)
