"""Header lists of gRPC: encoding and parsing of requests, response heads and trailers.

Specs: gRPC over HTTP/2 ("Requests", "Responses").

`RequestEncoder` encodes the fields that all calls of a method have in common once.
"""

from collections.abc import Sequence
from math import ceil
from typing import Final

from proxyless.base.frozen import frozen
from proxyless.base.metadata import EMPTY, Metadata, decode_field, encode_metadata, encode_value
from proxyless.base.status import Status, StatusCode
from proxyless.wire.hpack import WITHOUT_TABLE, Field, encode_field, encode_fields
from proxyless.wire.status import (
    StreamEnd,
    encode_grpc_message,
    status_of_http,
    status_of_trailers,
)

CONTENT_TYPE: Final = b"application/grpc"
ACCEPT_ENCODING: Final = b"identity,deflate,gzip"
IDENTITY: Final = "identity"


def is_grpc_content_type(content_type: bytes) -> bool:
    # '"content-type" "application/grpc" [("+proto" / "+json" / {custom})]' - gRPC over HTTP/2.
    # gRPC-Web's "application/grpc-web" does not match.
    rest = content_type.removeprefix(CONTENT_TYPE)
    return rest != content_type and rest[:1] in (b"", b"+", b";")


# Timeouts

_TIMEOUT_DIGITS_MAX: Final = 8
_TIMEOUT_UNITS: Final = (
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("S", 1.0),
    ("M", 60.0),
    ("H", 3600.0),
)
_SECONDS_OF_UNIT: Final = {unit.encode(): seconds for unit, seconds in _TIMEOUT_UNITS}
_CACHED_TIMEOUTS_MAX: Final = 256


def encode_timeout(timeout_s: float) -> bytes:
    """`grpc-timeout` in the finest unit that holds the value in eight digits, rounded up."""
    for unit, seconds in _TIMEOUT_UNITS:
        amount = max(timeout_s, 0.0) / seconds - 1e-6
        if amount <= 10**_TIMEOUT_DIGITS_MAX - 1:
            return f"{ceil(amount)}{unit}".encode()
    return b"99999999H"


def decode_timeout(value: bytes) -> float | None:
    """Seconds, or None if the value is not a timeout."""
    seconds = _SECONDS_OF_UNIT.get(value[-1:])
    digits = value[:-1]
    if seconds is None or not digits.isdigit() or len(digits) > _TIMEOUT_DIGITS_MAX:
        return None
    return int(digits) * seconds


# Requests


class RequestEncoder:
    """Encodes the header blocks of calls to one method at one authority."""

    __slots__ = ("_constant", "_with_timeout")

    def __init__(
        self, *, path: str, authority: str, scheme: str = "http", user_agent: str = "proxyless"
    ) -> None:
        """Raises ValueError for a path that is not valid in a header."""
        if not (path.isascii() and path.isprintable()):
            raise ValueError(f"method {path!r} is not valid, wanted printable ASCII")
        self._constant = WITHOUT_TABLE + encode_fields(
            (
                (b":method", b"POST"),
                (b":scheme", scheme.encode("ascii")),
                (b":path", path.encode("ascii")),
                (b":authority", authority.encode("ascii")),
                (b"te", b"trailers"),
                (b"content-type", CONTENT_TYPE),
                (b"user-agent", user_agent.encode("ascii")),
                (b"grpc-accept-encoding", ACCEPT_ENCODING),
            )
        )
        # The constant fields and the timeout, by timeout: applications use few distinct ones.
        self._with_timeout: dict[float | None, bytes] = {}

    def block(
        self,
        timeout_s: float | None = None,
        metadata: Metadata = EMPTY,
        encoding: str = IDENTITY,
    ) -> bytes:
        """The block of one call. The metadata must be valid (`validate_metadata`)."""
        block = self._with_timeout.get(timeout_s) or self._add_timeout(timeout_s)
        if encoding != IDENTITY:
            block += encode_field(b"grpc-encoding", encoding.encode("ascii"))
        if metadata:
            for key, value in metadata:
                block += encode_field(key.encode("ascii"), encode_value(key, value))
        return block

    def _add_timeout(self, timeout_s: float | None) -> bytes:
        block = self._constant
        if timeout_s is not None:
            block += encode_field(b"grpc-timeout", encode_timeout(timeout_s))
        if len(self._with_timeout) >= _CACHED_TIMEOUTS_MAX:
            self._with_timeout.clear()
        self._with_timeout[timeout_s] = block
        return block


