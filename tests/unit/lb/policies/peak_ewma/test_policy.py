"""Unit tests of proxyless.lb.policies.peak_ewma.policy; see spec/test_peak_ewma.py."""

from collections.abc import Sequence

import pytest

from proxyless.base import EMPTY_METADATA, Metadata, Status, StatusCode, hits
from proxyless.lb import Complete
from proxyless.lb.policies.peak_ewma import PeakEwmaConfig, PeakEwmaFactory
from proxyless.lb.policies.peak_ewma.endpoint_load import EndpointLoad
from proxyless.lb.policies.peak_ewma.policy import (
    CLIENT_ENDS,
    FAILURES,
    MeasuredEndpointChild,
    PeakEwmaPicker,
    PeakEwmaPolicy,
    RpcTimer,
)
from proxyless.runtime import VirtualClock
from proxyless.testing import ANY_RPC, check_policy
from tests.worlds.policies import CONNECTING, READY, PolicyWorld

CONFIG = PeakEwmaConfig()


class End:
    """How an attempt ended."""

    trailing_metadata: Metadata = EMPTY_METADATA

    def __init__(self, code: StatusCode = StatusCode.OK) -> None:
        self.status = Status(code)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def world() -> PolicyWorld:
    world = PolicyWorld(PeakEwmaFactory())
    world.update(*"abcd")
    for name in "abcd":
        world[name].ready()
    return world


def children_of(world: PolicyWorld) -> list[MeasuredEndpointChild]:
    policy = world.policy
    assert isinstance(policy, PeakEwmaPolicy)
    return list(policy._endpoints.ready)


def picked(world: PolicyWorld, numbers: Sequence[float]) -> str:
    """The endpoint that is picked with these random numbers."""
    script = iter(numbers)
    picker = PeakEwmaPicker(children_of(world), CONFIG, lambda: 0.0, lambda: next(script))
    result = picker.pick(ANY_RPC)
    assert isinstance(result, Complete)
    return world.name(result.subchannel.address)


# Picks


@pytest.mark.spec("PE-02")
@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        # The first number chooses among four endpoints, the second among the three others.
        ([0.0, 0.0], "b"),
        ([0.0, 0.34], "c"),
        ([0.0, 0.999_999], "d"),
        ([0.999_999, 0.999_999], "d"),
        # Equal costs: the first one is picked.
        ([0.3, 0.34], "b"),
        ([0.6, 0.34], "c"),
    ],
)
def test_picker_compares_two_different_endpoints(
    world: PolicyWorld, numbers: list[float], expected: str
) -> None:
    latencies = {"a": 0.4, "b": 0.2, "c": 0.2, "d": 0.1}
    for child in children_of(world):
        latency_s = latencies[world.name(child.endpoint.addresses[0])]
        child.load.add_latency(latency_s, 0.0, CONFIG)
    assert picked(world, numbers) == expected


def test_only_endpoint_is_picked_without_a_random_number() -> None:
    world = PolicyWorld(PeakEwmaFactory())
    world.update("a")
    world["a"].ready()
    assert picked(world, []) == "a"


def test_each_pick_has_a_tracker_of_its_own(world: PolicyWorld) -> None:
    results = [world.picker.pick(ANY_RPC) for _ in range(20)]
    trackers = {id(each.tracker) for each in results if isinstance(each, Complete)}
    assert len(trackers) == 20


# Timing


@pytest.mark.spec("PE-03")
def test_latency_is_the_time_to_the_response_headers(clock: VirtualClock) -> None:
    load = EndpointLoad()
    timer = RpcTimer(load, CONFIG, clock.measured_s)
    timer.on_start()
    assert load.rpcs == 1
    clock.advance(0.03)
    timer.on_head()
    clock.advance(3600)
    assert load.rpcs == 1
    timer.on_end(End())
    assert load.rpcs == 0
    assert load.latency_s == pytest.approx(0.03)
    assert load.failure_rate == 0.0


@pytest.mark.spec("PE-03", "PE-05")
@pytest.mark.parametrize("code", StatusCode)
def test_end_without_headers_is_an_answer_unless_the_client_ended_the_rpc(
    code: StatusCode, clock: VirtualClock
) -> None:
    load = EndpointLoad()
    load.add_latency(0.5, 0.0, CONFIG)
    load.add_result(0.0, CONFIG, is_failure=False)
    timer = RpcTimer(load, CONFIG, clock.measured_s)
    timer.on_start()
    clock.advance(0.1)
    timer.on_end(End(code))
    assert (load.latency_s < 0.5) == (code not in CLIENT_ENDS)
    assert (load.failure_rate > 0) == (code in FAILURES)


@pytest.mark.spec("PE-04")
@pytest.mark.parametrize("code", sorted(CLIENT_ENDS))
def test_rpc_that_the_client_ended_raises_the_latency_only_without_headers(
    code: StatusCode, clock: VirtualClock
) -> None:
    load = EndpointLoad()
    answered, unanswered = (RpcTimer(load, CONFIG, clock.measured_s) for _ in range(2))
    answered.on_start()
    answered.on_head()
    unanswered.on_start()
    clock.advance(2.0)
    answered.on_end(End(code))
    assert load.latency_s == 0.0
    unanswered.on_end(End(code))
    assert load.latency_s == pytest.approx(2.0)


@pytest.mark.spec("PE-05")
def test_failure_after_the_headers_counts(clock: VirtualClock) -> None:
    load = EndpointLoad()
    timer = RpcTimer(load, CONFIG, clock.measured_s)
    timer.on_start()
    timer.on_head()
    timer.on_end(End(StatusCode.UNAVAILABLE))
    assert load.failure_rate == 1.0


# Policy


def test_endpoints_are_described() -> None:
    world = PolicyWorld(PeakEwmaFactory())
    world.update("a")
    world["a"].ready()

    def note() -> str:
        node = world.policy.describe()  # type: ignore[attr-defined]
        return str(node.children[0].detail)

    assert note() == "not measured, 0 requests in flight"
    result = world.picker.pick(ANY_RPC)
    assert isinstance(result, Complete)
    assert isinstance(result.tracker, RpcTimer)
    result.tracker.on_start()
    world.advance(0.0123)
    result.tracker.on_head()
    assert note() == "latency 12.3 ms, 1 requests in flight"
    result.tracker.on_end(End(StatusCode.INTERNAL))
    assert note() == "latency 12.3 ms, 100% failed, 0 requests in flight"


def test_state_changes_are_traced() -> None:
    world = PolicyWorld(PeakEwmaFactory())
    with hits(world.trace, "peak_ewma.state") as events:
        world.update("a")
        world["a"].ready()
    assert [event.fields["after"] for event in events] == [CONNECTING, READY]


@pytest.mark.parametrize("config", [{}, {"decayTime": "0.1s", "failurePenalty": "0s"}])
def test_policy_conforms(config: dict[str, object]) -> None:
    check_policy(PeakEwmaFactory(), config=config, seeds=range(25))
