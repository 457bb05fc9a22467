"""Exceptions and error codes of the wire.

Specs: RFC 9113 section 7 (error codes) and section 5.4 (connection and stream errors).

A connection error raises `RemoteProtocolError`. A stream error never raises: it ends the stream
with a `StreamEnd`.
"""

from enum import IntEnum
from typing import Final

# How many bytes of a peer's text (GOAWAY debug data, an HTTP/1 response) go into a status.
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
    """The code's name, or its number for a code that is not defined."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code:#x}"


class WireError(Exception):
    """Base class of what this package raises."""


class RemoteProtocolError(WireError):
    """The peer broke the protocol: the connection ends with this code."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class UsageError(WireError):
    """The caller broke the order of calls; the connection is unchanged."""


def protocol_error(text: str) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.PROTOCOL_ERROR, text)


def flow_control_error(text: str) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.FLOW_CONTROL_ERROR, text)


def frame_size_error(text: str) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.FRAME_SIZE_ERROR, text)


def stream_closed(what: str, stream_id: int) -> RemoteProtocolError:
    text = f"{what} on stream {stream_id}, which is closed"
    return RemoteProtocolError(ErrorCode.STREAM_CLOSED, text)


def not_http2(data: bytes) -> RemoteProtocolError:
    """The peer's first bytes are not HTTP/2; the text shows them, so that the cause is clear."""
    first_line = data.split(b"\r\n", 1)[0][:PEER_TEXT_BYTES_MAX]
    if data.startswith(b"HTTP/"):
        text = f"peer answered {first_line.decode('latin-1')!r}: it speaks HTTP/1, wanted HTTP/2"
    else:
        text = f"peer does not speak HTTP/2: its first bytes are {first_line[:24]!r}"
    return protocol_error(text)
