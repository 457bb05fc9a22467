"""Unit tests of proxyless.sim.links."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from proxyless.base import IpAddress
from proxyless.runtime import seeded_random
from proxyless.sim.links import KERNEL_BUFFER_BYTES, Link, Pipe, SimTransport
from proxyless.sim.loop import SimLoop, pause

if TYPE_CHECKING:
    from collections.abc import Iterator


class Peer(asyncio.Protocol):
    """Records its calls with their times."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.received = bytearray()
        self.arrived_s: list[float] = []
        self.lost: list[Exception | None] = []
        self.is_writing_paused = False

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.arrived_s.append(self._loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.is_writing_paused = True

    def resume_writing(self) -> None:
        self.is_writing_paused = False


class Pair:
    """Two transports with their links and protocols."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.there, self.back = Link(), Link()
        self.over: list[SimTransport] = []
        random = seeded_random(1)
        there = Pipe(self.loop, self.there, random)
        back = Pipe(self.loop, self.back, random)
        here, far = IpAddress("10.0.0.1", 1), IpAddress("10.0.0.2", 2)
        self.near = SimTransport(self.loop, (there, back), (here, far), self.over.append)
        self.far = SimTransport(self.loop, (back, there), (far, here), self.over.append)
        there.sender = back.receiver = self.near
        back.sender = there.receiver = self.far
        self.near_peer, self.far_peer = Peer(self.loop), Peer(self.loop)
        self.near.start(self.near_peer)
        self.far.start(self.far_peer)

    def wait(self, seconds: float = 1.0) -> None:
        self.loop.run_until_complete(pause(seconds))

    def heal(self) -> None:
        for link in (self.there, self.back):
            link.cuts = link.stalls = 0
        self.near.wake_pipes()
        self.far.wake_pipes()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.loop.close()


def test_bytes_arrive_in_order_and_after_the_latency(pair: Pair) -> None:
    pair.there.latency_s, pair.there.jitter_s = 0.25, 0.0
    started_s = pair.loop.time()
    pair.near.write(b"one ")
    pair.near.write(b"two")
    pair.wait()
    assert pair.far_peer.received == b"one two"
    assert pair.far_peer.arrived_s[0] == pytest.approx(started_s + 0.25)


def test_cut_delays_bytes_without_loss(pair: Pair) -> None:
    pair.there.cuts = 1
    pair.near.write(b"ping")
    pair.wait(3600.0)
    assert not pair.far_peer.received
    assert not pair.near_peer.lost, "the sender gets no error"
    pair.heal()
    pair.wait()
    assert pair.far_peer.received == b"ping"


def test_cut_delays_a_close(pair: Pair) -> None:
    pair.there.cuts = 1
    pair.near.abort()
    pair.wait(60.0)
    assert pair.near_peer.lost == [None]
    assert not pair.far_peer.lost
    pair.heal()
    pair.wait()
    assert isinstance(pair.far_peer.lost[0], ConnectionResetError)


def test_close_sends_buffered_bytes(pair: Pair) -> None:
    pair.near.write(b"last words")
    pair.near.close()
    pair.near.write(b"too late")
    pair.wait()
    assert pair.far_peer.received == b"last words"
    assert pair.far_peer.lost == [None]
    assert pair.near_peer.lost == [None]
    assert set(pair.over) == {pair.near, pair.far}


def test_close_waits_for_the_reader_when_the_kernel_buffer_is_full(pair: Pair) -> None:
    pair.far.pause_reading()
    pair.near.write(bytes(KERNEL_BUFFER_BYTES + 1))
    pair.near.close()
    pair.wait(60.0)
    assert not pair.near_peer.lost
    pair.far.resume_reading()
    pair.wait()
    assert pair.near_peer.lost == [None]
    assert len(pair.far_peer.received) == KERNEL_BUFFER_BYTES + 1


def test_reset_discards_bytes_under_way(pair: Pair) -> None:
    pair.near.write(b"never read")
    pair.near.abort()
    pair.wait()
    assert not pair.far_peer.received
    assert isinstance(pair.far_peer.lost[0], ConnectionResetError)


def test_bytes_for_a_vanished_end_are_answered_with_a_reset(pair: Pair) -> None:
    pair.far.vanish()
    pair.wait(60.0)
    assert not pair.near_peer.lost, "it was gone without a word"
    pair.near.write(b"hello")
    pair.wait()
    assert isinstance(pair.near_peer.lost[0], ConnectionResetError)


def test_bytes_sent_before_the_close_arrive_before_the_reset(pair: Pair) -> None:
    pair.there.latency_s = pair.back.latency_s = 0.1
    pair.far.write(b"goodbye")
    pair.far.close()
    pair.near.write(b"hello")
    pair.wait()
    assert pair.near_peer.received == b"goodbye"
    assert not pair.far_peer.received


def test_truncation_resets_the_connection_in_the_middle_of_a_message(pair: Pair) -> None:
    pair.far.truncate(5)
    pair.near.write(b"abcdefgh")
    pair.wait()
    assert pair.far_peer.received == b"abcde"
    assert pair.far_peer.lost
    assert isinstance(pair.near_peer.lost[0], ConnectionResetError)


def test_output_is_truncated(pair: Pair) -> None:
    pair.far.truncate_output(5)
    pair.far.write(b"abcdefgh")
    pair.wait()
    assert pair.near_peer.received == b"abcde"
    assert pair.near_peer.lost
    assert isinstance(pair.far_peer.lost[0], ConnectionResetError)


def test_truncated_chunk_is_reported() -> None:
    reported: list[tuple[bytes, int]] = []
    pair = Pair()
    pair.near._outgoing.on_cut_short = lambda sent, arrived: reported.append((sent, arrived))
    pair.far.truncate(5)
    pair.near.write(b"abc")
    pair.wait()
    assert reported == []
    pair.near.write(b"defgh")
    pair.wait()
    assert reported == [(b"defgh", 2)]
    pair.loop.close()


def test_slow_link_pauses_the_writer(pair: Pair) -> None:
    pair.there.bytes_per_s = 100_000.0
    pair.near.write(bytes(200_000))
    assert pair.near_peer.is_writing_paused
    pair.wait(1.9)
    assert not pair.far_peer.received
    pair.wait(0.2)
    assert len(pair.far_peer.received) == 200_000
    assert not pair.near_peer.is_writing_paused


def test_pipe_fills_the_buffer_of_a_buffered_protocol() -> None:
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self._buffer = bytearray(3)
            self.received = b""

        def get_buffer(self, sizehint: int) -> bytearray:
            return self._buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.received += bytes(self._buffer[:nbytes])

    pair = Pair()
    protocol = Buffered()
    pair.far.set_protocol(protocol)
    pair.near.write(b"abcdefgh")
    pair.wait()
    assert protocol.received == b"abcdefgh"
    pair.loop.close()
