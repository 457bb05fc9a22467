"""Unit tests of proxyless.channel.mirrored_call."""

from __future__ import annotations

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, EMPTY_METADATA, OK, State, Status, StatusCode
from proxyless.channel.config_selector import MirroredRequest
from proxyless.channel.mirrored_call import (
    IN_FLIGHT_MAX,
    METHODS_MAX,
    ClusterMirror,
    MirroredCalls,
    shadow_authority,
)
from proxyless.lb import Complete, Drop, Fail
from proxyless.lb.pickers import QUEUE_PICKER
from proxyless.metrics.instruments import MIRRORED_RPCS, MIRRORED_RPCS_DROPPED
from proxyless.wire import IDENTITY, StreamEnd
from tests.worlds.channels import (
    PATH,
    UNAVAILABLE,
    UNPROCESSED,
    ChannelWorld,
    FakeStream,
    RecordingPicker,
)
from tests.worlds.stats_plugins import RecordingPlugin
from tests.worlds.wire import decode_block

REQUEST = MirroredRequest(PATH, EMPTY_METADATA, b"hello", IDENTITY)


class MirrorWorld(ChannelWorld):
    """A connected channel, and a mirror of its RPCs."""

    def __init__(self, *, has_shadow_suffix: bool = True) -> None:
        self.plugin = RecordingPlugin()
        super().__init__(metrics=self.plugin.metrics)
        self.connect()
        self.calls = MirroredCalls()
        self.mirror = ClusterMirror("copy", EMPTY_ATTRIBUTES, 5.0, has_shadow_suffix, self.calls)

    def send(self, count: int = 1) -> FakeStream:
        for _ in range(count):
            self.mirror.send(self.channel, REQUEST)
        return self.streams[-1]

    @property
    def ended(self) -> dict[str, int]:
        """Copies that ended, by status."""
        counts = self.plugin.counts(MIRRORED_RPCS)
        return {labels[1]: count for labels, count in counts.items()}


@pytest.mark.spec("MR-03")
@pytest.mark.parametrize(
    ("authority", "expected"),
    [
        ("api", "api-shadow"),
        ("api.example:443", "api.example-shadow:443"),
        ("[::1]:80", "[::1]:80-shadow"),
    ],
)
def test_suffix_of_the_authority_comes_before_the_port(authority: str, expected: str) -> None:
    assert shadow_authority(authority) == expected


@pytest.mark.spec("MR-03")
@pytest.mark.parametrize("has_shadow_suffix", [True, False])
def test_copy_has_the_suffix_unless_it_is_turned_off(*, has_shadow_suffix: bool) -> None:
    world = MirrorWorld(has_shadow_suffix=has_shadow_suffix)
    headers = dict(decode_block(world.send().block))
    assert headers[":path"] == PATH
    assert headers[":authority"] == "test.example" + ("-shadow" if has_shadow_suffix else "")


@pytest.mark.spec("MR-01")
def test_copy_has_the_message_and_is_complete() -> None:
    stream = MirrorWorld().send()
    assert stream.messages == [b"hello"]
    assert stream.is_half_closed


@pytest.mark.spec("MR-04", "MR-08")
@pytest.mark.parametrize("end", [StreamEnd(OK), UNAVAILABLE])
def test_end_of_a_copy_is_counted_without_notifying_the_channel(end: StreamEnd) -> None:
    world = MirrorWorld()
    stream = world.send()
    assert world.calls.in_flight == 1
    assert world.channel.calls == 0
    stream.end(end)
    assert world.calls.in_flight == 0
    assert world.ended == {end.status.code.name: 1}


@pytest.mark.spec("MR-06")
def test_copy_is_not_retried_even_if_the_server_did_not_process_it() -> None:
    world = MirrorWorld()
    world.send().end(UNPROCESSED)
    assert len(world.streams) == 1
    assert world.ended == {"UNAVAILABLE": 1}


@pytest.mark.spec("MR-06")
def test_copy_is_cancelled_when_its_time_is_over() -> None:
    world = MirrorWorld()
    stream = world.send()
    world.clock.advance(4.9)
    assert not stream.is_ended
    world.clock.advance(0.2)
    assert stream.cancelled_with is not None
    assert stream.cancelled_with.code is StatusCode.DEADLINE_EXCEEDED
    assert world.ended == {"DEADLINE_EXCEEDED": 1}


@pytest.mark.spec("MR-06", "MR-08")
def test_copies_over_the_limit_are_dropped_and_counted() -> None:
    world = MirrorWorld()
    world.send(IN_FLIGHT_MAX + 3)
    assert len(world.streams) == IN_FLIGHT_MAX
    assert world.plugin.count_of(MIRRORED_RPCS_DROPPED) == 3
    world.streams[0].respond()
    world.send()
    assert len(world.streams) == IN_FLIGHT_MAX + 1


@pytest.mark.spec("MR-06")
def test_copies_are_cancelled_and_no_more_are_sent_when_closed() -> None:
    world = MirrorWorld()
    world.send(2)
    world.calls.close()
    world.calls.close()
    assert world.ended == {"CANCELLED": 2}
    world.mirror.send(world.channel, REQUEST)
    assert len(world.streams) == 2


@pytest.mark.spec("MR-05")
@pytest.mark.parametrize(
    "picker",
    [
        QUEUE_PICKER,
        RecordingPicker(Fail(Status(StatusCode.UNAVAILABLE, "down"))),
        RecordingPicker(Drop(Status(StatusCode.UNAVAILABLE, "dropped"))),
    ],
)
def test_copy_ends_at_once_when_its_cluster_has_no_connection(picker: RecordingPicker) -> None:
    world = MirrorWorld()
    world.report(State.CONNECTING, picker)
    world.mirror.send(world.channel, REQUEST)
    assert world.calls.in_flight == 0
    assert not world.channel.picks.calls
    assert world.ended == {"UNAVAILABLE": 1}


@pytest.mark.spec("MR-05")
def test_copy_ends_at_once_when_the_picked_connection_is_lost() -> None:
    world = MirrorWorld()
    complete = world.complete
    world.subchannel.transport = None
    world.report(State.READY, RecordingPicker(Complete(complete.subchannel)))
    world.mirror.send(world.channel, REQUEST)
    assert world.ended == {"UNAVAILABLE": 1}


@pytest.mark.spec("MR-04")
def test_bug_in_a_copy_is_logged_and_not_raised(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = MirrorWorld()
    monkeypatch.setattr(world.calls, "_find_method", None)
    world.mirror.send(world.channel, REQUEST)
    assert f"mirrored call of {PATH}" in caplog.text


def test_cache_of_methods_is_bounded() -> None:
    world = MirrorWorld()
    for number in range(METHODS_MAX + 5):
        request = MirroredRequest(f"/s/{number}", EMPTY_METADATA, b"", IDENTITY)
        world.mirror.send(world.channel, request)
        world.streams[-1].respond()
    assert len(world.calls._methods) <= METHODS_MAX
