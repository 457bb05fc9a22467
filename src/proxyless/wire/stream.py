"""What is one call's part of the connection doing?

Specs: RFC 9113 section 5.1 (stream states), gRPC over HTTP/2.

Theory of operation. A stream ends exactly once, whoever ends it: the peer's END_STREAM or
RST_STREAM, our reset, GOAWAY, or the loss of the connection. At that moment it leaves the
connection's table, and its listener's `on_end` is the last call it gets. Sending is either direct
(the frame goes into the connection's output at once) or through a `SendQueue`, which exists only
while something waits for the peer's window. Receiving hands every complete message to the listener
within the turn in which its last byte came.

Streams with compressed messages are the exception: while their owner holds them, what comes is kept
as it came (`HeldMessages` in the place of the assembler) and unpacked when they are released. If
the peer's last word comes behind that, the stream is over for the connection, but its listener
hears of the end where it belongs: after the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from proxyless.base.status import Status, StatusCode
from proxyless.wire.errors import ErrorCode, UsageError
from proxyless.wire.flow import SendQueue
from proxyless.wire.messages import (
    ENCODINGS,
    PREFIX_BYTES,
    HeldMessages,
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
        "_behind_held",
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
    # Whom to tell, and of which end, after what is held. Set on streams that are over but for that.
    _behind_held: tuple[StreamListener, StreamEnd]

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
        if self.is_held and self._may_unpack:
            self._keep_packed(data)
            return
        assembler = self.assembler or MessageAssembler(self.connection.message_bytes_max)
        try:
            messages = assembler.feed(data)
            for is_compressed, payload in messages:
                self.listener.on_message(self._unpack(payload) if is_compressed else payload)
                if self.is_ended:
                    return
                if self.is_held and self._may_unpack:
                    messages.close()
                    self._keep_packed(assembler.take_rest())
                    return
        except MessageError as error:
            self.refuse(error.status)
            return
        self.assembler = assembler if assembler.is_partial else None

    def _unpack(self, payload: bytes) -> bytes:
        message = decompress(self.encoding, payload, self.connection.message_bytes_max)
        self._unpacked_bytes = self.unpacked_bytes + len(message) - len(payload)
        return message

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
        """Hand over what was kept packed, and give the peer window again."""
        self.is_held = False
        if (held := self.held_messages) is not None:
            self._hand_over(held)
            if self.held_messages is not None:
                return
        if not self.is_ended and self.recv_window < self.recv_target >> 1:
            self.connection.replenish_stream(self)

    # What a held stream keeps

    @property
    def _may_unpack(self) -> bool:
        """Messages may be longer than they are on the wire. They are not, before the head."""
        return getattr(self, "encoding", "") in ENCODINGS

    @property
    def held_messages(self) -> HeldMessages | None:
        """What came while the stream was held, if it may be compressed."""
        return self.assembler if isinstance(self.assembler, HeldMessages) else None

    def _keep_packed(self, data: bytes) -> None:
        held = self.held_messages
        if held is None:
            begun = b"" if self.assembler is None else self.assembler.take_rest()
            held = HeldMessages(self.connection.message_bytes_max, begun)
        held.add(data)
        self.assembler = held if held.size else None

    def _hand_over(self, held: HeldMessages) -> None:
        """Unpack and deliver until the listener has enough again."""
        if held.is_being_taken:
            return  # The listener released the stream when it was told of a message just now.
        held.is_being_taken = True
        try:
            is_complete = self._deliver(held)
        except MessageError as error:
            self.refuse(error.status)
            return
        held.is_being_taken = False
        if is_complete and hasattr(self, "_behind_held"):
            self._end_behind_held(self._behind_held[1])
        elif is_complete:
            self.assembler = None
            if held.size:
                self._assemble(held.take_rest())
            self.on_handed_over()

    def _deliver(self, held: HeldMessages) -> bool:
        """Tell the listener of every message; False if it wants no more, for now or at all."""
        is_over = hasattr(self, "_behind_held")
        listener = self._behind_held[0] if is_over else self.listener
        while (message := held.take()) is not None:
            is_compressed, payload = message
            listener.on_message(self._unpack(payload) if is_compressed else payload)
            if self.is_held or self.assembler is not held or self.is_ended is not is_over:
                return False
        return True

    def on_handed_over(self) -> None:
        """Nothing is held any more."""

    def put_behind_held(self, end: StreamEnd) -> None:
        """The connection is about to end the stream; let its listener hear of that later."""
        self._behind_held = (self.listener, end)
        self.listener = NOBODY

    def _end_behind_held(self, end: StreamEnd) -> None:
        """Say it now, on a stream that is over but for that. Does nothing on another."""
        if hasattr(self, "_behind_held"):
            listener, _ = self._behind_held
            del self._behind_held
            self.assembler = None
            listener.on_end(end)

    # Ending

    def refuse(self, status: Status) -> None:
        """The peer sent something this side does not take."""
        self.reset(ErrorCode.CANCEL, status)

    def reset(self, code: ErrorCode, status: Status) -> None:
        """End the stream from our side, at once. Does nothing on a stream already over."""
        if not self.is_ended:
            self.connection.reset_stream(self, code, StreamEnd(status))
        else:
            self._end_behind_held(StreamEnd(status))
