"""One stream of a connection: its states, what it sends and what it receives.

Specs: RFC 9113 section 5.1 (stream states), gRPC over HTTP/2.

Theory of operation. A stream has one `HalfState` per direction (`stream_states`).

The two directions are closed together. END_STREAM of the server closes the stream for both roles,
as a gRPC call ends with its status; a client that has not ended its side is reset (NO_ERROR).

A stream is closed exactly once: by END_STREAM or RST_STREAM of the peer, by our own reset, by
GOAWAY, or by the loss of the connection. It then leaves the connection's table, and `on_end` is the
last call of its listener. A sent frame goes either directly into the connection's output or through
a `SendQueue`, which exists only while something waits for the peer's window. A complete message is
delivered within the turn of the loop in which its last byte is received.

Messages are kept as received (`HeldMessages` in the place of the assembler) while the owner holds
the stream, and messages that may be compressed until they are due (`Unpacking`) and the budget of
the turn admits them. If the peer ends the stream meanwhile, receiving is UNDELIVERED: the stream is
closed for the connection, and `on_end` follows the last held message.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol, cast

from proxyless.base.status import Status, StatusCode
from proxyless.wire.errors import ErrorCode, UsageError
from proxyless.wire.flow import SendQueue
from proxyless.wire.limits import MESSAGE_COST, UNPACKED_PART_BYTES, UNPACKING_COST
from proxyless.wire.messages import (
    ENCODINGS,
    PREFIX_BYTES,
    HeldMessages,
    MessageAssembler,
    MessageError,
    Unpacker,
    Unpacking,
    pack_data_and_prefix,
    pack_prefix,
    unknown_encoding,
    unpack_prefix,
)
from proxyless.wire.status import StreamEnd
from proxyless.wire.stream_states import IDLE, UNDELIVERED

if TYPE_CHECKING:
    from proxyless.wire.connection import Connection

_WINDOW_EXCEEDED: Final = Status(
    StatusCode.INTERNAL, "peer sent more than the stream's window allows"
)
_NO_HEAD: Final = Status(StatusCode.INTERNAL, "peer sent a message before the response head")


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
        "sending",
        "unpacked_bytes",
        "updated_at_trip",
        "window_change",
    )

    def __init__(self, connection: Connection, stream_id: int, listener: StreamListener) -> None:
        # Fixed at construction, but for the id of a client's stream, which it gets when opened.
        self.connection = connection
        self.id = stream_id
        self.listener = listener
        # Changed by what we send and the peer's WINDOW_UPDATE.
        self.sending = IDLE
        # The peer's window for this stream, minus the initial window of the connection.
        self.window_change = 0
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
    # The listener of an UNDELIVERED stream, its end, and its end if the last message is incomplete.
    _behind_held: tuple[StreamListener, StreamEnd, StreamEnd]

    # The stream is closed. Read for every sent message: a property without a Python function.
    is_ended = cast("bool", property(attrgetter("receiving.is_closed")))

    @property
    def is_send_closed(self) -> bool:
        """Whether the owner may send nothing more."""
        return not self.sending.takes_messages

    # Sending

    @property
    def send_window(self) -> int:
        """What the peer admits. Negative after the peer has lowered its initial window."""
        return self.window_change + self.connection.outbound.initial_window_bytes

    @property
    def is_writable(self) -> bool:
        """Whether nothing waits for the peer's window."""
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
        if (
            self.queue is None
            and size <= outbound.sendable_bytes
            and size <= self.window_change + outbound.initial_window_bytes
        ):
            if end_stream:
                self.sending = sending.after_end_stream
            self.window_change -= size
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

    def receive_data(  # noqa: C901 - more calls cost every message
        self, data: bytes, start: int, stop: int, charged_bytes: int
    ) -> None:
        """Receive the payload data[start:stop]; padding is in `charged_bytes` only."""
        window = self.recv_window = self.recv_window - charged_bytes
        if window < self.recv_target >> 1:
            if window < 0:
                self.reset(ErrorCode.FLOW_CONTROL_ERROR, _WINDOW_EXCEEDED)
                return
            if not self.is_held:
                self._replenish()
        if self.receiving is IDLE:
            if start != stop:
                self.refuse(_NO_HEAD)
            return
        if self.is_held:
            if start != stop:
                self._keep(data[start:stop])
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
        if self._keeps_messages:
            self._keep(data)
            return
        turns = self.connection.outbound.turns
        assembler = self.assembler or MessageAssembler(self.connection.message_bytes_max)
        try:
            messages = assembler.feed(data)
            for is_compressed, payload in messages:
                if is_compressed:
                    raise unknown_encoding(self.encoding)
                self.listener.on_message(payload)
                if self.is_ended:
                    return
                turns.left -= MESSAGE_COST
                if self.is_held or turns.left <= 0:
                    messages.close()
                    self.assembler = None
                    if rest := assembler.take_rest():
                        self._keep(rest)
                    return
        except MessageError as error:
            self.refuse(error.status)
            return
        self.assembler = assembler if assembler.is_partial else None

    @property
    def is_mid_message(self) -> bool:
        """Whether the next message is incomplete."""
        return self.assembler is not None and self.assembler.is_partial

    @property
    def has_undelivered(self) -> bool:
        """Whether bytes of messages have been received and not delivered."""
        held = self.held_messages
        return self.is_mid_message if held is None else held.size > 0

    def hold(self) -> None:
        """Deliver nothing and give the peer no window until `release`."""
        self.is_held = True

    def release(self) -> None:
        """Deliver the held messages that are due, and give the peer window again."""
        self.is_held = False
        if self.held_messages is not None:
            self._deliver_held()
        elif not self.is_ended and self.recv_window < self.recv_target >> 1:
            self._replenish()

    def _replenish(self) -> None:
        """Give the peer window, minus what is held of complete messages."""
        held = self.held_messages
        held_bytes = held.size if held is not None and held.has_message else 0
        if self.recv_window + held_bytes < self.recv_target >> 1:
            self.connection.replenish_stream(self, held_bytes)

    # Held messages

    @property
    def _keeps_messages(self) -> bool:
        return self.is_held or self.encoding in ENCODINGS or self.held_messages is not None

    @property
    def held_messages(self) -> HeldMessages | None:
        """What was received and is not delivered; None if the stream delivers at once."""
        return self.assembler if isinstance(self.assembler, HeldMessages) else None

    def keep_packed(self, unpacking: Unpacking) -> None:
        """Keep messages until they are due. Called before the first message is received."""
        if not self.is_ended:
            self._start_holding().unpacking = unpacking

    def request_message(self) -> None:
        """Deliver one message, now or when it is received. For a stream that unpacks ON_READ."""
        if (held := self.held_messages) is not None:
            held.is_requested = True
            self._deliver_held()

    def _start_holding(self) -> HeldMessages:
        held = self.held_messages
        if held is None:
            begun = b"" if self.assembler is None else self.assembler.take_rest()
            self.assembler = held = HeldMessages(self.connection.message_bytes_max, begun)
            self.connection.held_bytes += held.size
        return held

    def _keep(self, data: bytes) -> None:
        held = self.assembler
        if not isinstance(held, HeldMessages):
            held = self._start_holding()
        held.add(data)
        self.connection.held_bytes += len(data)
        if not self.is_held:
            self._deliver_held()

    def _deliver_held(self) -> None:
        """Deliver the messages that are due, as far as the budget of the turn admits them."""
        held = self.held_messages
        if held is None or self.is_held or held.is_being_taken:
            return  # In the last case the listener has called `release` in `on_message`.
        held.is_being_taken = True
        try:
            is_complete = self._deliver(held)
        except MessageError as error:
            self.refuse(error.status)
            return
        held.is_being_taken = False
        if self.assembler is not held:
            return
        if is_complete and not self.is_held:
            self._on_delivered(held)
        if not (self.is_ended or self.is_held) and self.recv_window < self.recv_target >> 1:
            self._replenish()

    def _deliver(self, held: HeldMessages) -> bool:
        """Return whether every complete message is delivered."""
        receiving, turns = self.receiving, self.connection.outbound.turns
        listener = self._behind_held[0] if receiving is UNDELIVERED else self.listener
        is_at_once, delivered_bytes = held.unpacking is Unpacking.AT_ONCE, 0
        try:
            while is_at_once or self._is_due(held):
                if turns.left <= 0 and held.has_message:
                    turns.defer(self._deliver_held)
                    return False
                taken = self._take(held)
                if taken is None:
                    if held.unpacker is None:
                        return True
                    turns.defer(self._deliver_held)
                    return False
                message, size = taken
                delivered_bytes += size
                turns.left -= MESSAGE_COST
                held.is_requested = not is_at_once and held.unpacking is Unpacking.AT_END
                listener.on_message(message)
                if self.is_held or self.assembler is not held or self.receiving is not receiving:
                    return False
        finally:
            self.connection.on_delivery(delivered_bytes)
        held.check()
        return not held.has_message

    def _take(self, held: HeldMessages) -> tuple[bytes, int] | None:
        """The next message, and its size on the wire. None if it is incomplete or still packed."""
        if held.unpacker is None:
            taken = held.take()
            if taken is None:
                return None
            is_compressed, payload = taken
            if not is_compressed:
                return payload, PREFIX_BYTES + len(payload)
            self.connection.outbound.turns.left -= UNPACKING_COST
            limit = self.connection.message_bytes_max
            held.unpacker = Unpacker(self.encoding, payload, limit)
        if not self._unpack(held.unpacker):
            return None
        message, size = held.unpacker.take(), held.drop_first()
        held.unpacker = None
        self.unpacked_bytes += len(message) + PREFIX_BYTES - size
        return message, size

    def _unpack(self, unpacker: Unpacker) -> bool:
        """Unpack a message as far as the budget of the turn allows; return whether all of it is."""
        turns = self.connection.outbound.turns
        while not unpacker.is_complete:
            if turns.left <= 0:
                return False
            cost = UNPACKED_PART_BYTES
            try:
                cost = unpacker.advance()
            finally:
                turns.left -= cost
        return True

    def _is_due(self, held: HeldMessages) -> bool:
        if held.unpacking is Unpacking.AT_END:
            held.is_requested |= self.receiving is UNDELIVERED or held.has_second
        return held.is_requested

    def _on_delivered(self, held: HeldMessages) -> None:
        """Every complete message is delivered."""
        if self.receiving is UNDELIVERED:
            _, end, end_mid_message = self._behind_held
            self._end_behind_held(end_mid_message if held.size else end)
            return
        if held.unpacking is Unpacking.AT_ONCE and not (held.size and self.encoding in ENCODINGS):
            self._drop_held()
            if rest := held.take_rest():
                self._assemble(rest)
        self.on_handed_over()

    def on_handed_over(self) -> None:
        """The last held message is delivered."""

    @property
    def undelivered_end(self) -> StreamEnd | None:
        """The end of the stream if it is received and follows held messages."""
        return self._behind_held[1] if self.receiving is UNDELIVERED else None

    def put_behind_held(self, end: StreamEnd, end_mid_message: StreamEnd) -> None:
        """Deliver an end after the held messages. Called just before the stream is closed."""
        self.receiving = self.receiving.after_end_behind_held
        self._behind_held = (self.listener, end, end_mid_message)
        self.listener = NO_LISTENER

    def on_closed_behind_held(self, *, is_early: bool) -> None:
        """The stream is closed, with held messages; `is_early`: before we have ended it."""
        # A listener of another stream, which got this one's place, may have reset it meanwhile.
        if is_early and self.receiving is UNDELIVERED:
            # Writers need not wait for the peer's window any more.
            self._behind_held[0].on_writable()
        self._deliver_held()

    def drop_received(self) -> None:
        """Drop what is received and not delivered. Called when the stream is closed."""
        if self.receiving is not UNDELIVERED:
            self._drop_held()
            self.assembler = None

    def _drop_held(self) -> None:
        if (held := self.held_messages) is not None:
            self.assembler = None
            self.connection.on_delivery(held.size)

    def _end_behind_held(self, end: StreamEnd) -> None:
        """Deliver the end of an UNDELIVERED stream. Does nothing on another."""
        if self.receiving is UNDELIVERED:
            self.receiving = self.receiving.after_delivery
            listener = self._behind_held[0]
            del self._behind_held
            self._drop_held()
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
