"""How does an iterator of requests get onto the wire?

An application's iterator may block, so it is consumed in a thread of its own. The next request is
taken only while those before it are on their way: a slow server slows the iterator down.
"""

from __future__ import annotations

import logging
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
# How far the iterator may be ahead of the loop, and what a message counts at least.
_AHEAD_BYTES_MAX: Final = 64 * 1024
_MESSAGE_BYTES: Final = 1024


class RequestFeeder:
    """Sends what an iterator gives. Driven by its thread and, for what is sent, by the loop."""

    def __init__(
        self, outcome: Outcome, serializer: Serializer, requests: Iterable[object]
    ) -> None:
        # Fixed at construction.
        self._outcome = outcome
        self._post = outcome.binding.background.post
        self._serializer = serializer
        self._requests = requests
        # The thread counts what it posts, the loop what it sends: each changes only its own.
        self._posted_bytes = 0
        self._sent_bytes = 0
        # Changed on the loop: more can be sent without piling up.
        self._is_writable = True
        self._waiters = Waiters()

    def start(self) -> None:
        Thread(target=self._run, name="proxyless-requests", daemon=True).start()

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
        """True if all requests are sent, False if the RPC was over before."""
        outcome = self._outcome
        for request in self._requests:
            if not outcome.takes_requests:
                return False
            message = serialize(self._serializer, request)
            if isinstance(message, Status):
                outcome.fail(message)
                return False
            self._posted_bytes += len(message) + _MESSAGE_BYTES
            self._post(partial(self._send, message))
            while not self._may_go_on():
                self._waiters.wait_once(self._may_go_on)
        return outcome.takes_requests

    def _may_go_on(self) -> bool:
        ahead_bytes = self._posted_bytes - self._sent_bytes
        is_free = self._is_writable and ahead_bytes <= _AHEAD_BYTES_MAX
        return is_free or not self._outcome.takes_requests

    # On the loop

    def _send(self, message: bytes) -> None:
        call = self._outcome.call
        call.send_message(message)
        self._sent_bytes += len(message) + _MESSAGE_BYTES
        self._is_writable = call.is_writable
        self._waiters.wake()

    def on_writable(self) -> None:
        self._is_writable = True
        self._waiters.wake()

    # In any thread

    def wake(self) -> None:
        """The RPC is over."""
        self._waiters.wake()
