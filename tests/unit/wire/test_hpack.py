"""Unit tests of proxyless.wire.hpack. The package `hpack` is the second opinion."""

from contextlib import suppress

import pytest
from hpack import Decoder, Encoder, NeverIndexedHeaderTuple
from hypothesis import given
from hypothesis import strategies as st

from proxyless.wire.errors import ErrorCode, RemoteProtocolError
from proxyless.wire.hpack import (
    CACHED_BLOCK_BYTES_MAX,
    CACHED_BLOCK_FIELDS_MAX,
    CACHED_BLOCKS_MAX,
    Field,
    HeaderDecoder,
    HeaderListTooLarge,
    decode_fields,
    encode_field,
    encode_fields,
)

LIMIT = 16 * 1024

FIELDS = st.lists(
    st.tuples(
        st.sampled_from([b":path", b"grpc-status", b"te", b"x-a", b"authorization", b"cookie"])
        | st.binary(min_size=1, max_size=200),
        st.sampled_from([b"/", b"trailers", b"gzip, deflate", b""]) | st.binary(max_size=400),
    ),
    max_size=8,
)


# Sending


@given(FIELDS)
def test_what_we_encode_the_hpack_package_decodes(fields: list[Field]) -> None:
    decoder = Decoder()
    decoder.max_allowed_table_size = decoder.header_table_size = 0
    decoded = decoder.decode(encode_fields(fields), raw=True)
    assert [(bytes(name), bytes(value)) for name, value in decoded] == fields


@given(FIELDS)
def test_encoding_leaves_no_trace_in_the_decoder(fields: list[Field]) -> None:
    decoder = Decoder()
    decoder.decode(encode_fields(fields), raw=True)
    assert not decoder.header_table.dynamic_entries


@pytest.mark.parametrize("index", range(61))
def test_a_field_of_the_static_table_is_one_byte(index: int) -> None:
    name, value = Decoder().header_table.get_by_index(index + 1)
    assert encode_field(name, value) == bytes((0x80 | index + 1,))


@pytest.mark.parametrize("name", [b"authorization", b"proxy-authorization", b"cookie"])
def test_a_secret_is_never_indexed(name: bytes) -> None:
    (field,) = Decoder().decode(encode_field(name, b"secret"), raw=True)
    assert isinstance(field, NeverIndexedHeaderTuple)


def test_another_field_may_be_indexed_by_intermediaries() -> None:
    (field,) = Decoder().decode(encode_field(b"x-name", b"value"), raw=True)
    assert not isinstance(field, NeverIndexedHeaderTuple)


# Receiving


@given(FIELDS, st.booleans())
def test_what_the_hpack_package_encodes_we_decode(fields: list[Field], huffman: bool) -> None:
    encoder = Encoder()
    encoder.header_table_size = 0
    assert decode_fields(encoder.encode(fields, huffman=huffman), LIMIT) == fields


@given(FIELDS)
def test_our_blocks_can_be_concatenated(fields: list[Field]) -> None:
    blocks = b"".join(encode_fields([field]) for field in fields)
    assert decode_fields(blocks, LIMIT) == fields


@pytest.mark.parametrize(
    ("block", "field"),
    [
        # RFC 7541, appendix C.2 and C.4.
        ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", ("custom-key", "custom-header")),
        ("040c2f73616d706c652f70617468", (":path", "/sample/path")),
        ("100870617373776f726406736563726574", ("password", "secret")),
        ("82", (":method", "GET")),
        ("418cf1e3c2e5f23a6ba0ab90f4ff", (":authority", "www.example.com")),
        ("408825a849e95ba97d7f8925a849e95bb8e8b4bf", ("custom-key", "custom-value")),
    ],
)
def test_examples_of_rfc_7541(block: str, field: tuple[str, str]) -> None:
    name, value = field
    assert decode_fields(bytes.fromhex(block), LIMIT) == [(name.encode(), value.encode())]


