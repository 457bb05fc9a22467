"""What ends an RPC that the server has ended, before somebody has read its responses?"""

import gc
import weakref
from typing import TYPE_CHECKING, cast

import pytest

from proxyless.base import Status
from proxyless.channel.channel import CHANNEL_CLOSED
from proxyless.channel.statuses import DEADLINE_EXCEEDED
from proxyless.channel.unread import Unread, await_reader
from tests.unit.channel.unread_world import EndedCall, FakeChannel

if TYPE_CHECKING:
    from proxyless.channel import Call


@pytest.fixture
def channel() -> FakeChannel:
    return FakeChannel()


def begin(channel: FakeChannel, remaining_s: float | None = None) -> tuple[Unread, list[Status]]:
    """An RPC whose reader is awaited, and what has cut that short."""
    cut: list[Status] = []
    call = cast("Call", EndedCall(channel, remaining_s))
    return await_reader(call, cut.append), cut


def test_the_rest_of_its_time_is_left(channel: FakeChannel) -> None:
    channel.clock.advance(100.0)
    _, cut = begin(channel, 7.0)
    channel.clock.advance(6.9)
    assert not cut
    channel.clock.advance(0.2)
    assert cut == [DEADLINE_EXCEEDED]
    assert channel.is_left_alone


def test_a_deadline_that_has_passed_is_not_noticed_inside(channel: FakeChannel) -> None:
    _, cut = begin(channel, 0.0)
    assert not cut
    channel.clock.advance(0.0)
    assert cut == [DEADLINE_EXCEEDED]


def test_without_a_deadline_it_waits_until_the_channel_is_closed(channel: FakeChannel) -> None:
    _, cut = begin(channel)
    _, other = begin(channel)
    channel.clock.advance(1e6)
    assert (cut, len(channel.calls)) == ([], 2)
    channel.close(CHANNEL_CLOSED)
    assert cut == other == [CHANNEL_CLOSED]
    assert channel.is_left_alone


def test_when_it_is_read_nothing_of_it_is_left(channel: FakeChannel) -> None:
    unread, cut = begin(channel, 7.0)
    unread.forget()
    unread.forget()
    assert channel.is_left_alone
    unread.cancel(CHANNEL_CLOSED)
    channel.clock.advance(10.0)
    assert not cut


def test_it_is_cut_once(channel: FakeChannel) -> None:
    unread, cut = begin(channel, 7.0)
    unread.cancel(CHANNEL_CLOSED)
    unread.cancel(DEADLINE_EXCEEDED)
    channel.clock.advance(10.0)
    assert cut == [CHANNEL_CLOSED]


def test_its_front_is_freed_before_its_deadline(channel: FakeChannel) -> None:
    class Front:
        def on_cut(self, status: Status) -> None:
            raise NotImplementedError

    front = Front()
    freed = weakref.ref(front)
    unread = await_reader(cast("Call", EndedCall(channel, 7.0)), front.on_cut)
    del front
    assert freed() is not None, "the channel keeps it"
    unread.forget()
    gc.collect()
    assert freed() is None
