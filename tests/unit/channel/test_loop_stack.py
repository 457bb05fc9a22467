"""Unit tests of proxyless.channel.loop_stack."""

from __future__ import annotations

import gc

from proxyless.channel.loop_stack import LoopChannels


class FakeChannel:
    """A channel, as far as the list uses it."""

    def __init__(self, number: int) -> None:
        self.id = number


def test_channels_are_listed_by_id_until_they_are_collected() -> None:
    channels, second, first = LoopChannels(), FakeChannel(2), FakeChannel(1)
    for channel in (second, first):
        channels.add(channel)
    assert channels.list_all() == [first, second]
    del first, channel
    gc.collect()
    assert channels.list_all() == [second]


def test_observer_is_called_with_each_new_channel() -> None:
    channels, seen = LoopChannels(), list[object]()
    channels.add(FakeChannel(1))
    channels.observer = seen.append
    later = FakeChannel(2)
    channels.add(later)
    assert seen == [later]
