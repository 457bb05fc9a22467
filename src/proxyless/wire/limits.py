"""Limits of a connection: ours for the peer, the peer's for us, and flood protection.

Specs: RFC 9113 sections 6.5 (settings) and 10.5 (denial of service).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from proxyless.base.frozen import frozen
from proxyless.wire import frames
from proxyless.wire.errors import (
    ErrorCode,
    RemoteProtocolError,
    flow_control_error,
    protocol_error,
)

MESSAGE_BYTES_DEFAULT: Final = 4 * 1024 * 1024
# A stream with more unread bytes than this gives its peer no window, and keeps what is received as
# it is. Each message counts with this overhead, so that there are at most 128 unread objects.
BUFFERED_BYTES_MAX: Final = 256 * 1024
MESSAGE_OVERHEAD_BYTES: Final = 2048
# Frames that one connection handles in one turn of the loop: about 10 ms.
FRAMES_PER_TURN_MAX: Final = 2048
# What the work that peers cause may cost in one turn of the loop, over all connections: about 5 ms.
# A cost of 1 is about a byte that is unpacked. One message may exceed it.
COST_PER_TURN_MAX: Final = 1024 * 1024
# A DATA frame from a queue, beside an eighth of its size, or a blocked stream that is examined.
FRAME_COST: Final = 2048
# A stream that waited for MAX_CONCURRENT_STREAMS and is opened.
OPENING_COST: Final = 8192
# Ending a stream of a lost connection, with what the application does at the end of an RPC.
ENDING_COST: Final = 8192
# A message that does not come in a frame of its own.
MESSAGE_COST: Final = 512
# A message that is unpacked, beside its size, and a byte of it before: 64 kB may hold 6,000 blocks
# without content, which take 8 ms.
UNPACKING_COST: Final = 4096
PACKED_BYTE_COST: Final = 8
# What one step of unpacking reads and returns at most.
PACKED_PART_BYTES: Final = 64 * 1024
UNPACKED_PART_BYTES: Final = MESSAGE_BYTES_DEFAULT + 1
# A byte of a header block that is not in the cache, and a value: one byte may be one.
HEADER_BYTE_COST: Final = 32
HEADER_FIELD_COST: Final = 256
# Limit of all 1xx responses of a stream, and what each counts at least. Servers send one, if any.
INFORMATIONAL_BYTES_MAX: Final = 4096
INFORMATIONAL_BYTES_MIN: Final = 512


@frozen(kw_only=True)
class Limits:
    """What a peer may make us hold. Fixed at construction of a connection."""

    # The largest frame we accept. Larger than HTTP/2's default because the cost of a frame in
    # `Connection.receive` does not depend on its size.
    frame_bytes_max: int = 256 * 1024
    # grpcio's hard limit for metadata; also bounds a header block spread over CONTINUATION frames.
    header_list_bytes_max: int = 16 * 1024
    message_bytes_max: int = MESSAGE_BYTES_DEFAULT
    # A stream's window starts here and doubles while the peer fills it within one round trip.
    stream_window_bytes: int = 1024 * 1024
    stream_window_bytes_max: int = 16 * 1024 * 1024
    connection_window_bytes: int = 32 * 1024 * 1024
    # Unread bytes of all streams, as received. Beyond them the connection gives the peer no window.
    held_bytes_max: int = 256 * 1024 * 1024
    # Streams a client may open at a time; announced by the server role only.
    concurrent_streams_max: int = 1000

    def __post_init__(self) -> None:
        """Raise ValueError for what SETTINGS and WINDOW_UPDATE cannot announce."""
        self._check("frame_bytes_max", frames.FRAME_BYTES_DEFAULT, frames.FRAME_BYTES_MAX)
        self._check("stream_window_bytes_max", 1, frames.WINDOW_MAX)
        self._check("stream_window_bytes", 1, self.stream_window_bytes_max)
        self._check("connection_window_bytes", frames.WINDOW_DEFAULT, frames.WINDOW_MAX)

    def _check(self, name: str, least: int, most: int) -> None:
        value = getattr(self, name)
        if not least <= value <= most:
            raise ValueError(f"{name} is {value}, wanted {least} to {most}")


# Thousands of connections are made at once, with the same limits.
@lru_cache(maxsize=16)
def encode_limits(limits: Limits, *extra: tuple[int, int]) -> bytes:
    """SETTINGS, with those that only one role announces, and the connection's window."""
    settings = frames.encode_settings(
        (
            (frames.HEADER_TABLE_SIZE, 0),
            (frames.INITIAL_WINDOW_SIZE, limits.stream_window_bytes),
            (frames.MAX_FRAME_SIZE, limits.frame_bytes_max),
            (frames.MAX_HEADER_LIST_SIZE, limits.header_list_bytes_max),
            *extra,
        )
    )
    window_left = limits.connection_window_bytes - frames.WINDOW_DEFAULT
    return settings + (frames.encode_window_update(0, window_left) if window_left else b"")


class PeerSettings:
    """What the peer announced with SETTINGS, starting from HTTP/2's defaults."""

    __slots__ = (
        "_announced_streams_max",
        "concurrent_streams_max",
        "frame_bytes_max",
        "initial_window_bytes",
    )

    def __init__(self) -> None:
        self.frame_bytes_max = frames.FRAME_BYTES_DEFAULT
        self.initial_window_bytes = frames.WINDOW_DEFAULT
        # "It is recommended that this value be no smaller than 100"; unlimited until announced.
        self.concurrent_streams_max = self._announced_streams_max = frames.WINDOW_MAX

    def apply(self, payload: bytes) -> None:
        """Take a SETTINGS payload."""
        for identifier, value in frames.decode_settings(payload):
            if identifier == frames.INITIAL_WINDOW_SIZE:
                if value > frames.WINDOW_MAX:
                    found = f"SETTINGS_INITIAL_WINDOW_SIZE is {value}"
                    raise flow_control_error(f"{found}, wanted at most 2147483647")
                self.initial_window_bytes = value
            elif identifier == frames.MAX_FRAME_SIZE:
                if not frames.FRAME_BYTES_DEFAULT <= value <= frames.FRAME_BYTES_MAX:
                    found = f"SETTINGS_MAX_FRAME_SIZE is {value}"
                    raise protocol_error(f"{found}, wanted 16384 to 16777215")
                self.frame_bytes_max = value
            elif identifier == frames.MAX_CONCURRENT_STREAMS:
                self.concurrent_streams_max = self._announced_streams_max = value
            elif identifier == frames.ENABLE_PUSH and value > 1:
                raise protocol_error(f"SETTINGS_ENABLE_PUSH is {value}, wanted 0 or 1")

    def on_refused(self, streams: int) -> None:
        """The peer has this many streams and refused another one, though it announced more."""
        self.concurrent_streams_max = min(self.concurrent_streams_max, streams)

    def restore_stream_limit(self) -> None:
        """Undo `on_refused`."""
        self.concurrent_streams_max = self._announced_streams_max


FLOOD_FRAMES_MAX: Final = 1000
FLOOD_WINDOW_S: Final = 10.0
FLOOD_FRAMES_PER_DATA: Final = 8
# What SETTINGS counts if it may overflow the window of a stream: every stream is examined.
OVERFLOW_CHECK_FRAMES: Final = 100


class FloodGuard:
    """Ends a connection on which the peer sends too many frames that serve no RPC.

    Such frames (PING, SETTINGS, RST_STREAM of a closed stream, empty DATA, unknown types) are legal
    and cheap to send, so each spends from a budget. The clock is read only when the budget is used
    up: 1000 of them in less than 10 s, more than eight for each DATA frame we sent meanwhile, is a
    flood. (Some servers answer each request with a PING and two WINDOW_UPDATEs.)
    """

    __slots__ = ("_budget", "_now_s", "_progress", "_refilled_s")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._budget = FLOOD_FRAMES_MAX
        self._refilled_s = now_s()
        self._progress = 0

    def spend(self, what: str, progress: int) -> None:
        """Count one frame of the kind `what`; `progress` counts the work we gave the peer."""
        self._budget -= 1
        if self._budget > 0:
            return
        now_s = self._now_s()
        is_flood = (
            now_s - self._refilled_s < FLOOD_WINDOW_S
            and (progress - self._progress) * FLOOD_FRAMES_PER_DATA < FLOOD_FRAMES_MAX
        )
        if is_flood:
            raise RemoteProtocolError(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"flood of {what} frames: {FLOOD_FRAMES_MAX} frames that serve no RPC"
                f" within {FLOOD_WINDOW_S:.0f} s",
            )
        self._budget = FLOOD_FRAMES_MAX
        self._refilled_s = now_s
        self._progress = progress


RECENT_RESETS_MAX: Final = 1024


class RecentResets:
    """The streams we reset, on which frames that the peer sent before our RST_STREAM may arrive.

    The peer may send what was left of the stream's window, and no more. Bounded: the oldest stream
    is evicted, and every id up to the highest evicted one counts as reset.
    """

    __slots__ = ("_evicted_id_max", "_left_bytes")

    def __init__(self) -> None:
        self._left_bytes: dict[int, int] = {}
        self._evicted_id_max = 0

    def add(self, stream_id: int, left_bytes: int) -> None:
        """Add a stream on which the peer may still send `left_bytes`."""
        self._left_bytes[stream_id] = left_bytes
        if len(self._left_bytes) > RECENT_RESETS_MAX:
            oldest = next(iter(self._left_bytes))
            del self._left_bytes[oldest]
            self._evicted_id_max = max(self._evicted_id_max, oldest)

    def __contains__(self, stream_id: int) -> bool:
        return stream_id in self._left_bytes or 0 < stream_id <= self._evicted_id_max

    def charge(self, stream_id: int, size: int) -> bool:
        """Count late DATA; return whether it fits into the stream's window."""
        left_bytes = self._left_bytes.get(stream_id)
        if left_bytes is None:
            return True
        self._left_bytes[stream_id] = left_bytes - size
        return left_bytes >= size
