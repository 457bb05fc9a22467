"""Unit tests of proxyless.channel.request_buffer."""

from typing import Any, cast

import pytest

from proxyless.channel.request_buffer import RequestBuffer
from proxyless.wire import IDENTITY, ClientStream
from tests.worlds.channels import FakeStream


def make(*messages: bytes, is_half_closed: bool = False, encoding: str = IDENTITY) -> RequestBuffer:
    buffer = RequestBuffer(encoding)
    for message in messages:
        buffer.add(message)
    buffer.is_half_closed = is_half_closed
    return buffer


def send_all(buffer: RequestBuffer, *, is_ended: bool = False) -> FakeStream:
    stream = FakeStream(b"", cast("Any", None))
    stream.is_ended = is_ended
    buffer.send_all(cast("ClientStream", stream))
    return stream


def test_buffer_counts_the_bytes_of_its_messages() -> None:
    assert make(b"one", b"three").size_bytes == 8


@pytest.mark.parametrize("messages", [(), (b"a",), (b"a", b"b", b"c")])
@pytest.mark.parametrize("is_half_closed", [False, True])
def test_buffer_sends_all_messages_and_the_end_in_order(
    messages: tuple[bytes, ...], is_half_closed: bool
) -> None:
    stream = send_all(make(*messages, is_half_closed=is_half_closed))
    assert (tuple(stream.messages), stream.is_half_closed) == (messages, is_half_closed)


def test_buffer_sends_nothing_when_the_stream_has_ended() -> None:
    assert send_all(make(b"a", b"b"), is_ended=True).messages == []


def test_buffer_compresses_messages_when_it_has_an_encoding() -> None:
    [sent] = send_all(make(bytes(1000), encoding="gzip")).messages
    assert len(sent) < 100


def test_buffer_finds_the_first_message_over_the_limit() -> None:
    buffer = make(b"a", b"four", b"fifth")
    assert (buffer.find_larger(3), buffer.find_larger(5)) == (4, None)
