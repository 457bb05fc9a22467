"""Unit tests of proxyless.wire.limits."""

from struct import pack
from typing import Any

import pytest

from proxyless.runtime import VirtualClock
from proxyless.wire import frames
from proxyless.wire.errors import ErrorCode, RemoteProtocolError
from proxyless.wire.limits import (
    FLOOD_FRAMES_MAX,
    FLOOD_FRAMES_PER_DATA,
    FLOOD_WINDOW_S,
    RECENT_RESETS_MAX,
    FloodGuard,
    Limits,
    PeerSettings,
    RecentResets,
)


def payload(*pairs: tuple[int, int]) -> bytes:
    return b"".join(pack(">HI", *pair) for pair in pairs)


# Limits


def test_defaults_are_allowed() -> None:
    Limits()


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("frame_bytes_max", 16_383, "frame_bytes_max is 16383, wanted 16384 to 16777215"),
        ("frame_bytes_max", 1 << 24, "frame_bytes_max is 16777216, wanted 16384 to 16777215"),
        ("connection_window_bytes", 65_534, "wanted 65535 to 2147483647"),
        ("connection_window_bytes", 1 << 31, "wanted 65535 to 2147483647"),
        ("stream_window_bytes", 0, "stream_window_bytes is 0, wanted 1 to 16777216"),
        ("stream_window_bytes_max", 1000, "stream_window_bytes is 1048576, wanted 1 to 1000"),
        ("stream_window_bytes_max", 1 << 31, "wanted 1 to 2147483647"),
    ],
)
def test_a_limit_that_http2_cannot_express_raises(field: str, value: int, text: str) -> None:
    arguments: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=text):
        Limits(**arguments)


# The peer's settings


def test_the_peer_starts_with_the_defaults_of_http2() -> None:
    peer = PeerSettings()
    assert (peer.frame_bytes_max, peer.initial_window_bytes) == (16_384, 65_535)
    assert peer.concurrent_streams_max >= 2**31 - 1


def test_the_last_value_of_a_setting_is_used() -> None:
    peer = PeerSettings()
    window = frames.INITIAL_WINDOW_SIZE
    peer.apply(payload((window, 10), (window, 100_000)))
    assert peer.initial_window_bytes == 100_000


def test_settings_change_only_what_they_name() -> None:
    peer = PeerSettings()
    peer.apply(payload((frames.MAX_CONCURRENT_STREAMS, 7)))
    peer.apply(payload((frames.MAX_FRAME_SIZE, 20_000)))
    peer.apply(payload((0x99, 1), (frames.HEADER_TABLE_SIZE, 0)))
    assert peer.concurrent_streams_max == 7
    assert peer.frame_bytes_max == 20_000
    assert peer.initial_window_bytes == 65_535


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [
        (frames.INITIAL_WINDOW_SIZE, 2**31, ErrorCode.FLOW_CONTROL_ERROR),
        (frames.MAX_FRAME_SIZE, 16_383, ErrorCode.PROTOCOL_ERROR),
        (frames.MAX_FRAME_SIZE, 2**24, ErrorCode.PROTOCOL_ERROR),
        (frames.ENABLE_PUSH, 2, ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_a_value_out_of_range_is_an_error(setting: int, value: int, code: ErrorCode) -> None:
    with pytest.raises(RemoteProtocolError, match=f"is {value}, wanted") as caught:
        PeerSettings().apply(payload((setting, value)))
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        (frames.INITIAL_WINDOW_SIZE, 2**31 - 1),
        (frames.INITIAL_WINDOW_SIZE, 0),
        (frames.MAX_FRAME_SIZE, 2**24 - 1),
        (frames.MAX_FRAME_SIZE, 16_384),
        (frames.ENABLE_PUSH, 0),
        (frames.MAX_CONCURRENT_STREAMS, 2**32 - 1),
    ],
)
def test_values_at_the_bounds_are_accepted(setting: int, value: int) -> None:
    PeerSettings().apply(payload((setting, value)))


# Floods


class Flood:
    """A guard and a clock."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.guard = FloodGuard(self.clock.now_s)

    def spend(self, frames_: int, progress: int = 0) -> None:
        for _ in range(frames_):
            self.guard.spend("PING", progress)


def test_a_thousand_frames_at_once_are_a_flood() -> None:
    flood = Flood()
    flood.spend(FLOOD_FRAMES_MAX - 1)
    with pytest.raises(RemoteProtocolError, match="flood of PING frames") as caught:
        flood.spend(1)
    assert caught.value.code is ErrorCode.ENHANCE_YOUR_CALM


def test_the_same_frames_over_a_longer_time_are_not_a_flood() -> None:
    flood = Flood()
    flood.spend(FLOOD_FRAMES_MAX - 1)
    flood.clock.advance(FLOOD_WINDOW_S)
    flood.spend(FLOOD_FRAMES_MAX)


def test_after_a_refill_a_flood_is_a_flood_again() -> None:
    flood = Flood()
    flood.clock.advance(FLOOD_WINDOW_S)
    flood.spend(FLOOD_FRAMES_MAX)
    with pytest.raises(RemoteProtocolError):
        flood.spend(FLOOD_FRAMES_MAX)


def test_frames_beside_data_we_sent_are_not_a_flood() -> None:
    flood = Flood()
    sent = FLOOD_FRAMES_MAX // FLOOD_FRAMES_PER_DATA
    for times in range(1, 20):
        flood.spend(FLOOD_FRAMES_MAX, progress=times * sent)


def test_data_sent_earlier_does_not_excuse_a_flood_now() -> None:
    flood = Flood()
    flood.spend(FLOOD_FRAMES_MAX, progress=1_000_000)
    with pytest.raises(RemoteProtocolError):
        flood.spend(FLOOD_FRAMES_MAX, progress=1_000_001)


# Resets


def test_recent_resets_charge_late_data_to_the_window_of_the_stream() -> None:
    resets = RecentResets()
    resets.add(5, 100)
    assert 5 in resets
    assert 3 not in resets
    assert 0 not in resets
    assert resets.charge(5, 60)
    assert resets.charge(5, 40)
    assert not resets.charge(5, 1)


def test_ids_up_to_the_highest_evicted_one_count_as_reset() -> None:
    resets = RecentResets()
    for n in range(RECENT_RESETS_MAX + 10):
        resets.add(2 * n + 1, 10)
    assert 1 in resets
    assert resets.charge(1, 1_000)
    assert 2 * (RECENT_RESETS_MAX + 10) + 1 not in resets
    assert len(resets._left_bytes) == RECENT_RESETS_MAX
