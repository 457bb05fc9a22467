"""One stream of a connection: its states, what it sends and what it receives.

Specs: RFC 9113 section 5.1 (stream states), gRPC over HTTP/2.

Theory of operation. A stream has one `HalfState` per direction. `TRANSITIONS` is the table of both
directions and both roles, and every change of state assigns a value of that table. The states of
RFC 9113 are pairs of them (never "reserved": push is disabled):

    RFC 9113              sending             receiving
    idle                  IDLE, IDLE_ENDING   IDLE                  client: over the stream limit
    open                  OPEN, ENDING        IDLE, OPEN
                          IDLE                OPEN                  server: no response head yet
    half-closed (local)   HALF_CLOSED         IDLE, OPEN            client
    half-closed (remote)  IDLE, OPEN, ENDING  HALF_CLOSED           server
    closed                CLOSED              UNDELIVERED, CLOSED

The two directions are closed together. END_STREAM of the server closes the stream for both roles,
as a gRPC call ends with its status; a client that has not ended its side is reset (NO_ERROR).

A stream is closed exactly once: by END_STREAM or RST_STREAM of the peer, by
our own reset, by GOAWAY, or by the loss of the connection. It then leaves the connection's table,
and `on_end` is the last call of its listener. A sent frame goes either directly into the
connection's output or through a `SendQueue`, which exists only while something waits for the peer's
window. A complete message is delivered within the turn of the loop in which its last byte is
received.

Streams with compressed messages differ while their owner holds them: received messages are kept
packed (`HeldMessages` in the place of the assembler) and unpacked on release. If the peer ends the
stream meanwhile, receiving is UNDELIVERED: the stream is closed for the connection, and `on_end`
follows the last held message.
"""

from __future__ import annotations

from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol, cast

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
_NO_HEAD: Final = Status(StatusCode.INTERNAL, "peer sent a message before the response head")


class HalfState(Enum):
    """State of one direction of a stream, with the next state after each event.

    An event that cannot happen in a state has no attribute there: reading it is a bug of ours.
    """

    IDLE = "no HEADERS yet"
    IDLE_ENDING = "no HEADERS yet, and the last message is queued"
    OPEN = "HEADERS sent or received, messages may follow"
    ENDING = "the last message is queued, END_STREAM or trailers follow it"
    HALF_CLOSED = "END_STREAM sent or received"
    UNDELIVERED = "stream closed, held messages and the end are still to be delivered"
    CLOSED = "stream closed"

    # HEADERS without END_STREAM.
    after_headers: HalfState
    # The owner has sent its last message, and the message or what follows it has to wait.
    after_last_message: HalfState
    after_end_stream: HalfState
    # The peer has ended the stream behind messages that are held.
    after_end_behind_held: HalfState
    # The last held message is delivered, or dropped.
    after_delivery: HalfState
    # The stream leaves the connection's table.
    after_close: HalfState

    # Derived.
    is_idle: bool
    is_closed: bool
    takes_messages: bool


IDLE: Final = HalfState.IDLE
OPEN: Final = HalfState.OPEN
ENDING: Final = HalfState.ENDING
HALF_CLOSED: Final = HalfState.HALF_CLOSED
UNDELIVERED: Final = HalfState.UNDELIVERED

TRANSITIONS: Final[dict[HalfState, dict[str, HalfState]]] = {
    HalfState.IDLE: {
        "after_headers": HalfState.OPEN,
        "after_last_message": HalfState.IDLE_ENDING,
        "after_end_stream": HalfState.HALF_CLOSED,
        "after_close": HalfState.CLOSED,
    },
    HalfState.IDLE_ENDING: {
        "after_headers": HalfState.ENDING,
        "after_close": HalfState.CLOSED,
    },
    HalfState.OPEN: {
        "after_last_message": HalfState.ENDING,
        "after_end_stream": HalfState.HALF_CLOSED,
        "after_end_behind_held": HalfState.UNDELIVERED,
        "after_close": HalfState.CLOSED,
    },
    HalfState.ENDING: {
        "after_end_stream": HalfState.HALF_CLOSED,
        "after_close": HalfState.CLOSED,
    },
    HalfState.HALF_CLOSED: {"after_close": HalfState.CLOSED},
    HalfState.UNDELIVERED: {
        "after_close": HalfState.UNDELIVERED,
        "after_delivery": HalfState.CLOSED,
    },
    HalfState.CLOSED: {},
}

