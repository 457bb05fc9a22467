"""`proxyless.peak_ewma`, which picks by latency, failures and RPCs in flight, in virtual time.

test_as_round_robin.py covers what it shares with round_robin.
"""

from collections import Counter
from functools import partial

import pytest

from proxyless.assembly import default_policies
from proxyless.base import EMPTY_METADATA, OK, Metadata, Status, StatusCode
from proxyless.lb import Complete, HeadTracker
from proxyless.lb.policies.peak_ewma import PeakEwmaConfig, PeakEwmaFactory
from proxyless.testing import ANY_RPC
from tests.worlds.policies import Name, PolicyWorld

FAST_S, SLOW_S = 0.01, 0.1


class End:
    """How an RPC ended."""

    trailing_metadata: Metadata = EMPTY_METADATA

    def __init__(self, status: Status = OK) -> None:
        self.status = status


class LatencyWorld(PolicyWorld):
    """A world in which backends answer after a time, or fail."""

    def __init__(self, *names: Name) -> None:
        super().__init__(PeakEwmaFactory())
        self.names = names
        # Set by the test: seconds to an answer (None: never), and the status.
        self.latency_s: dict[Name, float | None] = dict.fromkeys(names, FAST_S)
        self.status: dict[Name, Status] = dict.fromkeys(names, OK)
        self.update(*names)
        self.ready(*names)

    def ready(self, *names: Name) -> None:
        for name in names:
            self[name].connecting()
            self[name].ready()

    def start(self) -> tuple[Name, HeadTracker]:
        """Start an RPC, which ends when its backend answers."""
        result = self.picker.pick(ANY_RPC)
        assert isinstance(result, Complete)
        tracker, name = result.tracker, self.name(result.subchannel.address)
        assert isinstance(tracker, HeadTracker)
        tracker.on_start()
        latency_s = self.latency_s[name]
        if latency_s is not None:
            self.clock.call_later(latency_s, partial(tracker.on_end, End(self.status[name])))
        return name, tracker

    def run(self, seconds: float, *, rate: int = 100) -> Counter[Name]:
        """RPCs by backend, sent at this rate per second."""
        counts: Counter[Name] = Counter()
        for _ in range(round(seconds * rate)):
            counts[self.start()[0]] += 1
            self.advance(1 / rate)
        return counts


@pytest.mark.spec("PE-01")
def test_policy_is_registered_by_default() -> None:
    assert isinstance(default_policies().find("proxyless.peak_ewma"), PeakEwmaFactory)


@pytest.mark.spec("PE-02")
def test_rpcs_are_spread_when_backends_are_equally_fast() -> None:
    world = LatencyWorld(*"abcd")
    counts = world.run(40.0)
    assert all(0.2 < counts[name] / counts.total() < 0.3 for name in "abcd")


@pytest.mark.spec("PE-02", "PE-03")
def test_slow_backend_gets_few_rpcs_from_its_first_answer_on() -> None:
    world = LatencyWorld(*"abcd")
    world.latency_s["a"] = SLOW_S
    world.run(1.0)
    counts = world.run(60.0)
    assert 0 < counts["a"] < counts.total() / 100


@pytest.mark.spec("PE-02", "PE-03")
def test_backend_loses_rpcs_when_it_becomes_slow_and_regains_them_when_it_recovers() -> None:
    world = LatencyWorld(*"abcd")
    world.run(10.0)
    world.latency_s["a"] = SLOW_S
    world.run(1.0)
    assert world.run(20.0)["a"] < 20
    world.latency_s["a"] = FAST_S
    world.run(60.0)
    counts = world.run(20.0)
    assert counts["a"] / counts.total() > 0.15


@pytest.mark.spec("PE-05")
def test_backend_that_fails_at_once_gets_few_rpcs() -> None:
    """Its latency is the lowest, so without the failure rate it would get the most."""
    world = LatencyWorld(*"abcd")
    world.latency_s["a"] = FAST_S / 10
    world.status["a"] = Status(StatusCode.UNAVAILABLE)
    world.run(1.0)
    counts = world.run(60.0)
    assert 0 < counts["a"] < counts.total() / 100


@pytest.mark.spec("PE-05")
def test_errors_of_the_application_are_answers() -> None:
    world = LatencyWorld(*"ab")
    world.status["a"] = Status(StatusCode.NOT_FOUND)
    counts = world.run(60.0)
    assert 0.4 < counts["a"] / counts.total() < 0.6


@pytest.mark.spec("PE-06")
def test_backend_that_never_answers_gets_one_rpc_at_a_time_after_idle_time() -> None:
    world = LatencyWorld(*"abcd")
    world.run(5.0)
    world.latency_s["a"] = None
    world.run(1.0)
    # Each RPC restores its cost, and makes the next wait longer.
    assert world.run(60.0)["a"] <= 8


@pytest.mark.spec("PE-07")
def test_new_backend_gets_one_rpc_until_it_answers() -> None:
    world = LatencyWorld(*"abc")
    world.run(5.0)
    world.latency_s["d"], world.status["d"] = SLOW_S, OK
    world.update(*"abcd")
    world.ready("d")
    assert world.run(SLOW_S)["d"] == 1
    # Its first answer has the latency of the others.
    world.latency_s["e"], world.status["e"] = FAST_S, OK
    world.update(*"abce")
    world.ready("e")
    assert world.run(10.0)["e"] > 100


@pytest.mark.spec("PE-06", "PE-07")
def test_backend_whose_first_rpc_is_a_stream_without_a_response_is_measured_later() -> None:
    world = LatencyWorld(*"abc")
    world.latency_s = dict.fromkeys("abc")
    streaming, _ = world.start()
    world.latency_s = dict.fromkeys("abc", FAST_S)
    assert world.run(60.0, rate=2)[streaming] == 0
    world.run(300.0, rate=2)
    # Few, because it has one RPC more in flight: its cost is twice that of the others.
    assert world.run(60.0, rate=2)[streaming] > 2


@pytest.mark.spec("PE-07")
def test_first_burst_is_spread_when_no_backend_has_answered_yet() -> None:
    world = LatencyWorld(*"abcd")
    world.latency_s = dict.fromkeys("abcd")
    counts = Counter(world.start()[0] for _ in range(400))
    assert max(counts.values()) - min(counts.values()) < 10


@pytest.mark.spec("PE-08")
def test_averages_are_kept_when_lists_pickers_and_connections_change() -> None:
    world = LatencyWorld(*"ab")
    world.latency_s["a"] = SLOW_S
    world.run(5.0)
    world.update("b", "a", config={"decayTime": "10s", "failurePenalty": "2s"})
    assert world.run(1.0)["a"] == 0
    world["a"].idle()
    world.settle()
    world.ready("a")
    assert world.run(1.0)["a"] == 0


@pytest.mark.spec("PE-01")
def test_changed_decay_time_is_used_at_once() -> None:
    world = LatencyWorld(*"ab")
    world.latency_s["a"] = SLOW_S
    world.run(5.0)
    world.update("a", "b", config={"decayTime": "0.01s"})
    # The average is forgotten within a few RPCs, so it gets a new RPC soon after each answer.
    assert world.run(5.0)["a"] > 10
    assert world.parse({"decayTime": "0.01s"}) == PeakEwmaConfig(decay_time_s=0.01)
