"""Unit tests of proxyless.front.conversions: an application's metadata and messages."""

import grpc.aio
import pytest

from proxyless.base import RESERVED_KEYS, Status, StatusCode
from proxyless.front.conversions import serialize, to_metadata


def test_valid_metadata_is_unchanged() -> None:
    pairs = (("a", "1"), ("b-bin", b"\0"), ("a", "2"))
    assert to_metadata(pairs) == to_metadata(iter(pairs)) == to_metadata(list(pairs)) == pairs
    assert to_metadata(grpc.aio.Metadata(("a", "1"))) == (("a", "1"),)


@pytest.mark.parametrize("nothing", [None, (), [], grpc.aio.Metadata()])
def test_missing_metadata_is_empty(nothing: object) -> None:
    assert to_metadata(nothing) == ()  # type: ignore[arg-type]


@pytest.mark.parametrize("key", sorted(RESERVED_KEYS))
def test_reserved_keys_are_dropped(key: str) -> None:
    assert to_metadata([("a", "1"), (key, "x"), ("b", "2")]) == (("a", "1"), ("b", "2"))


def test_metadata_that_grpcio_accepts_is_made_valid() -> None:
    assert to_metadata([(b"key", "1"), ("none", None)]) == (  # type: ignore[list-item]
        ("key", "1"),
        ("none", ""),
    )


@pytest.mark.parametrize(
    ("pair", "kind", "text"),
    [
        (("Upper", "x"), ValueError, "'Upper' is not valid"),
        ((b"\xff", "x"), ValueError, "'ÿ' is not valid"),
        (("a", "\n"), ValueError, "'a' is not printable ASCII"),
        (("a-bin", "text"), TypeError, "'a-bin' is str, wanted bytes"),
        ((5, "x"), TypeError, "key 5 is int, wanted str"),
    ],
)
def test_invalid_metadata_raises_with_its_key(
    pair: object, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        to_metadata([("te", "left out"), pair])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("metadata", "kind", "given"),
    [
        ({"authorization": "x"}, ValueError, "str"),
        (("authorization", "x"), ValueError, "str"),
        ([("authorization", "x", "y")], ValueError, "tuple"),
        ([5], TypeError, "int"),
    ],
)
def test_metadata_that_is_not_pairs_raises_the_type_of_grpcio_and_shows_no_value(
    metadata: object, kind: type[Exception], given: str
) -> None:
    wanted = "wanted pairs of key and value, as of dict.items()"
    with pytest.raises(kind) as caught:
        to_metadata(metadata)  # type: ignore[arg-type]
    assert str(caught.value) == f"metadata has an item of type {given}: {wanted}"


class Message(bytes):
    """A subclass of bytes."""


@pytest.mark.parametrize("serialized", [b"", b"message", Message(b"message")])
def test_bytes_are_sent_as_the_serializer_returned_them(serialized: bytes) -> None:
    assert serialize(lambda _: serialized, "request") is serialized
    assert serialize(None, serialized) is serialized


@pytest.mark.parametrize("returned", ["text", None, 5, bytearray(b"mutable"), memoryview(b"view")])
def test_a_serializer_that_does_not_return_bytes_is_an_error(returned: object) -> None:
    kind = type(returned).__name__
    assert serialize(lambda _: returned, "request") == Status(  # type: ignore[arg-type, return-value]
        StatusCode.INTERNAL, f"request serializer returned {kind}, wanted bytes"
    )
    assert serialize(None, returned) == Status(
        StatusCode.INTERNAL, f"request is {kind}, wanted bytes: the method has no serializer"
    )


def test_a_serializer_that_raises_is_an_error() -> None:
    def bug(request: object) -> bytes:
        raise KeyError(request)

    text = "request serializer raised KeyError: 'request'"
    assert serialize(bug, "request") == Status(StatusCode.INTERNAL, text)


@pytest.mark.parametrize("key", ["content-length", "grpc-previous-rpc-attempts"])
def test_metadata_that_grpcio_leaves_out_is_left_out(key: str) -> None:
    assert to_metadata([("a", "1"), (key, "3")]) == (("a", "1"),)