# State changes of an RPC are assignments of these values, with no lookup in the table.
for _state, _row in TRANSITIONS.items():
    _state.is_idle = _state in {HalfState.IDLE, HalfState.IDLE_ENDING}
    _state.is_closed = _state in {HalfState.UNDELIVERED, HalfState.CLOSED}
    _state.takes_messages = _state in {HalfState.IDLE, HalfState.OPEN}
    for _event, _next in _row.items():
        setattr(_state, _event, _next)


class StreamListener(Protocol):
    """Callbacks of a stream of either role. No method may raise or block."""

    def on_message(self, message: bytes) -> None: ...

    def on_writable(self) -> None:
        """Everything that waited for the peer's window has been sent."""

    def on_end(self, end: StreamEnd) -> None:
        """The stream has ended. This is the last call."""


class _NoListener:
    """Listener of a closed stream: does nothing.

    Replaces the listener, which usually holds the stream: without the cycle both are
    freed at once, and an RPC leaves nothing to the garbage collector.
    """

    def on_head(self, head: object) -> None: ...
    def on_message(self, message: bytes) -> None: ...
    def on_half_close(self) -> None: ...
    def on_writable(self) -> None: ...
    def on_end(self, end: StreamEnd) -> None: ...


NO_LISTENER: Final = _NoListener()


