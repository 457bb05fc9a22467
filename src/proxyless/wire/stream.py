"""What is one call's part of the connection doing?

Specs: RFC 9113 section 5.1 (stream states), gRPC over HTTP/2.

Theory of operation. A stream ends exactly once, whoever ends it: the peer's END_STREAM or
RST_STREAM, our reset, GOAWAY, or the loss of the connection. At that moment it leaves the
connection's table, and its listener's `on_end` is the last call it gets. Sending is either direct
(the frame goes into the connection's output at once) or through a `SendQueue`, which exists only
while something waits for the peer's window. Receiving hands every complete message to the listener
within the turn in which its last byte came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from proxyless.base.status import Status, StatusCode
from proxyless.wire.errors import ErrorCode, UsageError
from proxyless.wire.flow import SendQueue
from proxyless.wire.messages import (
    PREFIX_BYTES,
    MessageAssembler,
    MessageError,
    decompress,
    pack_data_and_prefix,
    pack_prefix,
    unpack_prefix,
)
from proxyless.wire.status import StreamEnd

if TYPE_CHECKING:
    from proxyless.wire.connection import Connection

_WINDOW_EXCEEDED: Final = Status(
    StatusCode.INTERNAL, "peer sent more than the stream's window allows"
)


class StreamListener(Protocol):
    """What both roles are told about a stream. No method may raise or block."""

    def on_message(self, message: bytes) -> None: ...

    def on_writable(self) -> None:
        """Everything that waited for the peer's window is on its way."""

    def on_end(self, end: StreamEnd) -> None:
        """The stream is over; nothing follows."""


class _Nobody:
    """Listens to a stream that is over.

    Takes the place of the listener, which usually holds the stream: without the cycle both are
    freed at once, and an RPC leaves nothing to the garbage collector.
    """

    def on_head(self, head: object) -> None: ...
    def on_message(self, message: bytes) -> None: ...
    def on_half_close(self) -> None: ...
    def on_writable(self) -> None: ...
    def on_end(self, end: StreamEnd) -> None: ...


NOBODY: Final = _Nobody()


class Stream:
    """One stream of either role.

    Driven by its owner (send, hold, reset) and the connection (the peer's frames and windows).
    """

    __slots__ = (
        "_unpacked_bytes",
        "assembler",
        "connection",
        "encoding",
        "id",
        "is_ended",
        "is_held",
        "is_send_closed",
        "listener",
        "queue",
        "recv_target",
        "recv_window",
        "send_window",
        "updated_at_trip",
    )

    def __init__(self, connection: Connection, stream_id: int, listener: StreamListener) -> None:
        # Fixed at construction, but for the id of a client's stream, which it gets when opened.
        self.connection = connection
        self.id = stream_id
        self.listener = listener
        # Changed by what we send and the peer's WINDOW_UPDATE.
        self.send_window = 0
        self.queue: SendQueue | None = None
        self.is_send_closed = False
        # Changed by what we receive and by the owner's hold.
        self.recv_window = self.recv_target = connection.stream_window_bytes
        self.updated_at_trip = -1
        self.is_held = False
        # There while a message is half received, or as long as none may come.
        self.assembler = self._first_assembler
        self.is_ended = False

    # What the role's streams begin with.
    _first_assembler: ClassVar[MessageAssembler | None] = None
    # How the peer compresses messages; known with the head, before the first of them.
    encoding: str

    # Sending

    @property
    def is_writable(self) -> bool:
        """Nothing waits for the peer's window."""
        return self.queue is None

    def send_message(
        self, message: bytes, *, is_compressed: bool = False, end_stream: bool = False
    ) -> None:
        """Send one message; with `end_stream` it is the last thing this side sends."""
        if self.is_send_closed:
            raise UsageError("message sent after the sending side was closed")
        self.is_send_closed = end_stream
        size = len(message) + PREFIX_BYTES
        outbound = self.connection.outbound
        if size <= self.send_window and self.queue is None and size <= outbound.sendable_bytes:
            self.send_window -= size
            head = pack_data_and_prefix(size << 8, end_stream, self.id, is_compressed, len(message))
            outbound.send_data(size, head + message)
            return
        queue = self._queue_up()
        queue.push(pack_prefix(is_compressed, len(message)))
        queue.push(message)
        queue.is_closing = end_stream
        if self.id:
            outbound.send_queued(self)

    def _queue_up(self) -> SendQueue:
        if self.queue is None:
            self.queue = SendQueue()
        return self.queue

    def on_queue_empty(self) -> None:
        """The last byte that had to wait has left."""
        self.listener.on_writable()

    # Receiving

    def receive_data(self, data: bytes, start: int, stop: int, charged_bytes: int) -> None:
        """Take the payload data[start:stop]; padding is in `charged_bytes` only."""
        window = self.recv_window = self.recv_window - charged_bytes
        if window < self.recv_target >> 1:
            if window < 0:
                self.reset(ErrorCode.FLOW_CONTROL_ERROR, _WINDOW_EXCEEDED)
                return
            if not self.is_held:
                self.connection.replenish_stream(self)
        # Nearly always a frame holds exactly one message, and that not compressed.
        if self.assembler is None and stop - start >= PREFIX_BYTES:
            flag, length = unpack_prefix(data, start)
            if (
                start + PREFIX_BYTES + length == stop
                and not flag
                and length <= self.connection.message_bytes_max
            ):
                self.listener.on_message(data[start + PREFIX_BYTES : stop])
                return
        if start != stop:
            self._assemble(data[start:stop])

    def _assemble(self, data: bytes) -> None:
        message_bytes_max = self.connection.message_bytes_max
        assembler = self.assembler or MessageAssembler(message_bytes_max)
        try:
            for is_compressed, payload in assembler.feed(data):
                message = payload
                if is_compressed:
                    message = decompress(self.encoding, payload, message_bytes_max)
                    self._unpacked_bytes = self.unpacked_bytes + len(message) - len(payload)
                self.listener.on_message(message)
                if self.is_ended:
                    return
        except MessageError as error:
            self.refuse(error.status)
            return
        self.assembler = assembler if assembler.is_partial else None

    @property
    def unpacked_bytes(self) -> int:
        """How much longer the received messages are than they were on the wire."""
        # Set by the first message that is compressed: most streams have none.
        return getattr(self, "_unpacked_bytes", 0)

    @property
    def is_mid_message(self) -> bool:
        return self.assembler is not None and self.assembler.is_partial

    def hold(self) -> None:
        """Stop giving the peer window: the listener has more than it wants for now."""
        self.is_held = True

    def release(self) -> None:
        """Give the peer window again."""
        self.is_held = False
        if not self.is_ended and self.recv_window < self.recv_target >> 1:
            self.connection.replenish_stream(self)

    # Ending

    def refuse(self, status: Status) -> None:
        """The peer sent something this side does not take."""
        self.reset(ErrorCode.CANCEL, status)

    def reset(self, code: ErrorCode, status: Status) -> None:
        """End the stream from our side, at once. Does nothing on a stream already over."""
        if not self.is_ended:
            self.connection.reset_stream(self, code, StreamEnd(status))
