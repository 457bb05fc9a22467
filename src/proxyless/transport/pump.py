"""Pump: moves bytes between one socket and one wire connection, for clients and servers.

All output of one turn of the loop leaves in one write, unless a call is alone on its connection:
then waiting gains nothing. Alone means that no other call is under way, and none was when data was
last received, because calls that end together are often followed by new ones together.

Bytes are written to the socket directly where that is possible (see `runtime.direct_writes`).

All connections of a loop read into one buffer: asyncio uses it only within one callback.
"""

import asyncio
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final, cast

from proxyless.base.status import Status, StatusCode
from proxyless.runtime import Clock
from proxyless.runtime.direct_writes import (
    NO_DESCRIPTOR,
    direct_descriptor,
    is_closed_by_peer,
    write_directly,
)
from proxyless.wire.errors import RemoteProtocolError
from proxyless.wire.limits import COST_PER_TURN_MAX
from proxyless.wire.turns import Turns

if TYPE_CHECKING:
    from proxyless.wire.connection import Connection

READ_BUFFER_BYTES: Final = 256 * 1024
# With more unsent bytes than this in the socket's buffer, DATA waits in its stream.
WRITE_BUFFER_BYTES: Final = 256 * 1024
# How long a closed socket may take to send its last bytes.
LINGER_S: Final = 5.0


def make_read_buffer() -> memoryview:
    """The read buffer that all connections of one loop share."""
    return memoryview(bytearray(READ_BUFFER_BYTES))


def turns_of(clock: Clock) -> Turns:
    """The budget that all connections of one loop share."""
    return Turns(lambda action: clock.call_later(0, action))


