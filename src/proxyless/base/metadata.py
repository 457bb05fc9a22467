"""Metadata of an RPC: validation, encoding and decoding.

Specs: gRPC over HTTP/2 ("Custom-Metadata", "Binary-Header").

Metadata is a tuple of pairs; keys may repeat. The value of a key that ends in `-bin` is bytes, of
every other key printable ASCII text.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable

Metadata = tuple[tuple[str, str | bytes], ...]

EMPTY: Metadata = ()

# "Header-Name → 1*( %x30-39 / %x61-7A / '_' / '-' / '.')" - gRPC over HTTP/2
_KEY = re.compile(r"[0-9a-z_.\-]+").fullmatch
# "ASCII-Value → 1*( %x20-%x7E )" - gRPC over HTTP/2; the empty value is common practice.
_ASCII_VALUE = re.compile(r"[\x20-\x7e]*").fullmatch

# Set by the transport for every call; an application cannot replace them.
RESERVED_KEYS = frozenset(
    {
        "te",
        "content-type",
        "content-length",
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "grpc-timeout",
        "grpc-encoding",
        "grpc-accept-encoding",
        "grpc-message-type",
        "grpc-previous-rpc-attempts",
        "grpc-status",
        "grpc-message",
    }
)


class InvalidMetadataError(ValueError):
    """A key or a value of metadata that cannot be sent."""


def validate_metadata(pairs: Iterable[tuple[str, str | bytes]]) -> Metadata:
    """Return the pairs as Metadata. Raises TypeError or InvalidMetadataError naming the key."""
    metadata = tuple((key, value) for key, value in pairs)
    for key, value in metadata:
        _check_key(key)
        _check_value(key, value)
    return metadata


def _check_key(key: str) -> None:
    if not isinstance(key, str):
        raise TypeError(f"metadata key {key!r} is {type(key).__name__}, wanted str")
    if not _KEY(key):
        raise InvalidMetadataError(
            f"metadata key {key!r} is not valid: wanted lower-case letters, digits, '-', '_', '.'"
        )
    if key in RESERVED_KEYS:
        raise InvalidMetadataError(f"metadata key {key!r} is reserved for the transport")


def _check_value(key: str, value: str | bytes) -> None:
    if key.endswith("-bin"):
        if not isinstance(value, bytes):
            raise TypeError(f"metadata value of {key!r} is {type(value).__name__}, wanted bytes")
        return
    if not isinstance(value, str | bytes):
        raise TypeError(f"metadata value of {key!r} is {type(value).__name__}, wanted str")
    # grpcio accepts bytes for ASCII keys too.
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    if not _ASCII_VALUE(text):
        raise InvalidMetadataError(f"metadata value of {key!r} is not printable ASCII")


def encode_metadata(metadata: Metadata) -> list[tuple[bytes, bytes]]:
    """Header fields for valid metadata."""
    return [(key.encode("ascii"), encode_value(key, value)) for key, value in metadata]


def encode_value(key: str, value: str | bytes) -> bytes:
    """Value of the header field for a pair of valid metadata."""
    raw = value if isinstance(value, bytes) else value.encode("ascii")
    # "implementations … should emit un-padded values" - gRPC over HTTP/2
    return b64encode(raw).rstrip(b"=") if key.endswith("-bin") else raw


def decode_field(name: bytes, value: bytes) -> Metadata:
    """Metadata pairs for one received header field.

    A `-bin` field may hold several values separated by commas. A value that is not base64 is
    dropped: a peer's bad header must not fail an RPC that does not use it.
    """
    key = name.decode("latin-1")
    if not key.endswith("-bin"):
        return ((key, value.decode("latin-1")),)
    decoded = (_decode_base64(part) for part in value.split(b","))
    return tuple((key, part) for part in decoded if part is not None)


def _decode_base64(text: bytes) -> bytes | None:
    # "Implementations must accept padded and un-padded values" - gRPC over HTTP/2
    stripped = text.strip().rstrip(b"=")
    try:
        return b64decode(stripped + b"=" * (-len(stripped) % 4), validate=True)
    except Base64Error:
        return None
