"""gRPC status of a stream: mapping from HTTP statuses, RST_STREAM codes and trailers.

Specs: gRPC over HTTP/2 ("HTTP2 Transport Mapping", "Errors"), "HTTP to gRPC Status Code Mapping".
"""

from dataclasses import field
from typing import Final

from proxyless.base.frozen import frozen
from proxyless.base.metadata import EMPTY, Metadata
from proxyless.base.percent import quote_from_bytes, unquote_to_bytes
from proxyless.base.status import OK, Status, StatusCode
from proxyless.wire.errors import ErrorCode, name_error_code


@frozen
class StreamEnd:
    """How a stream ended. Every stream gets exactly one."""

    status: Status
    trailers: Metadata = EMPTY
    # The server application did not process the request: a retry on any server is safe.
    is_unprocessed: bool = False
    # A retry costs the peer nothing: the request was not sent, or the connection queues the retry
    # until the peer accepts another stream.
    is_retry_free: bool = False
    # The status comes from the peer's trailers, so no message before it is lost.
    is_from_trailers: bool = field(default=False, compare=False)


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

# By decimal text: int() would also accept " 1", "+1" and "1_0".
_CODES: Final = {str(int(code)).encode("ascii"): code for code in StatusCode}

# "%x20-%x24 / %x26-%x7E": printable ASCII except the percent sign - gRPC over HTTP/2
_UNENCODED: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def status_of_http(http_status: int, content_type: str) -> Status:
    """The status for a response that did not come from a gRPC server."""
    code = _HTTP_CODES.get(http_status, StatusCode.UNKNOWN)
    return Status(
        code,
        f"peer answered HTTP status {http_status} with content-type {content_type!r}, not gRPC",
    )


def end_of_reset(code: int) -> StreamEnd:
    """The end of a stream that the peer reset with this code."""
    status = Status(
        _RESET_CODES.get(code, StatusCode.INTERNAL),  # type: ignore[call-overload]
        f"stream reset by peer: {name_error_code(code)}",
    )
    # "REFUSED_STREAM: indicates that no processing occurred" - gRPC over HTTP/2
    return StreamEnd(status, is_unprocessed=code == ErrorCode.REFUSED_STREAM)


def status_of_trailers(code_text: bytes, message: bytes) -> Status:
    """The status of these values of `grpc-status` and `grpc-message`."""
    if code_text == b"0":
        # As in grpcio: a message of a successful RPC is ignored.
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
    # "decoders … must not … discard the message": bad bytes are replaced, not rejected.
    return unquote_to_bytes(message).decode("utf-8", "replace")
