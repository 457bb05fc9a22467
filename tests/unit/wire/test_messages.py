"""Unit tests of proxyless.wire.messages."""

import gzip
import tracemalloc
import zlib
from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import StatusCode
from proxyless.wire.limits import PACKED_PART_BYTES, UNPACKED_PART_BYTES
from proxyless.wire.messages import (
    ENCODINGS,
    PREFIX_BYTES,
    HeldMessages,
    MessageAssembler,
    MessageError,
    compress,
    decompress,
    pack_data_and_prefix,
    pack_prefix,
    unpack_prefix,
)
from tests.worlds.wire import prefixed

MAX = 1000
MB = 1024 * 1024
MESSAGES = st.lists(st.binary(max_size=60), max_size=6)


def feed_in_pieces(assembler: MessageAssembler, data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    messages: list[bytes] = []
    for start, stop in pairwise(edges):
        messages += [message for _, message in assembler.feed(data[start:stop])]
    return messages


def test_the_prefix_is_a_flag_and_a_length() -> None:
    assert pack_prefix(1, 258) == b"\x01\x00\x00\x01\x02"
    assert unpack_prefix(b"..\x01\x00\x00\x01\x02", 2) == (1, 258)


def test_frame_head_and_prefix_are_packed_together() -> None:
    assert pack_data_and_prefix(0x000102 << 8, 1, 5, 0, 0xFD) == bytes.fromhex(
        "000102 00 01 00000005 00 000000fd"
    )


@given(MESSAGES, st.lists(st.integers(0, 400), max_size=12))
def test_messages_are_assembled_from_any_pieces(messages: list[bytes], cuts: list[int]) -> None:
    data = b"".join(prefixed(message) for message in messages)
    assembler = MessageAssembler(MAX)
    assert feed_in_pieces(assembler, data, cuts) == messages
    assert not assembler.is_partial


@given(MESSAGES, st.binary(min_size=1, max_size=40), st.integers(1, 44))
def test_a_message_that_is_not_complete_is_partial(
    messages: list[bytes], last: bytes, missing: int
) -> None:
    tail = prefixed(last)
    data = b"".join(prefixed(message) for message in messages)
    assembler = MessageAssembler(MAX)
    kept = tail[: max(len(tail) - missing, 1)]
    assert feed_in_pieces(assembler, data + kept, []) == messages
    assert assembler.is_partial
    assert [message for _, message in assembler.feed(tail[len(kept) :])] == [last]


def test_the_compressed_flag_is_passed_on() -> None:
    data = prefixed(b"a") + prefixed(b"b", compressed=1)
    assert list(MessageAssembler(MAX).feed(data)) == [(0, b"a"), (1, b"b")]


def test_an_unknown_flag_is_an_internal_error() -> None:
    with pytest.raises(MessageError, match="compressed flag 2, wanted 0 or 1") as caught:
        list(MessageAssembler(MAX).feed(b"\x02\0\0\0\0"))
    assert caught.value.status.code is StatusCode.INTERNAL


def test_a_message_may_be_as_large_as_the_limit_and_no_larger() -> None:
    assert len(list(MessageAssembler(MAX).feed(prefixed(bytes(MAX))))) == 1
    with pytest.raises(MessageError, match=r"larger than max \(1001 vs. 1000\)") as caught:
        list(MessageAssembler(MAX).feed(pack_prefix(0, MAX + 1)))
    assert caught.value.status.code is StatusCode.RESOURCE_EXHAUSTED


def test_tiny_pieces_of_a_large_message_cost_about_its_size() -> None:
    size = 100_000
    assembler = MessageAssembler(size)
    list(assembler.feed(pack_prefix(0, size)))
    tracemalloc.start()
    for n in range(size // 2 - 1):
        # Separate objects, as slices of received data are.
        list(assembler.feed(b"%02d" % (n % 100)))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 3 * size


# Compression


def test_the_encodings_are_those_we_announce() -> None:
    assert frozenset({"gzip", "deflate"}) == ENCODINGS


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
@given(message=st.binary(max_size=200))
def test_decompress_restores_what_compress_was_given(encoding: str, message: bytes) -> None:
    assert decompress(encoding, compress(encoding, message), 200) == message


def test_the_containers_are_those_of_gzip_and_zlib() -> None:
    assert gzip.decompress(compress("gzip", b"message")) == b"message"
    assert zlib.decompress(compress("deflate", b"message")) == b"message"


@pytest.mark.parametrize("encoding", ["identity", "snappy", ""])
def test_a_compressed_message_in_an_unknown_encoding_is_an_internal_error(encoding: str) -> None:
    with pytest.raises(MessageError, match=f"grpc-encoding is '{encoding}'") as caught:
        decompress(encoding, b"", MAX)
    assert caught.value.status.code is StatusCode.INTERNAL


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"", "it ends too early"),
        (b"not gzip", "incorrect header check"),
        (compress("gzip", b"message")[:-1], "it ends too early"),
        (compress("gzip", b"message")[:-8] + bytes(8), "incorrect data check"),
        (compress("gzip", b"message") + b"more", "something follows it"),
        (compress("gzip", b"one") + compress("gzip", b"two"), "something follows it"),
        (compress("deflate", b"message"), "incorrect header check"),
    ],
)
def test_invalid_gzip_is_an_internal_error(payload: bytes, text: str) -> None:
    with pytest.raises(MessageError, match=f"message is not valid gzip: .*{text}") as caught:
        decompress("gzip", payload, MAX)
    assert caught.value.status.code is StatusCode.INTERNAL


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
@pytest.mark.parametrize("size", [0, 1, MAX - 1, MAX])
def test_a_message_within_the_limit_is_decompressed(encoding: str, size: int) -> None:
    assert decompress(encoding, compress(encoding, bytes(size)), MAX) == bytes(size)


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_message_of_several_parts_is_decompressed(encoding: str, extra: int) -> None:
    size = 2 * UNPACKED_PART_BYTES + extra
    assert decompress(encoding, compress(encoding, bytes(size)), size) == bytes(size)
    # Not compressible: as many bytes are read.
    hashes = (sha256(at.to_bytes(4)).digest() for at in range(PACKED_PART_BYTES // 10))
    message = b"".join(hashes)[: 2 * PACKED_PART_BYTES + extra]
    packed = compress(encoding, message)
    assert decompress(encoding, packed, MB) == message
    with pytest.raises(MessageError, match="it ends too early"):
        decompress(encoding, packed[:PACKED_PART_BYTES], MB)
    with pytest.raises(MessageError, match="something follows it"):
        decompress(encoding, compress(encoding, b"") + bytes(PACKED_PART_BYTES), MB)


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_a_decompression_bomb_is_not_decompressed_beyond_the_limit(encoding: str) -> None:
    bomb = compress(encoding, bytes(20_000_000))
    tracemalloc.start()
    with pytest.raises(MessageError, match="larger than max") as caught:
        decompress(encoding, bomb, MAX)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.status.code is StatusCode.RESOURCE_EXHAUSTED
    assert peak < 200_000


# Closing the generator


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=6), st.integers(1, 6))
def test_closing_the_generator_leaves_the_rest(messages: list[bytes], wanted: int) -> None:
    assembler = MessageAssembler(MAX)
    packed = [prefixed(message) for message in messages]
    cut = prefixed(bytes(100))[:50]
    iterated = assembler.feed(b"".join(packed) + cut)
    taken = [next(iterated) for _ in range(min(wanted, len(messages)))]
    iterated.close()
    assert [message for _, message in taken] == messages[: len(taken)]
    assert assembler.take_rest() == b"".join(packed[len(taken) :]) + cut
    assert list(assembler.feed(prefixed(b"new"))) == [(0, b"new")]


# Held messages


def take_all(held: HeldMessages) -> list[tuple[int, bytes]]:
    taken = []
    while (message := held.take()) is not None:
        taken.append(message)
        if message[0]:
            assert held.drop_first() == PREFIX_BYTES + len(message[1])
    return taken


@given(MESSAGES, st.lists(st.integers(0, 400), max_size=12))
def test_held_messages_come_out_in_order(messages: list[bytes], cuts: list[int]) -> None:
    packed = [prefixed(each, compressed=at % 2) for at, each in enumerate(messages)]
    data = b"".join(packed)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    held = HeldMessages(MAX, b"")
    taken: list[tuple[int, bytes]] = []
    for start, stop in pairwise(edges):
        held.add(data[start:stop])
        taken += take_all(held)
    assert taken == [(at % 2, each) for at, each in enumerate(messages)]
    assert (held.size, held.is_partial, held.take_rest()) == (0, False, b"")


@given(MESSAGES, st.binary(min_size=1, max_size=40), st.integers(1, 44))
def test_held_messages_are_partial_if_the_first_is_incomplete(
    messages: list[bytes], last: bytes, missing: int
) -> None:
    whole = b"".join(prefixed(message) for message in messages)
    held = HeldMessages(MAX, whole)
    cut = prefixed(last)[: max(1, 5 + len(last) - missing)]
    held.add(cut)
    assert held.is_partial is not bool(messages)
    assert held.has_message is bool(messages)
    assert take_all(held) == [(0, message) for message in messages]
    assert (held.has_message, held.is_partial) == (False, True)
    assert held.take_rest() == cut


@pytest.mark.parametrize(
    ("packed", "code"),
    [
        (prefixed(b"", compressed=2), StatusCode.INTERNAL),
        (prefixed(bytes(MAX + 1))[:5], StatusCode.RESOURCE_EXHAUSTED),
    ],
)
def test_an_invalid_held_message_raises_when_it_is_taken(packed: bytes, code: StatusCode) -> None:
    held = HeldMessages(MAX, prefixed(b"good") + packed)
    assert held.take() == (0, b"good")
    with pytest.raises(MessageError) as caught:
        held.take()
    assert caught.value.status.code is code
