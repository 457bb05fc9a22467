"""Who broke the protocol, and which code goes on the wire?

Specs: RFC 9113 section 7 (error codes) and section 5.4 (connection and stream errors).

A peer that breaks the protocol of the whole connection is answered with `RemoteProtocolError`;
trouble that concerns one stream never raises, it ends that stream with a `StreamEnd`.
"""

from enum import IntEnum


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