@frozen
class RequestBlock:
    """Parsed header list of a request."""

    method: bytes
    path: str
    authority: str
    content_type: bytes
    timeout_s: float | None
    encoding: str
    metadata: Metadata

    @property
    def is_grpc(self) -> bool:
        return is_grpc_content_type(self.content_type)


_REQUEST_FIELDS: Final = frozenset(
    {b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"}
)


def parse_request(fields: Sequence[Field]) -> RequestBlock:
    by_name = dict(fields)
    timeout = by_name.get(b"grpc-timeout")
    return RequestBlock(
        method=by_name.get(b":method", b""),
        path=by_name.get(b":path", b"").decode("latin-1"),
        authority=by_name.get(b":authority", b"").decode("latin-1"),
        content_type=by_name.get(b"content-type", b""),
        timeout_s=None if timeout is None else decode_timeout(timeout),
        encoding=by_name.get(b"grpc-encoding", b"identity").decode("latin-1"),
        metadata=_metadata_of(fields, _REQUEST_FIELDS),
    )


# Responses


def encode_response_head(metadata: Metadata = EMPTY, encoding: str = IDENTITY) -> bytes:
    fields = [(b":status", b"200"), (b"content-type", CONTENT_TYPE)]
    if encoding != IDENTITY:
        fields.append((b"grpc-encoding", encoding.encode("ascii")))
    return encode_fields(fields + encode_metadata(metadata))


def encode_trailers(status: Status, metadata: Metadata = EMPTY) -> bytes:
    fields = [(b"grpc-status", str(int(status.code)).encode("ascii"))]
    if status.details:
        fields.append((b"grpc-message", encode_grpc_message(status.details)))
    return encode_fields(fields + encode_metadata(metadata))


@frozen
class ResponseBlock:
    """Parsed header list of a response: head, trailers, or both (trailers-only)."""

    metadata: Metadata
    encoding: str
    # A 1xx response, which another response head follows.
    is_informational: bool
    # The end of the call if this block is its response head; None if it is a valid head.
    refusal: StreamEnd | None
    # The end of the call if this block carries END_STREAM.
    end: StreamEnd


_RESPONSE_FIELDS: Final = frozenset(
    {b"content-type", b"grpc-encoding", b"grpc-accept-encoding", b"grpc-status", b"grpc-message"}
)
_HTTP_OK: Final = 200
_INFORMATIONAL: Final = range(100, 200)
_NO_STATUS: Final = Status(StatusCode.UNKNOWN, "peer ended the stream without grpc-status")


def parse_response(fields: Sequence[Field]) -> ResponseBlock:
    by_name = dict(fields)
    metadata = _metadata_of(fields, _RESPONSE_FIELDS)
    refusal = _refuse_head(by_name)
    code = by_name.get(b"grpc-status")
    if code is not None:
        status = status_of_trailers(code, by_name.get(b"grpc-message", b""))
    elif b":status" in by_name and refusal is not None:
        status = refusal
    else:
        status = _NO_STATUS
    return ResponseBlock(
        metadata=metadata,
        encoding=by_name.get(b"grpc-encoding", b"identity").decode("latin-1"),
        is_informational=_http_status(by_name) in _INFORMATIONAL,
        refusal=None if refusal is None else StreamEnd(refusal, metadata),
        end=StreamEnd(status, metadata, is_from_trailers=True),
    )


def _refuse_head(by_name: dict[bytes, bytes]) -> Status | None:
    """The error of fields that are not a valid gRPC response head, or None."""
    if b":status" not in by_name:
        return Status(StatusCode.INTERNAL, "peer sent a response head without :status")
    http_status = _http_status(by_name)
    content_type = by_name.get(b"content-type", b"")
    if http_status == _HTTP_OK and is_grpc_content_type(content_type):
        return None
    return status_of_http(http_status, content_type.decode("latin-1"))


def _http_status(by_name: dict[bytes, bytes]) -> int:
    """The value of :status, 0 if that is not a number of three digits."""
    text = by_name.get(b":status", b"")
    return int(text) if len(text) == len(b"200") and text.isdigit() else 0


def _metadata_of(fields: Sequence[Field], excluded: frozenset[bytes]) -> Metadata:
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if name not in excluded and not name.startswith(b":"):
            metadata += decode_field(name, value)
    return tuple(metadata)
