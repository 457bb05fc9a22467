"""What does a header block say about a call?

Specs: gRPC over HTTP/2 ("Requests", "Responses").

`RequestEncoder` writes the client's block: the part that is equal for all calls of a method is
encoded once. `ResponseBlock` is what a client understands of a block it received, whether it turns
out to be the head or the trailers; `RequestBlock` is the same for the server role.
"""

from collections.abc import Sequence
from math import ceil
from typing import Final

from proxyless.base.frozen import frozen
from proxyless.base.metadata import EMPTY, Metadata, decode_field, encode_metadata
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
    # So gRPC-Web's "application/grpc-web" is something else.
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
_BEGINNINGS_MAX: Final = 256


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

    __slots__ = ("_beginnings", "_constant")

    def __init__(
        self, *, path: str, authority: str, scheme: str = "http", user_agent: str = "proxyless"
    ) -> None:
        """Raises ValueError for a path that no header can carry."""
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
        # What blocks begin with, by timeout: applications use few distinct ones.
        self._beginnings: dict[float | None, bytes] = {}

    def block(
        self,
        timeout_s: float | None = None,
        metadata: Metadata = EMPTY,
        encoding: str = IDENTITY,
    ) -> bytes:
        """The block of one call. The metadata is valid (`validate_metadata`)."""
        block = self._beginnings.get(timeout_s) or self._begin(timeout_s)
        if encoding != IDENTITY:
            block += encode_field(b"grpc-encoding", encoding.encode("ascii"))
        if metadata:
            block += encode_fields(encode_metadata(metadata))
        return block

    def _begin(self, timeout_s: float | None) -> bytes:
        beginning = self._constant
        if timeout_s is not None:
            beginning += encode_field(b"grpc-timeout", encode_timeout(timeout_s))
        if len(self._beginnings) >= _BEGINNINGS_MAX:
            self._beginnings.clear()
        self._beginnings[timeout_s] = beginning
        return beginning


@frozen
class RequestBlock:
    """What a server understands of the head of a request."""

    method: bytes
    path: str
    authority: str
    content_type: bytes
    timeout_s: float | None
    encoding: str
    accept_encoding: str
    metadata: Metadata

    @property
    def is_grpc(self) -> bool:
        return is_grpc_content_type(self.content_type)


_REQUEST_FIELDS: Final = frozenset(
    {b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"}
)


def understand_request(fields: Sequence[Field]) -> RequestBlock:
    known = dict(fields)
    timeout = known.get(b"grpc-timeout")
    return RequestBlock(
        method=known.get(b":method", b""),
        path=known.get(b":path", b"").decode("latin-1"),
        authority=known.get(b":authority", b"").decode("latin-1"),
        content_type=known.get(b"content-type", b""),
        timeout_s=None if timeout is None else decode_timeout(timeout),
        encoding=known.get(b"grpc-encoding", b"identity").decode("latin-1"),
        accept_encoding=known.get(b"grpc-accept-encoding", b"identity").decode("latin-1"),
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
    """What a client understands of a block that may be a head, trailers, or both at once."""

    metadata: Metadata
    encoding: str
    # "1xx" answers announce nothing; the real head is still to come.
    is_informational: bool
    # Set where the block cannot be the head of a gRPC answer: then this is how the call ends.
    refusal: StreamEnd | None
    # How the call ends if this block carries END_STREAM.
    end: StreamEnd


_RESPONSE_FIELDS: Final = frozenset(
    {b"content-type", b"grpc-encoding", b"grpc-accept-encoding", b"grpc-status", b"grpc-message"}
)
_HTTP_OK: Final = 200
_INFORMATIONAL: Final = range(100, 200)
_NO_STATUS: Final = Status(StatusCode.UNKNOWN, "peer ended the stream without grpc-status")


def understand_response(fields: Sequence[Field]) -> ResponseBlock:
    known = dict(fields)
    metadata = _metadata_of(fields, _RESPONSE_FIELDS)
    refusal = _refuse_head(known)
    code = known.get(b"grpc-status")
    if code is not None:
        status = status_of_trailers(code, known.get(b"grpc-message", b""))
    elif b":status" in known and refusal is not None:
        status = refusal
    else:
        status = _NO_STATUS
    return ResponseBlock(
        metadata=metadata,
        encoding=known.get(b"grpc-encoding", b"identity").decode("latin-1"),
        is_informational=_http_status(known) in _INFORMATIONAL,
        refusal=None if refusal is None else StreamEnd(refusal, metadata),
        end=StreamEnd(status, metadata, is_last_word=True),
    )


def _refuse_head(known: dict[bytes, bytes]) -> Status | None:
    """Why these fields cannot be the head of a gRPC answer, or None."""
    if b":status" not in known:
        return Status(StatusCode.INTERNAL, "peer sent a response head without :status")
    http_status = _http_status(known)
    content_type = known.get(b"content-type", b"")
    if http_status == _HTTP_OK and is_grpc_content_type(content_type):
        return None
    return status_of_http(http_status, content_type.decode("latin-1"))


def _http_status(known: dict[bytes, bytes]) -> int:
    """The number of :status, 0 if it is none: it has three digits."""
    text = known.get(b":status", b"")
    return int(text) if len(text) == len(b"200") and text.isdigit() else 0


def _metadata_of(fields: Sequence[Field], left_out: frozenset[bytes]) -> Metadata:
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if name not in left_out and not name.startswith(b":"):
            metadata += decode_field(name, value)
    return tuple(metadata)
