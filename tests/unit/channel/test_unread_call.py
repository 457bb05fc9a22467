"""Unit tests of proxyless.channel.unread_call."""

import gc
import weakref
from typing import TYPE_CHECKING, cast

import pytest

from proxyless.base import Status
from proxyless.channel.channel import CHANNEL_CLOSED
from proxyless.channel.statuses import DEADLINE_EXCEEDED
from proxyless.channel.unread_call import UnreadCall, track_unread
from tests.worlds.unread_calls import EndedCall, FakeChannel

if TYPE_CHECKING:
    from proxyless.channel import Call


@pytest.fixture
def channel() -> FakeChannel:
    return FakeChannel()


def begin(
    channel: FakeChannel, remaining_s: float | None = None
) -> tuple[UnreadCall, list[Status]]:
    """A tracked RPC, and the statuses of its callback."""
    cut: list[Status] = []
    call = cast("Call", EndedCall(channel, remaining_s))
    return track_unread(call, cut.append), cut


def test_call_ends_after_its_remaining_time(channel: FakeChannel) -> None:
    channel.clock.advance(100.0)
    _, cut = begin(channel, 7.0)
    channel.clock.advance(6.9)
    assert not cut
    channel.clock.advance(0.2)
    assert cut == [DEADLINE_EXCEEDED]
    assert channel.is_left_alone


def test_passed_deadline_ends_the_call_in_the_next_turn(channel: FakeChannel) -> None:
    _, cut = begin(channel, 0.0)
    assert not cut
    channel.clock.advance(0.0)
    assert cut == [DEADLINE_EXCEEDED]


def test_call_without_a_deadline_waits_until_the_channel_is_closed(channel: FakeChannel) -> None:
    _, cut = begin(channel)
    _, other = begin(channel)
    channel.clock.advance(1e6)
    assert (cut, len(channel.calls)) == ([], 2)
    channel.close(CHANNEL_CLOSED)
    assert cut == other == [CHANNEL_CLOSED]
    assert channel.is_left_alone


def test_close_removes_the_call_from_the_channel(channel: FakeChannel) -> None:
    unread, cut = begin(channel, 7.0)
    unread.close()
    unread.close()
    assert channel.is_left_alone
    unread.cancel(CHANNEL_CLOSED)
    channel.clock.advance(10.0)
    assert not cut


def test_callback_is_called_once(channel: FakeChannel) -> None:
    unread, cut = begin(channel, 7.0)
    unread.cancel(CHANNEL_CLOSED)
    unread.cancel(DEADLINE_EXCEEDED)
    channel.clock.advance(10.0)
    assert cut == [CHANNEL_CLOSED]


def test_front_is_freed_before_the_deadline(channel: FakeChannel) -> None:
    class Front:
        def on_cut(self, status: Status) -> None:
            raise NotImplementedError

    front = Front()
    freed = weakref.ref(front)
    unread = track_unread(cast("Call", EndedCall(channel, 7.0)), front.on_cut)
    del front
    assert freed() is not None, "the channel keeps it"
    unread.close()
    gc.collect()
    assert freed() is None
