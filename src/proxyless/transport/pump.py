"""How do the bytes of a connection get from the socket to the wire and back?

The asyncio protocol under both roles. It decides only when to write: everything that one turn of
the loop has to say leaves in one write, unless a call is alone on its connection and nothing can
be gained by waiting. Alone means that no other call is under way, and none was when the peer was
last heard: calls that were answered together are likely to be followed together. It reads into a
buffer that all connections of a loop share, because asyncio hands over and takes back the buffer
within one callback.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from proxyless.base.status import Status, StatusCode
from proxyless.wire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from proxyless.wire.connection import Connection

READ_BUFFER_BYTES: Final = 256 * 1024
# More than this unsent in the socket's buffer, and DATA waits in its stream instead.
WRITE_BUFFER_BYTES: Final = 256 * 1024
# How long a closed socket may take to send its last bytes: the peer may have stopped reading.
LINGER_S: Final = 5.0


class ReadBuffer:
    """Where every connection of one loop reads into, one at a time."""

    __slots__ = ("view",)

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BUFFER_BYTES))


class Pump(asyncio.BufferedProtocol):
    """Moves bytes between one socket and one wire connection.

    Driven by the loop (asyncio's protocol methods) and by the wire (`on_output`).
    """

    # Set by the subclass before the socket is there.
    _wire: "Connection"

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        buffer: ReadBuffer,
        on_heard: Callable[[], None] | None = None,
    ) -> None:
        # Fixed at construction. `on_heard` is called whenever there are bytes of the peer.
        self._loop = loop
        self._view = buffer.view
        self._on_heard = on_heard
        # Changed by the loop.
        self._socket: asyncio.Transport | None = None
        self._is_reading = False
        self._is_flush_due = False
        self._had_company = False
        self._linger: asyncio.TimerHandle | None = None
        self._is_lost = False
        # Of those who wait until it is lost.
        self._waiters: list[asyncio.Future[None]] = []

    # The wire has something to say

    def on_output(self) -> None:
        if self._is_reading or self._socket is None:
            return
        if self._had_company or len(self._wire.streams) > 1:
            # Others are likely to have something to send in this turn, too.
            self._is_flush_due = True
            self._loop.call_soon(self._flush)
        else:
            self._flush()

    def _flush(self) -> None:
        self._is_flush_due = False
        output, socket = self._wire.outbound.take_output(), self._socket
        # Closing, asyncio may still send what was buffered before, and this behind it: whether it
        # does cannot be known, and the peer has ended its side, so it could not answer.
        if output and socket is not None and not socket.is_closing():
            socket.write(output)
            # asyncio has tried at once, and closes if the kernel did not take it.
            if not socket.is_closing():
                self._wire.note_sent()

    # The loop has something for the wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._socket.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        wire = self._wire
        if self._on_heard is not None:
            self._on_heard()
        self._had_company = len(wire.streams) > 1
        # What the wire answers to these bytes leaves in one write at the end.
        self._is_reading = True
        try:
            wire.receive(bytes(self._view[:nbytes]))
        except RemoteProtocolError:
            pass  # `on_broken` was told, GOAWAY is in the output, and the connection is closed.
        finally:
            self._is_reading = False
        if wire.is_closed:
            self._flush()
            self._close_socket()
        elif wire.outbound.output and not self._is_flush_due:
            self._flush()

    def pause_writing(self) -> None:
        self._wire.outbound.pause()

    def resume_writing(self) -> None:
        self._wire.outbound.resume()

    def eof_received(self) -> None:
        """The peer closed its side: HTTP/2 has no use for the other half."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._socket = None
        if self._linger is not None:
            self._linger.cancel()
        reason = "closed by peer" if exc is None else str(exc) or type(exc).__name__
        self._on_lost(Status(StatusCode.UNAVAILABLE, f"connection lost: {reason}"))
        self._is_lost = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    # Ends

    def _on_lost(self, status: Status) -> None:
        self._wire.lose(status)

    def close(self) -> None:
        """Say GOAWAY, end every call, close the socket once everything is sent. Idempotent.

        A peer that does not take it in time loses the rest.
        """
        self._wire.close()
        self._flush()
        self._close_socket()

    def abort(self, status: Status) -> None:
        """The peer cannot be reached any more: end every call and drop the socket."""
        # First: nothing leaves any more, whatever those who hear of the end do.
        socket, self._socket = self._socket, None
        self._wire.lose(status)
        if socket is not None:
            socket.abort()

    def _close_socket(self) -> None:
        if self._socket is not None and self._linger is None:
            self._linger = self._loop.call_later(LINGER_S, self._socket.abort)
            self._socket.close()

    async def wait_closed(self) -> None:
        """Return when the socket is gone."""
        if self._is_lost:
            return
        # Not a shield around one future for all: that makes a dozen objects, and most connections
        # have one who waits for as long as they live.
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter
