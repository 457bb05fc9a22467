"""Unit tests of proxyless.wire.hpack and huffman, compared with the `hpack` package."""

from contextlib import suppress

import pytest
from hpack import Decoder, Encoder, HPACKError, NeverIndexedHeaderTuple
from hypothesis import given
from hypothesis import strategies as st

from proxyless.wire.errors import ErrorCode, RemoteProtocolError
from proxyless.wire.hpack import (
    CACHED_BLOCK_BYTES_MAX,
    CACHED_BLOCK_FIELDS_MAX,
    CACHED_BLOCKS_MAX,
    STATIC_TABLE,
    TABLE_BYTES_DEFAULT,
    DynamicTable,
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


def test_static_table_is_that_of_the_hpack_package() -> None:
    indexed = bytes(0x80 | index for index in range(1, 62))
    fields = Decoder().decode(indexed, raw=True)
    assert list(STATIC_TABLE) == [(bytes(name), bytes(value)) for name, value in fields]


# Sending


@given(FIELDS)
def test_the_hpack_package_decodes_our_blocks(fields: list[Field]) -> None:
    decoder = Decoder()
    decoder.max_allowed_table_size = decoder.header_table_size = 0
    decoded = decoder.decode(encode_fields(fields), raw=True)
    assert [(bytes(name), bytes(value)) for name, value in decoded] == fields


@pytest.mark.parametrize("size", [0, 126, 127, 128, 254, 255, 20_000])
def test_the_hpack_package_decodes_names_and_values_of_any_size(size: int) -> None:
    fields = [(b"x" * (size + 1), b"v" * size), (b"authorization", b"v" * size)]
    # The names are cached after the first block.
    for _ in range(2):
        decoded = Decoder().decode(encode_fields(fields), raw=True)
        assert [(bytes(name), bytes(value)) for name, value in decoded] == fields


@given(FIELDS)
def test_our_blocks_add_nothing_to_the_dynamic_table(fields: list[Field]) -> None:
    decoder = Decoder()
    decoder.decode(encode_fields(fields), raw=True)
    assert not decoder.header_table.dynamic_entries


@pytest.mark.parametrize("index", range(61))
def test_a_field_of_the_static_table_is_one_byte(index: int) -> None:
    assert encode_field(*STATIC_TABLE[index]) == bytes((0x80 | index + 1,))


@pytest.mark.parametrize("name", [b"authorization", b"proxy-authorization", b"cookie"])
def test_a_secret_is_never_indexed(name: bytes) -> None:
    (field,) = Decoder().decode(encode_field(name, b"secret"), raw=True)
    assert isinstance(field, NeverIndexedHeaderTuple)


def test_another_field_may_be_indexed_by_intermediaries() -> None:
    (field,) = Decoder().decode(encode_field(b"x-name", b"value"), raw=True)
    assert not isinstance(field, NeverIndexedHeaderTuple)


# Receiving


@given(FIELDS, st.booleans())
def test_blocks_of_the_hpack_package_are_decoded(fields: list[Field], huffman: bool) -> None:
    encoder = Encoder()
    encoder.header_table_size = 0
    assert decode_fields(encoder.encode(fields, huffman=huffman), LIMIT) == fields


@pytest.mark.parametrize("first", range(256))
def test_every_symbol_is_decoded_as_the_hpack_package_encodes_it(first: int) -> None:
    value = bytes((first, first ^ 0x55, first, 0x61))
    encoder = Encoder()
    encoder.header_table_size = 0
    encoded = encoder.encode([(b"x", value)], huffman=True)
    assert decode_fields(encoded, LIMIT) == [(b"x", value)]


@given(st.binary(max_size=12))
def test_huffman_strings_are_valid_if_they_are_for_the_hpack_package(coded: bytes) -> None:
    encoded = b"\x04" + bytes((0x80 | len(coded),)) + coded
    try:
        ((_, expected),) = Decoder().decode(encoded, raw=True)
    except HPACKError:
        with pytest.raises(RemoteProtocolError):
            decode_fields(encoded, LIMIT)
    else:
        assert decode_fields(encoded, LIMIT) == [(b":path", bytes(expected))]


@given(st.lists(FIELDS, max_size=6), st.integers(0, TABLE_BYTES_DEFAULT))
def test_a_dynamic_table_is_that_of_the_hpack_package(
    lists: list[list[Field]], table_bytes: int
) -> None:
    encoder, table = Encoder(), DynamicTable(TABLE_BYTES_DEFAULT)
    encoder.header_table_size = table_bytes
    for fields in lists:
        assert decode_fields(encoder.encode(fields), LIMIT, table) == fields


def test_the_oldest_entries_of_a_dynamic_table_are_evicted() -> None:
    # Entries of 36 bytes each: the third evicts the first.
    table = DynamicTable(72)
    decode_fields(b"".join(b"\x40\x02x%d\x02%d" % (n, 10 + n) for n in range(3)), LIMIT, table)
    assert decode_fields(b"\xbe\xbf", LIMIT, table) == [(b"x2", b"12"), (b"x1", b"11")]
    with pytest.raises(RemoteProtocolError, match="index 64 is not in the table"):
        decode_fields(b"\xc0", LIMIT, table)


def test_an_entry_larger_than_the_dynamic_table_empties_it() -> None:
    table = DynamicTable(72)
    decode_fields(b"\x40\x02x0\x0210", LIMIT, table)
    large = b"\x40\x02x1\x7f\x00" + b"v" * 127
    assert decode_fields(large, LIMIT, table) == [(b"x1", b"v" * 127)]
    with pytest.raises(RemoteProtocolError, match="index 62 is not in the table"):
        decode_fields(b"\xbe", LIMIT, table)


def test_a_size_update_above_the_limit_is_a_compression_error() -> None:
    with pytest.raises(RemoteProtocolError, match="table size update not allowed"):
        decode_fields(b"\x3f\xe2\x1f", LIMIT, DynamicTable(TABLE_BYTES_DEFAULT))


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
def test_examples_of_rfc_7541_are_decoded(block: str, field: tuple[str, str]) -> None:
    name, value = field
    assert decode_fields(bytes.fromhex(block), LIMIT) == [(name.encode(), value.encode())]


def test_size_update_to_0_is_allowed_at_the_beginning() -> None:
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
        (b"\x04\x82\xff\xff", "Huffman string is not valid"),
        (b"\x04\x81\x00", "Huffman string is not valid"),
        (b"\x04\x84\xff\xff\xff\xff", "Huffman string is not valid"),
    ],
)
def test_an_invalid_block_is_a_compression_error(block: bytes, text: str) -> None:
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


