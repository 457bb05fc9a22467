"""Who broke the protocol, and which code goes on the wire?

Specs: RFC 9113 section 7 (error codes) and section 5.4 (connection and stream errors).

A peer that breaks the protocol of the whole connection is answered with `RemoteProtocolError`;
trouble that concerns one stream never raises, it ends that stream with a `StreamEnd`.
"""

from enum import IntEnum
from typing import Final

# How many bytes of a peer's text (GOAWAY debug data, an HTTP/1 answer) go into a status.
PEER_TEXT_BYTES_MAX: Final = 256


class ErrorCode(IntEnum):
    """HTTP/2 error codes, as RST_STREAM and GOAWAY carry them."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


def name_error_code(code: int) -> str:
    """The code's name, or its number for a code nobody has defined."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code:#x}"


class WireError(Exception):
    """Everything this room raises."""


class RemoteProtocolError(WireError):
    """The peer broke the protocol: the connection ends with this code."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class UsageError(WireError):
    """Our own caller broke the order of calls: the machine is unchanged."""


def frame_too_large(size: int, size_max: int) -> RemoteProtocolError:
    text = f"frame of {size} bytes, wanted at most {size_max}"
    return RemoteProtocolError(ErrorCode.FRAME_SIZE_ERROR, text)


def stream_closed(what: str, stream_id: int) -> RemoteProtocolError:
    text = f"{what} on stream {stream_id}, which is closed"
    return RemoteProtocolError(ErrorCode.STREAM_CLOSED, text)


def window_overflow(what: str, where: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        ErrorCode.FLOW_CONTROL_ERROR, f"{what} overflows the window of {where}"
    )


def not_http2(data: bytes) -> RemoteProtocolError:
    """The first bytes are not HTTP/2: say what they look like, so that the cause is clear."""
    first_line = data.split(b"\r\n", 1)[0][:PEER_TEXT_BYTES_MAX]
    if data.startswith(b"HTTP/"):
        text = f"peer answered {first_line.decode('latin-1')!r}: it speaks HTTP/1, wanted HTTP/2"
    else:
        text = f"peer does not speak HTTP/2: its first bytes are {first_line[:24]!r}"
    return RemoteProtocolError(ErrorCode.PROTOCOL_ERROR, text)
