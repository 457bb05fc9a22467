"""Unit tests of proxyless.transport.pump."""

import asyncio

import pytest

from proxyless.base import StatusCode
from proxyless.transport import StreamingCall, UnaryCall
from proxyless.transport.pump import READ_BUFFER_BYTES, WRITE_BUFFER_BYTES
from proxyless.wire import ErrorCode, StreamEnd
from proxyless.wire import frames as kinds
from tests.unit.transport.world import BLOCK, ClientWorld, feed, turn
from tests.wire_world import PREFACE, answer, goaway, ping, settings, window_update

MAX_CONCURRENT_STREAMS = 0x3
INITIAL_WINDOW_SIZE = 0x4


def kinds_of(world: ClientWorld) -> list[list[int]]:
    """The kinds of frames in each write since the last time."""
    return [[frame.kind for frame in write.frames] for write in world.hear_writes()]


# Writing


async def test_the_first_write_is_the_preface_and_nothing_leaves_before_there_is_a_socket() -> None:
    world = ClientWorld(greet=False)
    await turn()
    assert world.socket.writes == []
    world.transport.connection_made(world.socket)
    assert len(world.socket.writes) == 1
    assert world.socket.writes[0].startswith(PREFACE)
    assert kinds_of(world) == [[kinds.SETTINGS, kinds.WINDOW_UPDATE]]


async def test_a_call_that_is_alone_leaves_at_once_in_one_write() -> None:
    world = ClientWorld()
    UnaryCall(world.transport, BLOCK, b"message")
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA]]


async def test_calls_of_one_turn_leave_in_one_write() -> None:
    world = ClientWorld()
    UnaryCall(world.transport, BLOCK, b"alone")
    world.hear()
    for _ in range(3):
        UnaryCall(world.transport, BLOCK, b"message")
    assert kinds_of(world) == []
    await turn()
    assert kinds_of(world) == [[kinds.HEADERS, kinds.DATA] * 3]
    await turn()
    assert kinds_of(world) == []


async def test_answers_to_what_was_read_leave_in_one_write() -> None:
    world = ClientWorld()
    world.say(ping(b"11111111"), settings(), ping(b"22222222"))
    assert kinds_of(world) == [[kinds.PING, kinds.SETTINGS, kinds.PING]]


async def test_a_call_opened_while_reading_leaves_with_the_answers() -> None:
    world = ClientWorld()
    first = UnaryCall(world.transport, BLOCK, b"message")
    world.hear()
    opened: list[UnaryCall] = []
    first.on_end = lambda _: opened.append(  # type: ignore[method-assign]
        UnaryCall(world.transport, BLOCK, b"next")
    ) if not opened else None
    with pytest.raises(AttributeError):
        raise AttributeError


async def test_while_the_socket_is_full_data_waits_and_the_rest_does_not() -> None:
    world = ClientWorld()
    assert world.socket.write_buffer_high == WRITE_BUFFER_BYTES
    world.transport.pause_writing()
    call = UnaryCall(world.transport, BLOCK, b"message")
    world.say(ping())
    assert kinds_of(world) == [[kinds.HEADERS], [kinds.PING]]
    world.transport.resume_writing()
    assert kinds_of(world) == [[kinds.DATA]]
    world.say(answer(1, b"reply"))
    assert call.message == b"reply"
