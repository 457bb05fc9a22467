"""Unit tests of proxyless.base.metadata."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base.metadata import (
    RESERVED_KEYS,
    decode_field,
    encode_metadata,
    validate_metadata,
)

KEYS = st.from_regex(r"[0-9a-z_.\-]+", fullmatch=True).filter(lambda key: key not in RESERVED_KEYS)
TEXT_KEYS = KEYS.filter(lambda key: not key.endswith("-bin"))
TEXT_PAIRS = st.tuples(TEXT_KEYS, st.from_regex(r"[\x20-\x7e]*", fullmatch=True))
BINARY_PAIRS = st.tuples(KEYS.map("{}-bin".format), st.binary())


@given(st.lists(TEXT_PAIRS | BINARY_PAIRS))
def test_valid_metadata_is_decoded_as_it_was_encoded(pairs: list[tuple[str, str | bytes]]) -> None:
    metadata = validate_metadata(pairs)
    decoded = [pair for field in encode_metadata(metadata) for pair in decode_field(*field)]
    assert decoded == pairs


def test_order_and_repeated_keys_are_kept() -> None:
    pairs = [("b", "1"), ("a", "2"), ("b", "3")]
    assert validate_metadata(iter(pairs)) == tuple(pairs)


def test_an_ascii_key_takes_bytes_of_printable_ascii() -> None:
    metadata = validate_metadata([("a", b"x y")])
    assert encode_metadata(metadata) == [(b"a", b"x y")]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("Upper", "x", "metadata key 'Upper' is not valid: wanted lower-case letters, digits"),
        ("", "x", "metadata key '' is not valid"),
        ("a b", "x", "metadata key 'a b' is not valid"),
        ("a\n", "x", r"metadata key 'a\n' is not valid"),
        (":path", "x", "metadata key ':path' is not valid"),
        ("grpc-timeout", "1S", "metadata key 'grpc-timeout' is reserved for the transport"),
        ("a", "tab\t", "metadata value of 'a' is not printable ASCII"),
        ("a", "line\n", "metadata value of 'a' is not printable ASCII"),
        ("a", "é", "metadata value of 'a' is not printable ASCII"),
        ("a", b"\xe9", "metadata value of 'a' is not printable ASCII"),
    ],
)
def test_bad_content_is_a_value_error_that_names_it(
    key: str, value: str | bytes, text: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below.
        validate_metadata([("good", "x"), (key, value)])
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (b"a", "x", "metadata key b'a' is bytes, wanted str"),
        ("a", 1, "metadata value of 'a' is int, wanted str"),
        ("a-bin", "x", "metadata value of 'a-bin' is str, wanted bytes"),
    ],
)
def test_bad_type_is_a_type_error_that_names_it(
    key: Any,  # noqa: ANN401 - what an untyped caller may pass.
    value: Any,  # noqa: ANN401
    text: str,
) -> None:
    with pytest.raises(TypeError) as caught:
        validate_metadata([(key, value)])
    assert str(caught.value) == text


def test_binary_values_are_sent_unpadded() -> None:
    assert encode_metadata((("k-bin", b"a"),)) == [(b"k-bin", b"YQ")]


@pytest.mark.parametrize("wire", [b"YQ", b"YQ=="])
def test_padded_and_unpadded_binary_values_are_accepted(wire: bytes) -> None:
    assert decode_field(b"k-bin", wire) == (("k-bin", b"a"),)


def test_a_binary_field_may_hold_several_values() -> None:
    assert decode_field(b"k-bin", b"YQ==, Yg,Yw") == (
        ("k-bin", b"a"),
        ("k-bin", b"b"),
        ("k-bin", b"c"),
    )


@pytest.mark.parametrize("bad", [b"!!", b"Y", b"\xff\xfe", b"Y Q"])
def test_only_the_value_that_is_not_base64_is_dropped(bad: bytes) -> None:
    assert decode_field(b"k-bin", b"YQ," + bad + b",Yg") == (("k-bin", b"a"), ("k-bin", b"b"))
    assert decode_field(b"k-bin", bad) == ()


@given(st.binary(), st.binary())
def test_no_received_field_raises(name: bytes, value: bytes) -> None:
    for key, _ in decode_field(name, value) + decode_field(name + b"-bin", value):
        assert key.encode("latin-1").startswith(name)
