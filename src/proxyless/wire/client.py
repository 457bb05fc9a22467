"""Client role of `Connection`: opens streams; `responses` handles what the server sends on them.

Specs: RFC 9113, gRPC over HTTP/2.

A stream over the peer's MAX_CONCURRENT_STREAMS waits here, in order; messages sent meanwhile wait
in the stream's queue. Connections to one address may form a group (A105): a stream is opened on the
oldest of them that has a free one, or waits in a queue that they share.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import takewhile
from typing import Final, cast

from proxyless.base.status import Status, StatusCode
from proxyless.wire import frames
from proxyless.wire.errors import ErrorCode, name_error_code
from proxyless.wire.frames import (
    FLAG_END_HEADERS,
    FLAG_END_STREAM,
    HEADERS,
    PREFACE,
    STREAM_ID_MASK,
    WINDOW_MAX,
    pack_header,
)
from proxyless.wire.limits import (
    OPENING_COST,
    Limits,
    encode_limits,
)
from proxyless.wire.listeners import NO_OWNER, ConnectionListener
from proxyless.wire.messages import PREFIX_BYTES, pack_data_and_prefix
from proxyless.wire.responses import CallListener, ClientStream, ResponseReceiver
from proxyless.wire.status import StreamEnd, end_of_reset
from proxyless.wire.stream import NO_LISTENER, Stream
from proxyless.wire.stream_states import HALF_CLOSED
from proxyless.wire.turns import Turns

_NO_PUSH: Final = (frames.ENABLE_PUSH, 0)


class ClientConnection(ResponseReceiver):
    """The client role: owns the streams that wait for the peer's limit."""

    __slots__ = (
        "_next_stream_id",
        "_unsent_stream_id",
        "group",
        "on_refused",
        "on_waiting",
        "waiting",
    )

    def __init__(
        self,
        listener: ConnectionListener,
        limits: Limits,
        now_s: Callable[[], float],
        turns: Turns | None = None,
    ) -> None:
        super().__init__(listener, limits, now_s, turns)
        self._next_stream_id = 1
        # The first stream of which no frame has been sent.
        self._unsent_stream_id = 1
        # Streams over the peer's limit, with their header blocks, in order.
        self.waiting: OrderedDict[ClientStream, bytes] = OrderedDict()
        # The connections that share them, oldest first; empty if it is alone.
        self.group: tuple[ClientConnection, ...] = ()
        # Set by the owner. Called when streams begin to wait, not for each.
        self.on_waiting: Callable[[], None] = _do_nothing
        # Set by the owner, which calls `restore_stream_limit` some time later.
        self.on_refused: Callable[[], None] = _do_nothing
        self.outbound.emit(PREFACE + encode_limits(limits, _NO_PUSH))

    def detach(self) -> None:
        """Drop the owner, which is lost, so that both are freed without garbage collection."""
        self._listener = NO_OWNER
        self.on_waiting = self.on_refused = _do_nothing
        self.outbound.detach()

    @property
    def is_usable(self) -> bool:
        """Whether new streams may be opened."""
        return not self.is_draining and self._next_stream_id <= STREAM_ID_MASK

    @property
    def streams_started(self) -> int:
        """Number of streams that were opened since the connection was made."""
        return self._next_stream_id // 2

    @property
    def calls(self) -> int:
        """Number of streams, open or waiting. Those of a group wait on its oldest connection."""
        is_oldest = not self.group or self.group[0] is self
        return len(self.streams) + (len(self.waiting) if is_oldest else 0)

    # Opening

    def open(self, block: bytes, listener: CallListener) -> ClientStream:
        """Open a stream with an encoded header block (`RequestEncoder`).

        On a connection that is not usable the stream has ended, unprocessed, when this returns.
        """
        stream = ClientStream(self, 0, listener)
        if not self.is_usable:
            self._announce_unusable()
            self._end_unopened(stream, _UNUSABLE)
        elif self.waiting or len(self.streams) >= self.peer.concurrent_streams_max:
            self._open_elsewhere_or_wait(stream, block)
        else:
            # It is stale if another connection of the group has opened the last waiting stream.
            self.has_waiting = False
            self.open_now(stream, block)
        return stream

    def _open_elsewhere_or_wait(self, stream: ClientStream, block: bytes) -> None:
        group = self.group or (self,)
        if not self.waiting:
            for other in group:
                if other.has_free_stream:
                    other.open_now(stream, block)
                    return
        self.waiting[stream] = block
        # No window, until the stream is opened.
        stream.window_change = -WINDOW_MAX
        if len(self.waiting) == 1:
            for each in group:
                each.has_waiting = True
            self.on_waiting()

    def open_unary(self, block: bytes, listener: CallListener, message: bytes) -> ClientStream:
        """Open a stream for a unary call whose request is `message`, not compressed.

        The same as `open` and `send_message`, but cheaper: header block and message are one piece
        of output if the peer's limits admit that.
        """
        size = len(message) + PREFIX_BYTES
        outbound = self.outbound
        if (
            size > outbound.sendable_bytes
            or size > self.peer.initial_window_bytes
            or len(block) > frames.FRAME_BYTES_DEFAULT
            or len(self.streams) >= self.peer.concurrent_streams_max
            or self.has_waiting
            or self.is_draining
            or self._next_stream_id > STREAM_ID_MASK
        ):
            stream = self.open(block, listener)
            if not stream.is_ended:
                stream.send_message(message, end_stream=True)
            return stream
        stream_id = self._next_stream_id
        self._next_stream_id = stream_id + 2
        stream = self.streams[stream_id] = ClientStream(self, stream_id, listener)
        stream.window_change = -size
        stream.sending = HALF_CLOSED
        outbound.send_data(
            size,
            pack_header(len(block) << 8 | HEADERS, FLAG_END_HEADERS, stream_id)
            + block
            + pack_data_and_prefix(size << 8, FLAG_END_STREAM, stream_id, 0, len(message))
            + message,
        )
        return stream

    def open_now(self, stream: ClientStream, block: bytes) -> None:
        # It may have waited for any connection of the group.
        stream.connection = self
        stream.id = self._next_stream_id
        self._next_stream_id += 2
        stream.sending = stream.sending.after_headers
        stream.window_change = 0
        self.streams[stream.id] = stream
        self.outbound.emit(
            frames.encode_headers(
                stream.id, block, end_stream=False, frame_bytes_max=self.peer.frame_bytes_max
            )
        )

    def open_waiting(self) -> None:
        """Open waiting streams while the peer's limit and the budget of the turn allow."""
        turns = self.outbound.turns
        while self.waiting and len(self.streams) < self.peer.concurrent_streams_max:
            if turns.left <= 0:
                turns.defer(self._open_deferred)
                return
            turns.left -= OPENING_COST
            if not self.is_usable:
                self._announce_unusable()
                self._end_waiting(_UNUSABLE)
                return
            stream, block = next(iter(self.waiting.items()))
            self._stop_waiting(stream)
            self.open_now(stream, block)
            if stream.queue is not None:
                self.outbound.send_waiting(stream)
        self.has_waiting = bool(self.waiting)

    def _open_deferred(self) -> None:
        self.open_waiting()
        # While this was deferred, `lacks_streams` was False.
        if self.waiting:
            self.on_waiting()

    def _announce_unusable(self) -> None:
        """Drain a connection that has used all its stream ids."""
        if not self.is_draining:
            self.is_draining = True
            self._listener.on_goaway(ErrorCode.NO_ERROR, "stream ids are used up")
            self._check_drained()

    def _stop_waiting(self, stream: ClientStream) -> None:
        # It is already removed if `_end_waiting` has called the listener that ends this stream.
        self.waiting.pop(stream, None)
        self.has_waiting = bool(self.waiting)

    # Groups of connections

    @property
    def has_free_stream(self) -> bool:
        return self.is_usable and len(self.streams) < self.peer.concurrent_streams_max

    @property
    def lacks_streams(self) -> bool:
        """Whether streams wait, and no connection of the group has a free one."""
        if not self.waiting:
            return False
        return not any(each.has_free_stream for each in self.group or (self,))

    def add_to_group(self, newest: "ClientConnection") -> None:
        """Share the waiting streams with a connection on which none was opened yet."""
        group = (*(self.group or (self,)), newest)
        for each in group:
            each.group = group
        newest.waiting = self.waiting
        newest.has_waiting = bool(self.waiting)
        newest.open_waiting()

    def leave_group(self) -> None:
        """Leave the waiting streams to the other connections. No-op if it is alone."""
        others = tuple(each for each in self.group if each is not self)
        self.group = ()
        if others:
            for each in others:
                each.group = others
            for stream in self.waiting:
                stream.connection = others[0]
            self.waiting, self.has_waiting = OrderedDict(), False

    # Resets by the peer

    def _on_reset(self, stream: Stream, code: int) -> None:
        end = end_of_reset(code)
        if end.is_unprocessed and len(self.streams) > 1:
            end = self._on_refused(end)
        self._end_stream(stream, end)

    def _on_refused(self, end: StreamEnd) -> StreamEnd:
        """The peer refused a stream within the limit it announced: lower the limit for a while.

        grpcio's servers count a stream until it is cleaned up, which is after its end.
        """
        self.peer.on_refused(len(self.streams) - 1)
        self.on_refused()
        return replace(end, is_retry_free=True)

    def restore_stream_limit(self) -> None:
        """Use the limit that the peer announced, after `on_refused`."""
        self.peer.restore_stream_limit()
        self.open_waiting()

    # Ends

    def drain(self) -> None:
        """Open no more streams; `on_drained` is called after the last has ended. Idempotent."""
        if self.is_closed:
            return
        self.is_draining = True
        self._end_waiting(_UNUSABLE)
        self._check_drained()

    def reset_stream(self, stream: Stream, code: ErrorCode, end: StreamEnd) -> None:
        if stream.sending.is_idle:
            self._stop_waiting(cast("ClientStream", stream))
            self._end_unopened(stream, end)
        else:
            super().reset_stream(stream, code, end)

    def _on_stream_gone(self) -> None:
        super()._on_stream_gone()
        self.open_waiting()

    def _end_unopened(self, stream: Stream, end: StreamEnd) -> None:
        stream.sending = stream.sending.after_close
        stream.receiving = stream.receiving.after_close
        stream.queue = None
        listener, stream.listener = stream.listener, NO_LISTENER
        listener.on_end(end)

    def _end_waiting(self, end: StreamEnd) -> None:
        self._end_each((stream, end) for stream in self._take_waiting())

    def _take_waiting(self) -> Iterable[ClientStream]:
        if self.group:
            self.leave_group()
        waiting, self.waiting = self.waiting, OrderedDict()
        self.has_waiting = False
        return waiting

    def _end_if_open(self, ending: tuple[Stream, StreamEnd]) -> None:
        if ending[0].sending.is_idle:
            self._end_unopened(*ending)
        else:
            super()._end_if_open(ending)

    def note_sent(self) -> None:
        self._unsent_stream_id = self._next_stream_id

    def lose_unsent(self, status: Status) -> None:
        """Nothing more can be sent: end the streams of which nothing was. Opens no others."""
        if not self.is_closed:
            self.is_draining = True
            self._end_each(self._unsent_streams(status))
            self._check_drained()

    def _unsent_streams(self, status: Status) -> list[tuple[Stream, StreamEnd]]:
        """The streams that the peer has not seen: they wait, or none of their frames was sent."""
        unsent = StreamEnd(status, is_unprocessed=True, is_retry_free=True)
        streams = [s for s in self.streams.values() if s.id >= self._unsent_stream_id]
        return [(stream, unsent) for stream in (*self._take_waiting(), *streams)]

    def _lost_streams(self, status: Status) -> Iterable[tuple[Stream, StreamEnd]]:
        # A stream in both lists has ended when its second turn comes.
        return [*self._unsent_streams(status), *super()._lost_streams(status)]

    def _on_peer_goaway(self, last_stream_id: int, code: int, text: str) -> None:
        reason = f"{name_error_code(code)}: {text}" if text else name_error_code(code)
        status = Status(StatusCode.UNAVAILABLE, f"peer is going away: {reason}")
        unprocessed = StreamEnd(status, is_unprocessed=True)
        self._end_waiting(replace(unprocessed, is_retry_free=True))
        # The streams are in the order of their ids, so GOAWAY costs as many as it ends.
        ended = list(takewhile(lambda s: s.id > last_stream_id, reversed(self.streams.values())))
        self._end_each((stream, unprocessed) for stream in reversed(ended))

    def _on_settings_applied(self) -> None:
        self.open_waiting()

    def _is_idle(self, stream_id: int) -> bool:
        return stream_id % 2 == 0 or stream_id >= self._next_stream_id

    def _spend(self, what: str) -> None:
        # Opened streams count too: one that is refused at once has sent no DATA.
        streams_opened = self._next_stream_id // 2
        self._guard.spend(what, self.outbound.data_frames + streams_opened)


_UNUSABLE: Final = StreamEnd(
    Status(StatusCode.UNAVAILABLE, "connection takes no new calls"),
    is_unprocessed=True,
    is_retry_free=True,
)


def _do_nothing() -> None:
    return