def test_a_table_of_size_0_may_be_announced_at_the_beginning() -> None:
    assert decode_fields(b"\x20\x20\x82", LIMIT) == [(b":method", b"GET")]


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (b"\x80", "index 0 is not in the table"),
        (b"\xbe", "index 62 is not in the table"),
        (b"\x7f\x00\x01v", "index 63 is not in the table"),
        (b"\x0f\x80\x01\x01v", "index 143 is not in the table"),
        (b"\x82\x20", "table size update not allowed"),
        (b"\x21", "table size update not allowed"),
        (b"\x3f\xe1\x1f", "table size update not allowed"),
        (b"\xff\xff\xff\xff\xff\x00", "integer too long"),
        (b"\x00\x7f\xff\xff\xff\xff\xff\xff\x01", "integer too long"),
        (b"\x00", "it ends in the middle of a field"),
        (b"\x00\x05name", "it ends in the middle of a field"),
        (b"\x00\x04name", "it ends in the middle of a field"),
        (b"\x00\x04name\x05", "it ends in the middle of a field"),
        (b"\xff", "it ends in the middle of a field"),
        (b"\xff\x80", "it ends in the middle of a field"),
        # Padding of more than seven bits, of zeros, and the code of EOS.
        (b"\x04\x82\xff\xff", ""),
        (b"\x04\x81\x00", ""),
        (b"\x04\x84\xff\xff\xff\xff", ""),
    ],
)
def test_what_is_not_hpack_is_a_compression_error(block: bytes, text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f"header block is not HPACK: {text}") as caught:
        decode_fields(block, LIMIT)
    assert caught.value.code is ErrorCode.COMPRESSION_ERROR


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_a_compression_error(block: bytes) -> None:
    with suppress(RemoteProtocolError):
        assert sum(len(name) + len(value) for name, value in decode_fields(block, LIMIT)) <= LIMIT


def test_a_list_is_measured_with_32_bytes_per_field() -> None:
    block = encode_fields([(b"x-a", b"1"), (b"x-b", b"22")])
    size = (3 + 1 + 32) + (3 + 2 + 32)
    assert len(decode_fields(block, size)) == 2
    with pytest.raises(HeaderListTooLarge):
        decode_fields(block, size - 1)


def test_decoding_stops_where_the_list_is_too_large() -> None:
    bomb = encode_field(b"accept-encoding", b"gzip, deflate") * 100_000
    with pytest.raises(HeaderListTooLarge):
        decode_fields(bomb + b"\x80", LIMIT)


def test_a_huffman_string_that_cannot_fit_is_not_decoded() -> None:
    # The longest code has 30 bits: these octets are more than 4 x LIMIT characters, and wrong.
    length = 5 * LIMIT
    block = b"\x00\xff" + _continue(length - 127) + b"\xff" * length
    with pytest.raises(HeaderListTooLarge):
        decode_fields(block, LIMIT)


def _continue(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Remembering


class Understanding:
    """Counts how often a block had to be understood."""

    def __init__(self) -> None:
        self.seen: list[list[Field]] = []
        self.decoder = HeaderDecoder(self.understand, LIMIT)

    def understand(self, fields: list[Field]) -> list[Field]:
        self.seen.append(fields)
        return fields


def test_a_repeated_block_is_understood_once() -> None:
    understanding = Understanding()
    block = encode_fields([(b"x-a", b"1")])
    assert understanding.decoder.known(block) is None
    first = understanding.decoder.decode(block)
    assert understanding.decoder.decode(bytes(block)) is first
    assert understanding.decoder.known(block) is first
    assert understanding.seen == [[(b"x-a", b"1")]]


def test_a_large_block_is_not_remembered() -> None:
    understanding = Understanding()
    block = encode_fields([(b"x-a", b"v" * CACHED_BLOCK_BYTES_MAX)])
    understanding.decoder.decode(block)
    assert understanding.decoder.known(block) is None


def test_a_block_of_many_fields_is_not_remembered() -> None:
    understanding = Understanding()
    block = encode_fields([(b"accept-encoding", b"gzip, deflate")] * CACHED_BLOCK_FIELDS_MAX)
    understanding.decoder.decode(block)
    assert understanding.decoder.known(block) is not None
    understanding.decoder.decode(block + b"\x82")
    assert understanding.decoder.known(block + b"\x82") is None


def test_only_so_many_blocks_are_remembered() -> None:
    understanding = Understanding()
    blocks = [encode_fields([(b"x-a", b"%d" % n)]) for n in range(CACHED_BLOCKS_MAX + 1)]
    for block in blocks:
        understanding.decoder.decode(block)
    assert understanding.decoder.known(blocks[0]) is None
    assert understanding.decoder.known(blocks[-1]) is not None


def test_a_bad_block_is_bad_every_time() -> None:
    understanding = Understanding()
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            understanding.decoder.decode(b"\x80")
    with pytest.raises(HeaderListTooLarge):
        understanding.decoder.decode(encode_fields([(b"x-a", b"v" * LIMIT)]))
    assert not understanding.seen
