"""Attempts to connect, as `Connector.start` starts them.

PlainAttempt  without TLS and proxy: callbacks only, since thousands may start at once
TaskAttempt   all others: a task
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base import Status, StatusCode, one_line
from proxyless.runtime.tasks import create_owned_task
from proxyless.transport.client import ClientTransport

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine
    from typing import Any

    from proxyless.base import Address
    from proxyless.runtime import Network
    from proxyless.transport.client import LoopTools, TransportOptions

# Called once, when the attempt is over: with a connection that takes calls, a reason, or None
# if the attempt was cancelled.
OnDone = Callable[[ClientTransport | Status | None], None]

CANCELLED: Final = Status(StatusCode.CANCELLED, "connection attempt cancelled")


class Attempt(Protocol):
    """An attempt to connect that is under way."""

    def cancel(self) -> None:
        """End it, and close its socket. The attempt is over in one of the next turns."""


class PlainAttempt:
    """Connects without TLS and proxy, and waits for SETTINGS."""

    __slots__ = (
        "_address",
        "_cancel_connect",
        "_on_done",
        "_on_unusable",
        "_options",
        "_status",
        "_tools",
        "_transport",
        "deadline_id",
    )

    def __init__(
        self,
        tools: LoopTools,
        address: Address,
        options: TransportOptions,
        on_done: OnDone,
        on_unusable: Callable[[Status], None],
    ) -> None:
        # Fixed at construction.
        self._tools = tools
        self._address = address
        self._options = options
        # None when the attempt is over.
        self._on_done: OnDone | None = on_done
        self._on_unusable: Callable[[Status], None] | None = on_unusable
        # Set by `start`.
        self._transport: ClientTransport | None = None
        self._cancel_connect: Callable[[], None] | None = None
        # Set after SETTINGS, and when the connection is lost.
        self._status: Status | None = None
        # Written by the queue of deadlines.
        self.deadline_id = 0

    def start(self, network: Network) -> bool:
        """Start; False if the network needs a task for this address."""
        try:
            cancel = network.start_connect(self._address, self._make_transport, self._on_failed)
        except OSError as error:
            self._tools.loop.call_soon(self._on_failed, error)
        except Exception as error:
            text = _report_bug(self._tools.loop, self._address, error)
            self._tools.loop.call_soon(self._fail, text)
        else:
            if cancel is None:
                return False
            self._cancel_connect = cancel
        when_s = self._tools.clock.now_s() + self._options.connect_timeout_s
        self._tools.deadlines.expire(self, when_s)
        return True

    def _make_transport(self) -> ClientTransport:
        made = ClientTransport(self._tools, self._options, self._on_lost)
        made.address = self._address
        made.on_settled = self._on_settled
        self._transport = made
        return made

    def cancel(self) -> None:
        on_done = self._on_done
        if on_done is not None:
            self._abort(CANCELLED)
            # The attempt is over after the turn in which the socket is closed.
            self._tools.loop.call_soon(on_done, None)

    # Called by the network, the transport and the queue of deadlines

    def _on_failed(self, error: OSError) -> None:
        self._fail(describe_error(error))

    def _on_settled(self, status: Status) -> None:
        # It is not finished inside this call: the peer may end the connection in the same read.
        self._status = status
        self._tools.loop.call_soon(self._finish)

    def _on_lost(self, status: Status) -> None:
        self._status = status

    def on_deadline(self) -> None:
        # With a status, `_finish` follows in this turn: after a long turn, the deadline is first.
        if self._status is None:
            self._fail(describe_timeout(self._options))

    # Ends

    def _finish(self) -> None:
        on_done, transport, status = self._on_done, self._transport, self._status
        if on_done is None:
            return
        assert status is not None, "called by the transport"
        assert transport is not None, "called by the transport"
        if not status.is_ok:
            self._fail(status.details)
            return
        transport.on_unusable = self._on_unusable
        self._end()
        on_done(transport)

    def _fail(self, text: str) -> None:
        on_done = self._on_done
        if on_done is not None:
            status = Status(StatusCode.UNAVAILABLE, f"{self._address}: {text}")
            self._abort(status)
            on_done(status)

    def _abort(self, status: Status) -> None:
        transport, cancel_connect = self._transport, self._cancel_connect
        self._end()
        if transport is not None:
            transport.abort(status)
        if cancel_connect is not None:
            cancel_connect()

    def _end(self) -> None:
        """Drop callbacks and references: the queue may hold a cancelled deadline."""
        self._on_done = self._on_unusable = self._transport = self._cancel_connect = None
        self._tools.deadlines.cancel(self)


class TaskAttempt:
    """Calls a coroutine function that connects, in a task of its own."""

    __slots__ = ("_address", "_loop", "_on_done", "_task")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: Address,
        connect: Callable[[], Coroutine[Any, Any, ClientTransport | Status]],
        on_done: OnDone,
    ) -> None:
        self._loop = loop
        self._address = address
        self._on_done = on_done
        self._task = create_owned_task(loop, self._run(connect))
        self._task.add_done_callback(self._on_end)

    def cancel(self) -> None:
        self._task.cancel()

    async def _run(
        self, connect: Callable[[], Coroutine[Any, Any, ClientTransport | Status]]
    ) -> None:
        try:
            result = await connect()
        except Exception as error:
            # On a closed loop the error is that of cleaning up without one.
            if self._loop.is_closed():
                return
            text = _report_bug(self._loop, self._address, error)
            result = Status(StatusCode.UNAVAILABLE, f"{self._address}: {text}")
        if isinstance(result, ClientTransport) or not self._loop.is_closed():
            self._on_done(result)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._on_done(None)


def _report_bug(loop: asyncio.AbstractEventLoop, address: Address, error: Exception) -> str:
    """Report an exception to the loop, and return the reason of the failed attempt.

    Errors of the network are values, so this is a bug, or a check of the peer that raised. Without
    a status RPCs would wait for ever.
    """
    text = f"connecting raised {error!r}"
    loop.call_exception_handler({"message": f"{address}: {text}", "exception": error})
    return text


def describe_timeout(options: TransportOptions) -> str:
    return f"no connection within {options.connect_timeout_s:g} s"


def describe_error(error: Exception) -> str:
    """One line for an operator; the operating system's text if there is one."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"TLS: certificate refused: {error.verify_message}"
        case ssl.SSLError():
            # Errors of Python's own have no reason.
            return one_line(f"TLS: handshake: {getattr(error, 'reason', None) or error}")
        case OSError(errno=int(number)) if number > 0:
            # The error's own text is not used: in asyncio it is always "Connect call failed".
            return os.strerror(number).lower()
        case OSError(strerror=str(text)):
            return text.lower()
        case _:
            return one_line(str(error)) or type(error).__name__