class Pump(asyncio.BufferedProtocol):
    """asyncio protocol of one wire connection."""

    # Thousands of connections have no `__dict__` each, which the garbage collector would visit.
    __slots__ = (
        "_buffer",
        "_descriptor",
        "_had_other_calls",
        "_is_buffering",
        "_is_flush_due",
        "_is_lost",
        "_is_reading",
        "_is_write_broken",
        "_linger",
        "_loop",
        "_on_received",
        "_socket",
        "_turns",
        "_waiters",
        "_wire",
        "on_closed",
    )

    # Set by the subclass before `connection_made`.
    _wire: "Connection"
    # From this many pieces on, a write first checks whether the peer has closed the connection.
    _checked_pieces_min: int | float = inf

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        buffer: memoryview,
        turns: Turns,
        on_received: Callable[[], None] | None = None,
    ) -> None:
        # Fixed at construction.
        self._loop = loop
        self._buffer = buffer
        self._turns = turns
        # Called whenever bytes are received, until the connection is lost.
        self._on_received = on_received
        # Changed by the loop.
        self._socket: asyncio.Transport | None = None
        # For direct writes, while the socket is neither closing nor lost.
        self._descriptor = NO_DESCRIPTOR
        # The socket's own buffer may have bytes, which must be sent first.
        self._is_buffering = False
        # A write has failed: output is discarded.
        self._is_write_broken = False
        self._is_reading = False
        self._is_flush_due = False
        self._had_other_calls = False
        self._linger: asyncio.TimerHandle | None = None
        self._is_lost = False
        # Called once, when the socket is closed.
        self.on_closed: Callable[[], None] | None = None
        # Futures of `wait_closed`.
        self._waiters: tuple[asyncio.Future[None], ...] = ()

    # Called by the wire

    def on_output(self) -> None:
        if self._is_reading or self._socket is None:
            return
        if self._had_other_calls or len(self._wire.streams) > 1:
            # Other calls are likely to send in this turn, too.
            self._is_flush_due = True
            self._loop.call_soon(self._flush)
        else:
            self._flush()

    def _flush(self) -> None:
        self._is_flush_due = False
        outbound, socket = self._wire.outbound, self._socket
        pieces = len(outbound.output)
        # A closing socket may or may not send this, and the peer could not answer it.
        if not pieces or socket is None or self._is_write_broken or socket.is_closing():
            outbound.output.clear()
            return
        output, descriptor = outbound.take_output(), self._descriptor
        if descriptor == NO_DESCRIPTOR or (self._is_buffering and socket.get_write_buffer_size()):
            socket.write(output)
            # asyncio writes at once, and closes the socket after an error.
            if not socket.is_closing():
                self._wire.note_sent()
            return
        if pieces >= self._checked_pieces_min and is_closed_by_peer(descriptor):
            self._on_writes_broken(None)
            return
        try:
            sent = write_directly(descriptor, output)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._on_writes_broken(error)
            return
        except Exception as error:
            self._on_write_raised(error)
            return
        self._is_buffering = sent != len(output)
        if self._is_buffering:
            socket.write(memoryview(output)[sent:])
        self._wire.note_sent()

    def _on_writes_broken(self, error: OSError | None) -> None:
        self._is_write_broken = True
        # Not inside this call: it may be that of a stream that is being opened.
        self._loop.call_soon(self._on_write_error, error)

    def _on_write_error(self, error: OSError | None) -> None:
        """Abort: nothing can be sent any more. Without an error the peer closed the connection."""
        if self._socket is not None:
            self.abort(lost_by(error))

    def _on_write_raised(self, error: Exception) -> None:
        """End the connection, as asyncio's transports do: it is unknown whether bytes were sent."""
        # A signal handler may have raised it after the write: calls are not retried transparently.
        self._wire.note_sent()
        self._is_write_broken = True
        message = "writing to a connection's socket raised"
        self._loop.call_exception_handler({"message": message, "exception": error})
        self._loop.call_soon(self.abort, lost_by(error))

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._socket.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._descriptor = direct_descriptor(transport)
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        wire = self._wire
        if self._on_received is not None:
            self._on_received()
        self._had_other_calls = len(wire.streams) > 1
        # The output that these bytes cause leaves in one write at the end.
        self._is_reading = True
        try:
            wire.receive(self._buffer[:nbytes])
        except RemoteProtocolError:
            pass  # `on_broken` was called, GOAWAY is in the output, and the wire is closed.
        finally:
            self._is_reading = False
        if wire.is_closed:
            self._flush()
            self._close_socket()
        elif wire.outbound.output and not self._is_flush_due:
            self._flush()
        if wire.is_behind and self._socket is not None:
            self._socket.pause_reading()
            self._turns.defer(self._continue_receiving)

    def _continue_receiving(self) -> None:
        """Handle the frames that the last turn has left; read again after the last of them."""
        if self._socket is not None and not self._socket.is_closing():
            self.buffer_updated(0)
            # Other connections that are behind have their turns after this one.
            self._turns.left -= COST_PER_TURN_MAX
            if self._socket is not None and not self._wire.is_behind:
                self._socket.resume_reading()

    def pause_writing(self) -> None:
        self._wire.outbound.pause()

    def resume_writing(self) -> None:
        self._wire.outbound.resume()

    def eof_received(self) -> None:
        """Return None: asyncio closes the socket."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._socket = None
        if self._linger is not None:
            self._linger.cancel()
        self._on_lost(lost_by(exc))
        self._is_lost = True
        waiters, self._waiters = self._waiters, ()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        on_closed, self.on_closed = self.on_closed, None
        if on_closed is not None:
            on_closed()

    # Ends

    def _on_lost(self, status: Status) -> None:
        self._wire.lose(status)

    def close(self) -> None:
        """Send GOAWAY, end every call, close the socket after the last byte. Idempotent.

        After LINGER_S the socket is aborted.
        """
        self._wire.close()
        self._flush()
        self._close_socket()

    def abort(self, status: Status) -> None:
        """End every call and abort the socket."""
        # First, so that nothing is sent by the listeners of calls.
        socket, self._socket = self._socket, None
        self._wire.lose(status)
        if socket is not None:
            socket.abort()

    def _close_socket(self) -> None:
        if self._socket is not None and not self._socket.is_closing():
            self._abort_later(self._socket)
            self._socket.close()

    def _abort_later(self, socket: asyncio.Transport) -> None:
        if self._linger is None:
            self._linger = self._loop.call_later(LINGER_S, socket.abort)

    async def wait_closed(self) -> None:
        """Return when the socket is closed."""
        if self._is_lost:
            return
        # One future per waiter, because a shield around a shared one creates a dozen objects.
        waiter = self._loop.create_future()
        self._waiters += (waiter,)
        await waiter


def lost_by(error: Exception | None) -> Status:
    """Status of the calls of a lost connection; without an error the peer has closed it."""
    reason = "closed by peer" if error is None else str(error) or type(error).__name__
    return Status(StatusCode.UNAVAILABLE, f"connection lost: {reason}")
