"""Which gRPC status does an answer of the wire mean?

Specs: gRPC over HTTP/2 ("HTTP2 Transport Mapping", "Errors"), "HTTP to gRPC Status Code Mapping".
"""

from dataclasses import field
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from proxyless.base.frozen import frozen
from proxyless.base.metadata import EMPTY, Metadata
from proxyless.base.status import OK, Status, StatusCode
from proxyless.wire.errors import ErrorCode, name_error_code


@frozen
class StreamEnd:
    """How a stream ended. Every stream gets exactly one."""

    status: Status
    trailers: Metadata = EMPTY
    # The peer's application never saw the request, so that it may be sent again to any server.
    is_unprocessed: bool = False
    # And sending it again bothers nobody: it never left this side, or the connection will hold it
    # back until the peer has room for it.
    is_retry_free: bool = False
    # The peer said it in trailers, after all its messages: none of them is lost. How, not what it
    # is, so ends are compared without it.
    is_last_word: bool = field(default=False, compare=False)


_HTTP_CODES: Final = {
    400: StatusCode.INTERNAL,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.UNIMPLEMENTED,
    429: StatusCode.UNAVAILABLE,
    502: StatusCode.UNAVAILABLE,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.UNAVAILABLE,
}

_RESET_CODES: Final = {
    ErrorCode.REFUSED_STREAM: StatusCode.UNAVAILABLE,
    ErrorCode.CANCEL: StatusCode.CANCELLED,
    ErrorCode.ENHANCE_YOUR_CALM: StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.INADEQUATE_SECURITY: StatusCode.PERMISSION_DENIED,
}

# By their decimal text: int() would take " 1", "+1" and "1_0" as well.
_CODES: Final = {str(int(code)).encode("ascii"): code for code in StatusCode}

# "%x20-%x24 / %x26-%x7E": printable ASCII but the percent sign - gRPC over HTTP/2
_UNENCODED: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def status_of_http(http_status: int, content_type: str) -> Status:
    """For an answer that did not come from a gRPC server."""
    code = _HTTP_CODES.get(http_status, StatusCode.UNKNOWN)
    return Status(
        code,
        f"peer answered HTTP status {http_status} with content-type {content_type!r}, not gRPC",
    )


def end_of_reset(code: int) -> StreamEnd:
    """For RST_STREAM with this code."""
    status = Status(
        _RESET_CODES.get(code, StatusCode.INTERNAL),  # type: ignore[call-overload]
        f"stream reset by peer: {name_error_code(code)}",
    )
    # "REFUSED_STREAM: indicates that no processing occurred" - gRPC over HTTP/2
    return StreamEnd(status, is_unprocessed=code == ErrorCode.REFUSED_STREAM)


def status_of_trailers(code_text: bytes, message: bytes) -> Status:
    """The status that `grpc-status` and `grpc-message` spell."""
    if code_text == b"0" and not message:
        return OK
    details = decode_grpc_message(message)
    code = _CODES.get(code_text)
    if code is None:
        text = f"peer sent grpc-status {code_text.decode('latin-1')!r}"
        return Status(StatusCode.UNKNOWN, f"{text}: {details}" if details else text)
    return Status(code, details)


def encode_grpc_message(details: str) -> bytes:
    return quote_from_bytes(details.encode("utf-8", "replace"), safe=_UNENCODED).encode("ascii")


def decode_grpc_message(message: bytes) -> str:
    # "decoders … must not … discard the message": bad bytes are replaced, not refused.
    return unquote_to_bytes(message).decode("utf-8", "replace")