def test_decoding_stops_at_the_limit_of_the_list() -> None:
    bomb = encode_field(b"accept-encoding", b"gzip, deflate") * 100_000
    with pytest.raises(HeaderListTooLarge):
        decode_fields(bomb + b"\x80", LIMIT)


def test_a_huffman_string_over_the_limit_is_not_decoded() -> None:
    # The longest code has 30 bits: so many octets are more than the limit, and they are invalid.
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


# The cache


class RecordingParser:
    """Records the fields of each block that was not in the decoder's cache."""

    def __init__(self) -> None:
        self.parsed: list[list[Field]] = []
        self.decoder = HeaderDecoder(self.parse, LIMIT)

    def parse(self, fields: list[Field]) -> list[Field]:
        self.parsed.append(fields)
        return fields


def test_a_repeated_block_is_parsed_once() -> None:
    parser = RecordingParser()
    block = encode_fields([(b"x-a", b"1")])
    assert parser.decoder.cached(block) is None
    first = parser.decoder.decode(block)
    assert parser.decoder.decode(bytes(block)) is first
    assert parser.decoder.cached(block) is first
    assert parser.parsed == [[(b"x-a", b"1")]]


def test_a_large_block_is_not_cached() -> None:
    parser = RecordingParser()
    block = encode_fields([(b"x-a", b"v" * CACHED_BLOCK_BYTES_MAX)])
    parser.decoder.decode(block)
    assert parser.decoder.cached(block) is None


def test_a_block_of_many_binary_values_is_not_cached() -> None:
    parser = RecordingParser()
    for commas, is_cached in (
        (CACHED_BLOCK_FIELDS_MAX - 1, True),
        (CACHED_BLOCK_FIELDS_MAX, False),
    ):
        block = encode_fields([(b"x-bin", b"," * commas)])
        parser.decoder.decode(block)
        assert (parser.decoder.cached(block) is not None) is is_cached


def test_a_block_of_many_fields_is_not_cached() -> None:
    parser = RecordingParser()
    block = encode_fields([(b"accept-encoding", b"gzip, deflate")] * CACHED_BLOCK_FIELDS_MAX)
    parser.decoder.decode(block)
    assert parser.decoder.cached(block) is not None
    parser.decoder.decode(block + b"\x82")
    assert parser.decoder.cached(block + b"\x82") is None


def test_the_cache_of_blocks_is_bounded() -> None:
    parser = RecordingParser()
    blocks = [encode_fields([(b"x-a", b"%d" % n)]) for n in range(CACHED_BLOCKS_MAX + 1)]
    for block in blocks:
        parser.decoder.decode(block)
    assert parser.decoder.cached(blocks[0]) is None
    assert parser.decoder.cached(blocks[-1]) is not None


def test_an_invalid_block_is_not_cached() -> None:
    parser = RecordingParser()
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            parser.decoder.decode(b"\x80")
    with pytest.raises(HeaderListTooLarge):
        parser.decoder.decode(encode_fields([(b"x-a", b"v" * LIMIT)]))
    assert not parser.parsed
