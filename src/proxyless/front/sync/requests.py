"""Consumption of the request iterators of the blocking API, in threads and with flow control.

An application's iterator may block, so each is consumed in a thread of its own. The thread pauses
while the call is not writable: a slow server slows the iterator down.
"""

from __future__ import annotations

import logging
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Final

from proxyless.base import Status, StatusCode
from proxyless.front.conversions import serialize
from proxyless.front.sync.outcomes import Waiters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.front.conversions import Serializer
    from proxyless.front.sync.outcomes import Outcome

_LOGGER: Final = logging.getLogger("proxyless.channel")
# How far the iterator may be ahead of the loop, and the overhead that counts for each message.
_AHEAD_BYTES_MAX: Final = 64 * 1024
_OVERHEAD_BYTES: Final = 1024


class RequestFeeder:
    """Sends the requests of an iterator: takes them in a thread, sends them on the loop."""

    def __init__(
        self, outcome: Outcome, serializer: Serializer, requests: Iterable[object]
    ) -> None:
        # Fixed at construction.
        self._outcome = outcome
        self._post = outcome.binding.background.post
        self._serializer = serializer
        self._requests = requests
        # Changed by the thread only, and by the loop only.
        self._posted_bytes = 0
        self._sent_bytes = 0
        # Changed on the loop.
        self._is_writable = True
        self._waiters = Waiters()

    def start(self) -> None:
        # As in grpcio, the iterator runs with the context variables of the call.
        Thread(
            target=copy_context().run, args=(self._run,), name="proxyless-requests", daemon=True
        ).start()

    # In the thread

    def _run(self) -> None:
        try:
            is_complete = self._send_all()
        except BaseException as error:
            text = f"request iterator raised {type(error).__name__}: {error}"
            if self._outcome.fail(Status(StatusCode.UNKNOWN, text)):
                _LOGGER.exception("the request iterator of a call raised")
        else:
            if is_complete:
                self._post(self._outcome.call.close_sending)

    def _send_all(self) -> bool:
        """Return True if all requests are sent, False if the RPC has ended before."""
        outcome = self._outcome
        for request in self._requests:
            if not outcome.takes_requests:
                return False
            message = serialize(self._serializer, request)
            if isinstance(message, Status):
                outcome.fail(message)
                return False
            self._posted_bytes += len(message) + _OVERHEAD_BYTES
            self._post(partial(self._send, message))
            while not self._may_continue():
                self._waiters.wait_once(self._may_continue)
        return outcome.takes_requests

    def _may_continue(self) -> bool:
        ahead_bytes = self._posted_bytes - self._sent_bytes
        may_send = self._is_writable and ahead_bytes <= _AHEAD_BYTES_MAX
        return may_send or not self._outcome.takes_requests

    # On the loop

    def _send(self, message: bytes) -> None:
        call = self._outcome.call
        call.send_message(message)
        self._sent_bytes += len(message) + _OVERHEAD_BYTES
        self._is_writable = call.is_writable
        self._waiters.wake()

    def on_writable(self) -> None:
        self._is_writable = True
        self._waiters.wake()

    # In any thread

    def wake(self) -> None:
        """Called when the RPC has ended."""
        self._waiters.wake()