class Stream:
    """One stream of either role.

    Called by its owner (send, hold, reset) and the connection (the peer's frames and windows).
    """

    __slots__ = (
        "_behind_held",
        "assembler",
        "connection",
        "encoding",
        "id",
        "informational_bytes",
        "is_held",
        "listener",
        "queue",
        "receiving",
        "recv_target",
        "recv_window",
        "send_window",
        "sending",
        "unpacked_bytes",
        "updated_at_trip",
    )

    def __init__(self, connection: Connection, stream_id: int, listener: StreamListener) -> None:
        # Fixed at construction, but for the id of a client's stream, which it gets when opened.
        self.connection = connection
        self.id = stream_id
        self.listener = listener
        # Changed by what we send and the peer's WINDOW_UPDATE.
        self.sending = IDLE
        self.send_window = 0
        self.queue: SendQueue | None = None
        # Changed by what we receive and by the owner's hold.
        self.receiving = IDLE
        self.recv_window = self.recv_target = connection.stream_window_bytes
        self.updated_at_trip = -1
        self.is_held = False
        # Present while a message is partly received, or messages are held.
        self.assembler: MessageAssembler | None = None
        # Size of the received messages minus their size on the wire.
        self.unpacked_bytes = 0
        # Size of the 1xx responses of a client's stream.
        self.informational_bytes = 0

    # How the peer compresses messages. Set when receiving is OPEN.
    encoding: str
    # The listener and the end of an UNDELIVERED stream.
    _behind_held: tuple[StreamListener, StreamEnd]

    # The stream is closed. Read for every sent message: a property without a Python function.
    is_ended = cast("bool", property(attrgetter("receiving.is_closed")))

    @property
    def is_send_closed(self) -> bool:
        """The owner may send nothing more."""
        return not self.sending.takes_messages

    # Sending

    @property
    def is_writable(self) -> bool:
        """Nothing waits for the peer's window."""
        return self.queue is None

    def send_message(
        self, message: bytes, *, is_compressed: bool = False, end_stream: bool = False
    ) -> None:
        """Send one message; with `end_stream` it is the last thing this side sends."""
        sending = self.sending
        if not sending.takes_messages:
            raise UsageError("message sent after the sending side was closed")
        size = len(message) + PREFIX_BYTES
        outbound = self.connection.outbound
        if size <= self.send_window and self.queue is None and size <= outbound.sendable_bytes:
            if end_stream:
                self.sending = sending.after_end_stream
            self.send_window -= size
            head = pack_data_and_prefix(size << 8, end_stream, self.id, is_compressed, len(message))
            outbound.send_data(size, head + message)
            return
        queue = self._queue_up()
        queue.push(pack_prefix(is_compressed, len(message)))
        queue.push(message)
        if end_stream:
            self.sending = sending.after_last_message
            queue.is_closing = True
        if not sending.is_idle:
            outbound.send_queued(self)

    def _queue_up(self) -> SendQueue:
        if self.queue is None:
            self.queue = SendQueue()
        return self.queue

    def on_queue_empty(self) -> None:
        """The last queued byte has been sent."""
        self.listener.on_writable()

    # Receiving

    def receive_data(self, data: bytes, start: int, stop: int, charged_bytes: int) -> None:
        """Receive the payload data[start:stop]; padding is in `charged_bytes` only."""
        window = self.recv_window = self.recv_window - charged_bytes
        if window < self.recv_target >> 1:
            if window < 0:
                self.reset(ErrorCode.FLOW_CONTROL_ERROR, _WINDOW_EXCEEDED)
                return
            if not self.is_held:
                self.connection.replenish_stream(self)
        if self.receiving is IDLE:
            if start != stop:
                self.refuse(_NO_HEAD)
            return
        # The usual case: the frame is exactly one message, which is not compressed.
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
        if self.is_held and self._may_be_compressed:
            self._keep_packed(data)
            return
        assembler = self.assembler or MessageAssembler(self.connection.message_bytes_max)
        try:
            messages = assembler.feed(data)
            for is_compressed, payload in messages:
                self.listener.on_message(self._unpack(payload) if is_compressed else payload)
                if self.is_ended:
                    return
                if self.is_held and self._may_be_compressed:
                    messages.close()
                    self._keep_packed(assembler.take_rest())
                    return
        except MessageError as error:
            self.refuse(error.status)
            return
        self.assembler = assembler if assembler.is_partial else None

    def _unpack(self, payload: bytes) -> bytes:
        message = decompress(self.encoding, payload, self.connection.message_bytes_max)
        self.unpacked_bytes += len(message) - len(payload)
        return message

    @property
    def is_mid_message(self) -> bool:
        return self.assembler is not None and self.assembler.is_partial

    def hold(self) -> None:
        """Give the peer no more window until `release`: the listener has too much unread."""
        self.is_held = True

    def release(self) -> None:
        """Deliver the held messages, and give the peer window again."""
        self.is_held = False
        if (held := self.held_messages) is not None:
            self._hand_over(held)
            if self.held_messages is not None:
                return
        if not self.is_ended and self.recv_window < self.recv_target >> 1:
            self.connection.replenish_stream(self)

    # Held messages

    @property
    def _may_be_compressed(self) -> bool:
        return self.encoding in ENCODINGS

    @property
    def held_messages(self) -> HeldMessages | None:
        """What was received while the stream was held, if it may be compressed."""
        return self.assembler if isinstance(self.assembler, HeldMessages) else None

    def _keep_packed(self, data: bytes) -> None:
        held = self.held_messages
        if held is None:
            begun = b"" if self.assembler is None else self.assembler.take_rest()
            held = HeldMessages(self.connection.message_bytes_max, begun)
        held.add(data)
        self.assembler = held if held.size else None

    def _hand_over(self, held: HeldMessages) -> None:
        """Unpack and deliver until the listener holds the stream again."""
        if held.is_being_taken:
            return  # The listener has called `release` in `on_message`.
        held.is_being_taken = True
        try:
            is_complete = self._deliver(held)
        except MessageError as error:
            self.refuse(error.status)
            return
        held.is_being_taken = False
        if is_complete and self.receiving is UNDELIVERED:
            self._end_behind_held(self._behind_held[1])
        elif is_complete:
            self.assembler = None
            if held.size:
                self._assemble(held.take_rest())
            self.on_handed_over()

    def _deliver(self, held: HeldMessages) -> bool:
        """Deliver every message; return False if the listener holds or ends the stream."""
        receiving = self.receiving
        listener = self._behind_held[0] if receiving is UNDELIVERED else self.listener
        while (message := held.take()) is not None:
            is_compressed, payload = message
            listener.on_message(self._unpack(payload) if is_compressed else payload)
            if self.is_held or self.assembler is not held or self.receiving is not receiving:
                return False
        return True

    def on_handed_over(self) -> None:
        """The last held message is delivered."""

    def put_behind_held(self, end: StreamEnd) -> None:
        """Deliver this end after the held messages. Called just before the stream is closed."""
        self.receiving = self.receiving.after_end_behind_held
        self._behind_held = (self.listener, end)
        self.listener = NO_LISTENER

    def _end_behind_held(self, end: StreamEnd) -> None:
        """Deliver the end of an UNDELIVERED stream. Does nothing on another."""
        if self.receiving is UNDELIVERED:
            self.receiving = self.receiving.after_delivery
            listener, _ = self._behind_held
            del self._behind_held
            self.assembler = None
            listener.on_end(end)

    # Ending

    def refuse(self, status: Status) -> None:
        """End the stream because the peer sent something invalid."""
        self.reset(ErrorCode.CANCEL, status)

    def reset(self, code: ErrorCode, status: Status) -> None:
        """End the stream at once. Does nothing on a stream that has ended."""
        if not self.is_ended:
            self.connection.reset_stream(self, code, StreamEnd(status))
        else:
            self._end_behind_held(StreamEnd(status))
