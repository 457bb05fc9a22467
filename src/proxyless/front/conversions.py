"""Conversions between our types and grpcio's: status codes, metadata, compression, connectivity."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import grpc
import grpc.aio

from proxyless.base import (
    EMPTY_METADATA,
    RESERVED_KEYS,
    Metadata,
    State,
    Status,
    StatusCode,
    validate_metadata,
)
from proxyless.wire import IDENTITY, StreamEnd

# Metadata as an application passes it.
MetadataLike = Iterable[tuple[str, str | bytes]]
Serializer = Callable[[Any], bytes] | None
Deserializer = Callable[[bytes], Any] | None

# The wording of grpcio.
COLLECTED: Final = Status(StatusCode.CANCELLED, "Cancelled upon garbage collection!")
# For blocking calls that return a response, and for those that return a call.
CLOSED: Final = "Cannot invoke RPC on closed channel!"
CLOSED_TO_CALLS: Final = "Cannot invoke RPC: Channel closed!"
# "Response cardinality violation": UNIMPLEMENTED - statuscodes.md
NO_MESSAGE: Final = Status(
    StatusCode.UNIMPLEMENTED, "server ended the call with OK but sent no message"
)
SECOND_MESSAGE: Final = Status(
    StatusCode.UNIMPLEMENTED, "server sent more than one message in a call that has one"
)

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_STATES: Final = {
    State.IDLE: grpc.ChannelConnectivity.IDLE,
    State.CONNECTING: grpc.ChannelConnectivity.CONNECTING,
    State.READY: grpc.ChannelConnectivity.READY,
    State.TRANSIENT_FAILURE: grpc.ChannelConnectivity.TRANSIENT_FAILURE,
    State.SHUTDOWN: grpc.ChannelConnectivity.SHUTDOWN,
}
_ENCODINGS: Final = {
    None: None,
    grpc.Compression.NoCompression: IDENTITY,
    grpc.Compression.Deflate: "deflate",
    grpc.Compression.Gzip: "gzip",
}


def to_grpc_code(code: StatusCode) -> grpc.StatusCode:
    return _CODES[int(code)]


def to_grpc_state(state: State) -> grpc.ChannelConnectivity:
    return _STATES[state]


def to_encoding(compression: grpc.Compression | None, default: str) -> str:
    """The message encoding of grpcio's compression."""
    if compression not in _ENCODINGS:
        raise ValueError(f"compression {compression!r} is not known, wanted a grpc.Compression")
    return _ENCODINGS[compression] or default


def check_timeout(timeout: Any) -> float | None:
    """An application's timeout. Raises TypeError if it is not a number."""
    if timeout is None or isinstance(timeout, int | float):
        return timeout
    from numbers import Real  # noqa: PLC0415 - rare: a number of numpy, a fraction

    if isinstance(timeout, Real):
        return float(timeout)
    raise TypeError(f"timeout is {timeout!r}, wanted a number of seconds")


def to_metadata(metadata: MetadataLike | None) -> Metadata:
    """An application's metadata.

    Raises TypeError or InvalidMetadataError naming the key, ValueError for what is not pairs.
    """
    if not metadata:
        return EMPTY_METADATA
    pairs = tuple(metadata)
    try:
        return validate_metadata(pairs)
    except (TypeError, ValueError):
        return validate_metadata(_drop_reserved(pairs))


def _drop_reserved(pairs: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Make valid metadata of pairs that grpcio accepts.

    Applications pass on metadata that they received, so reserved keys are dropped.
    """
    for pair in pairs:
        try:
            name, value = pair
        except (TypeError, ValueError) as error:
            # Without the item, which may be secret.
            text = f"metadata has an item of type {type(pair).__name__}"
            wanted = "wanted pairs of key and value, as of dict.items()"
            raise type(error)(f"{text}: {wanted}") from None
        key = name.decode("latin-1") if isinstance(name, bytes) else name
        if key not in RESERVED_KEYS:
            yield key, "" if value is None else value


def to_debug_string(status: Status) -> str:
    """The text of a failure; empty for OK."""
    return "" if status.is_ok else str(status)


def to_aio_metadata(metadata: Metadata) -> grpc.aio.Metadata:
    return grpc.aio.Metadata(*metadata)


def serialize(serializer: Serializer, message: object) -> bytes | Status:
    """The bytes of a message, or an error."""
    if serializer is None:
        if isinstance(message, bytes):
            return message
        text = f"request is {type(message).__name__}, wanted bytes: the method has no serializer"
        return Status(StatusCode.INTERNAL, text)
    try:
        serialized: object = serializer(message)
    except Exception as error:
        return Status(StatusCode.INTERNAL, f"request serializer raised {_describe(error)}")
    if isinstance(serialized, bytes):
        return serialized
    text = f"request serializer returned {type(serialized).__name__}, wanted bytes"
    return Status(StatusCode.INTERNAL, text)


def deserialize(deserializer: Deserializer, message: bytes) -> tuple[Any, Status | None]:
    """The message and None, or None and an error."""
    if deserializer is None:
        return message, None
    try:
        return deserializer(message), None
    except Exception as error:
        text = f"response deserializer raised {_describe(error)}"
        return None, Status(StatusCode.INTERNAL, text)


def to_aio_error(end: StreamEnd, initial_metadata: Metadata) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        to_grpc_code(end.status.code),
        to_aio_metadata(initial_metadata),
        to_aio_metadata(end.trailers),
        details=end.status.details,
        debug_error_string=str(end.status),
    )


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
