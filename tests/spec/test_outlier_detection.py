"""A50 and A61: outlier_detection_experimental, which ejects failing endpoints for a time."""

import gc
import weakref
from collections.abc import Callable, Mapping
from typing import Final

import pytest

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    EMPTY_METADATA,
    OK,
    Address,
    Endpoint,
    Key,
    Metadata,
    State,
    Status,
    StatusCode,
    ValidationError,
    ValidationErrors,
    hits,
)
from proxyless.lb import (
    Complete,
    Helper,
    PickInfo,
    Policy,
    PolicyFactory,
    PolicyRegistry,
    Subchannel,
    SubchannelPicker,
    Update,
)
from proxyless.lb.hierarchy import with_path
from proxyless.lb.policies.outlier_detection import OutlierDetectionConfig, OutlierDetectionFactory
from proxyless.lb.policies.outlier_detection.config import (
    EjectionRules,
    FailurePercentageEjection,
    SuccessRateEjection,
)
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.priority import PriorityFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.testing import ANY_RPC, FakeHelper, check_policy
from proxyless.testing import address as kit_address
from tests.worlds.child_policies import ParentPolicyWorld, stub_config
from tests.worlds.policies import (
    CONNECTING,
    FAILURE,
    READY,
    EndpointName,
    Name,
    PolicyWorld,
    ScriptedSubchannel,
    address,
    endpoint,
)

ROUND_ROBIN: Final[list[object]] = [{"round_robin": {}}]
PICK_FIRST: Final[list[object]] = [{"pick_first": {}}]

INTERVAL_S = 10
MOMENT_S = 0.001

# Endpoints that fail more than half of at least four RPCs are ejected, up to half of all.
FAILURES: Final = {
    "failurePercentageEjection": {"threshold": 50, "minimumHosts": 1, "requestVolume": 4},
    "maxEjectionPercent": 50,
}
RATES: Final = {
    "successRateEjection": {"minimumHosts": 2, "requestVolume": 4},
    "maxEjectionPercent": 50,
}


class End:
    """How an attempt ended."""

    def __init__(self, code: StatusCode) -> None:
        self.status = Status(code)

    @property
    def trailing_metadata(self) -> Metadata:
        return EMPTY_METADATA


def run_rpc(picked: Complete, code: StatusCode = StatusCode.OK) -> None:
    """Start and end an RPC on a pick, as a channel does."""
    if picked.tracker is not None:
        picked.tracker.on_start()
        picked.tracker.on_end(End(code))


class ReportWorld(PolicyWorld):
    """A world that can drop old reports."""

    def drop_reports(self) -> None:
        """Drop all reports but the last, with their pickers."""
        del self.helper.reports[:-1]
        self._reports_taken = 1

    def name_all(self, *names: Name) -> None:
        """Register names of endpoints that the test creates itself."""
        self._names.update((address(name), name) for name in names)


class OutlierWorld(ReportWorld):
    """An outlier_detection policy over round_robin, unless the test configures another child."""

    def __init__(self, *others: PolicyFactory, seed: int = 1) -> None:
        registered: tuple[PolicyFactory, ...] = (
            RoundRobinFactory(),
            PickFirstFactory(),
            PriorityFactory(),
        )
        super().__init__(OutlierDetectionFactory(), others=registered + others, seed=seed)

    def configure(self, *endpoints: EndpointName, **config: object) -> Status:
        return self.update(*endpoints, config={"childPolicy": ROUND_ROBIN, **config})

    def start(self, *endpoints: EndpointName, **config: object) -> None:
        """Configure the policy, and connect all endpoints."""
        self.configure(*endpoints, **config)
        for subchannel in tuple(self.subchannels):
            if not subchannel.is_released:  # Another address of the endpoint is connected.
                subchannel.connecting()
                subchannel.ready()

    def pick_for(self, name: Name) -> Complete:
        """Pick until this address is picked."""
        for _ in range(2 * len(self.subchannels)):
            result = self.picker.pick(ANY_RPC)
            if isinstance(result, Complete) and result.subchannel.address == address(name):
                return result
        raise AssertionError(f"{name!r} is not picked")

    def rpcs(self, name: Name, *, ok: int = 0, failed: int = 0) -> None:
        picked = self.pick_for(name)
        for _ in range(ok):
            run_rpc(picked)
        for _ in range(failed):
            run_rpc(picked, StatusCode.INTERNAL)

    def succeed_rpcs(self, *names: Name, count: int = 10) -> None:
        for name in names:
            self.rpcs(name, ok=count)

    def eject(self, name: Name, *others: Name) -> None:
        """End an interval in which the RPCs of this endpoint failed and those of others did not."""
        self.rpcs(name, failed=10)
        self.succeed_rpcs(*others)
        self.advance(INTERVAL_S)
        self.expect_ejected(name)

    @property
    def in_use(self) -> set[Name]:
        """Endpoints that get RPCs."""
        names = self.picks(2 * len(self.subchannels)) if self.state is READY else []
        return {name for name in names if isinstance(name, str)}

    def expect_ejected(self, *names: Name) -> None:
        """Check that all endpoints but these get RPCs, and that all are still connected."""
        assert self.in_use == set(self.subchannel_names) - set(names)
        assert all(each.state is READY for each in self.subchannels)

    def expect_returns_after(self, seconds: float, name: Name) -> None:
        """Check that the endpoint returns after this time, and not before."""
        self.advance(seconds - MOMENT_S)
        assert name not in self.in_use, f"{name!r} has returned too early"
        self.advance(MOMENT_S)
        assert name in self.in_use, f"{name!r} has not returned after {seconds} s"


@pytest.fixture
def world() -> OutlierWorld:
    return OutlierWorld()


# ---------------------------------------------------------------------------------------------
# Config


def parse(json: Mapping[str, object]) -> OutlierDetectionConfig:
    config = OutlierWorld().parse({"childPolicy": ROUND_ROBIN, **json})
    assert isinstance(config, OutlierDetectionConfig)
    return config


@pytest.mark.spec("OD-01")
def test_config_has_the_defaults_of_a50() -> None:
    assert OutlierDetectionFactory.name == "outlier_detection_experimental"
    config = parse({})
    assert config.interval_s == 10
    assert config.rules.base_ejection_time_s == 30
    assert config.rules.max_ejection_time_s == 300
    assert config.rules.max_ejection_percent == 10
    assert config.rules.success_rate is None
    assert config.rules.failure_percentage is None
    assert config.child.name == "round_robin"


@pytest.mark.spec("OD-01")
def test_configs_of_the_algorithms_have_the_defaults_of_a50() -> None:
    rules = parse({"successRateEjection": {}, "failurePercentageEjection": {}}).rules
    rate, percentage = rules.success_rate, rules.failure_percentage
    assert rate is not None
    assert percentage is not None
    assert rate.stdev_factor == 1900
    assert (rate.enforcement_percentage, rate.minimum_hosts, rate.request_volume) == (100, 5, 100)
    assert percentage.threshold == 85
    assert percentage.enforcement_percentage == 100
    assert (percentage.minimum_hosts, percentage.request_volume) == (5, 50)


@pytest.mark.spec("OD-01")
@pytest.mark.parametrize(
    ("base", "maximum"), [("0s", 300), ("299.5s", 300), ("300.5s", 300.5), ("1000s", 1000)]
)
def test_max_ejection_time_is_at_least_the_base_ejection_time_by_default(
    base: str, maximum: float
) -> None:
    assert parse({"baseEjectionTime": base}).rules.max_ejection_time_s == maximum


@pytest.mark.spec("OD-01")
def test_all_fields_of_the_config_are_read() -> None:
    config = parse(
        {
            "interval": "1.5s",
            "baseEjectionTime": "2s",
            "maxEjectionTime": "0.000000001s",
            "maxEjectionPercent": 21,
            "successRateEjection": {
                "stdevFactor": 1,
                "enforcementPercentage": 2,
                "minimumHosts": 3,
                "requestVolume": 2**32 - 1,
            },
            "failurePercentageEjection": {
                "threshold": 5.0,
                "enforcementPercentage": "6",
                "minimumHosts": 7,
                "requestVolume": 8,
            },
        }
    )
    assert config.interval_s == 1.5
    assert config.rules == EjectionRules(
        base_ejection_time_s=2,
        max_ejection_time_s=1e-9,
        max_ejection_percent=21,
        success_rate=SuccessRateEjection(
            stdev_factor=1, enforcement_percentage=2, minimum_hosts=3, request_volume=2**32 - 1
        ),
        failure_percentage=FailurePercentageEjection(
            threshold=5, enforcement_percentage=6, minimum_hosts=7, request_volume=8
        ),
    )


@pytest.mark.spec("OD-01")
def test_config_accepts_proto_field_names() -> None:
    rules = parse({"max_ejection_percent": 7, "success_rate_ejection": {"stdev_factor": 8}}).rules
    assert rules.max_ejection_percent == 7
    assert rules.success_rate == SuccessRateEjection(stdev_factor=8)


@pytest.mark.spec("OD-02")
@pytest.mark.parametrize(
    ("json", "where"),
    [
        ({"interval": "-1s"}, "interval error:is '-1s'"),
        ({"baseEjectionTime": "-0.5s"}, "baseEjectionTime error:is '-0.5s'"),
        ({"maxEjectionTime": "315576000001s"}, "maxEjectionTime error:is '315576000001s'"),
        ({"interval": "1.0000000001s"}, "interval error:is '1.0000000001s'"),
        ({"interval": "1"}, "interval error:is '1', wanted a duration"),
        ({"interval": 1}, "interval error:is 1, wanted a duration"),
        ({"interval": {"seconds": 1}}, "interval error:is an object, wanted a duration"),
        ({"maxEjectionPercent": 101}, "maxEjectionPercent error:is 101"),
        ({"maxEjectionPercent": -1}, "maxEjectionPercent error:is -1"),
        ({"maxEjectionPercent": True}, "maxEjectionPercent error:is a boolean"),
        ({"maxEjectionPercent": 1.5}, "maxEjectionPercent error:is 1.5"),
        (
            {"successRateEjection": {"enforcementPercentage": 101}},
            "successRateEjection.enforcementPercentage error:is 101",
        ),
        (
            {"failurePercentageEjection": {"enforcementPercentage": 101}},
            "failurePercentageEjection.enforcementPercentage error:is 101",
        ),
        (
            {"failurePercentageEjection": {"threshold": 101}},
            "failurePercentageEjection.threshold error:is 101",
        ),
        (
            {"successRateEjection": {"requestVolume": 2**32}},
            "successRateEjection.requestVolume error:is 4294967296",
        ),
        ({"successRateEjection": []}, "successRateEjection error:is a list, wanted an object"),
        ({"childPolicy": None}, "childPolicy error:is missing"),
        ({"childPolicy": []}, "childPolicy error:No known policies"),
        ({"childPolicy": [{"newer": {}}]}, "childPolicy error:No known policies in list: newer"),
        ({"childPolicy": {}}, "childPolicy error:is an object"),
    ],
)
def test_invalid_config_is_rejected(json: Mapping[str, object], where: str) -> None:
    with pytest.raises(ValidationError) as raised:
        parse(json)
    assert where in str(raised.value)


@pytest.mark.spec("OD-02")
def test_all_errors_of_a_config_are_reported() -> None:
    bad = {"interval": "x", "maxEjectionPercent": 101, "childPolicy": []}
    with pytest.raises(ValidationError) as raised:
        parse(bad)
    assert raised.value.errors.count == 3


@pytest.mark.spec("OD-02")
def test_explicit_zeros_are_kept() -> None:
    zeros = {"enforcementPercentage": 0, "minimumHosts": 0, "requestVolume": 0}
    config = parse(
        {
            "interval": "0s",
            "baseEjectionTime": "0s",
            "maxEjectionTime": "0s",
            "maxEjectionPercent": 0,
            "successRateEjection": {"stdevFactor": 0, **zeros},
            "failurePercentageEjection": {"threshold": 0, **zeros},
        }
    )
    assert config.interval_s == 0
    assert config.rules == EjectionRules(
        base_ejection_time_s=0,
        max_ejection_time_s=0,
        max_ejection_percent=0,
        success_rate=SuccessRateEjection(
            stdev_factor=0, enforcement_percentage=0, minimum_hosts=0, request_volume=0
        ),
        failure_percentage=FailurePercentageEjection(
            threshold=0, enforcement_percentage=0, minimum_hosts=0, request_volume=0
        ),
    )


@pytest.mark.spec("OD-02")
def test_interval_of_zero_does_not_loop(world: OutlierWorld) -> None:
    world.start("a", "b", interval="0s", **FAILURES)
    world.rpcs("a", failed=10)
    world.rpcs("b", ok=10)
    world.advance(1)  # The clock raises if timers fire without end.
    world.expect_ejected("a")


# ---------------------------------------------------------------------------------------------
# Neither algorithm


@pytest.mark.spec("OD-03")
def test_picker_of_the_child_is_used_unchanged_without_algorithms() -> None:
    world = ParentPolicyWorld(OutlierDetectionFactory())
    world.update("a", config={"childPolicy": stub_config("child")})
    world.report("child", READY)
    world.expect_uses("child")  # The same picker object.
    assert world.clock.timers_pending == 0


@pytest.mark.spec("OD-03")
def test_endpoints_are_neither_counted_nor_ejected_without_algorithms(world: OutlierWorld) -> None:
    world.start("a", "b")
    picked = world.pick_for("a")
    assert picked.tracker is None
    assert isinstance(picked.subchannel, ScriptedSubchannel)
    assert world.clock.timers_pending == 0
    world.advance(1000)
    world.expect_ejected()


@pytest.mark.spec("OD-03")
def test_all_endpoints_return_and_multipliers_are_zero_when_it_is_turned_off(
    world: OutlierWorld,
) -> None:
    world.start("a", "b", **FAILURES)
    world.eject("a", "b")
    world.advance(40)
    world.eject("a", "b")  # The second ejection would last 60 s.
    world.configure("a", "b")
    world.expect_ejected()
    assert world.clock.timers_pending == 0
    world.configure("a", "b", **FAILURES)
    world.eject("a", "b")
    world.expect_returns_after(40, "a")


@pytest.mark.spec("OD-03")
@pytest.mark.parametrize("also_off", [{"successRateEjection": None}, {"maxEjectionPercent": 100}])
def test_endpoints_return_when_both_algorithms_are_unset(
    world: OutlierWorld, also_off: dict[str, object]
) -> None:
    world.start("a", "b", **FAILURES)
    world.eject("a", "b")
    world.configure("a", "b", **also_off)
    world.expect_ejected()
    world.rpcs("a", failed=10)
    world.advance(100)
    world.expect_ejected()


@pytest.mark.spec("OD-03", "OD-04")
def test_existing_connections_are_counted_when_an_algorithm_is_turned_on() -> None:
    helper = FakeHelper(PolicyRegistry([RoundRobinFactory()]))
    policy = OutlierDetectionFactory().create(helper)

    def update(**config: object) -> None:
        json = {"childPolicy": ROUND_ROBIN, **config}
        parsed = OutlierDetectionFactory().parse_config(
            json, ValidationErrors(), helper.context.registry
        )
        endpoints = tuple(endpoint_of(kit_address(name)) for name in "ab")
        policy.update(Update(endpoints, parsed))

    def picked() -> list[Complete]:
        return [each for each in (helper.pick() for _ in range(4)) if isinstance(each, Complete)]

    update()
    for name in "ab":
        helper.connection(name).become(CONNECTING)
        helper.connection(name).become(READY)
    update(**FAILURES)
    assert all(each.state is READY for each in helper.connections), "a connection was lost"
    assert all(each.attributes == EMPTY_ATTRIBUTES for each in helper.subchannels)
    for each in picked() * 5:
        failed = each.subchannel.address == kit_address("a")
        run_rpc(each, StatusCode.INTERNAL if failed else StatusCode.OK)
    helper.clock.advance(INTERVAL_S)
    assert {each.subchannel.address for each in picked()} == {kit_address("b")}
    update()
    assert {each.subchannel.address for each in picked()} == {kit_address("a"), kit_address("b")}
    assert all(each.tracker is None for each in picked()), "RPCs are counted while it is off"
    policy.close()
    assert not helper.subchannels


def endpoint_of(at: Address) -> Endpoint:
    return Endpoint((at,))


# ---------------------------------------------------------------------------------------------
# The interval


@pytest.mark.spec("OD-04")
def test_first_interval_starts_with_the_config_that_turns_it_on(world: OutlierWorld) -> None:
    world.start("a", "b")
    world.advance(7)
    world.share("a", READY)
    world.share("b", READY)
    world.configure("a", "b", **FAILURES)
    world.rpcs("a", failed=10)
    world.succeed_rpcs("b")
    world.advance(INTERVAL_S - MOMENT_S)
    assert world.in_use == {"a", "b"}
    world.advance(MOMENT_S)
    assert world.in_use == {"b"}


@pytest.mark.spec("OD-04")
def test_first_interval_is_a_full_one_each_time_it_is_turned_on(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    world.advance(7)
    world.configure("a", "b")
    world.configure("a", "b", **FAILURES)
    world.rpcs("a", failed=10)
    world.advance(INTERVAL_S - MOMENT_S)
    world.expect_ejected()
    world.advance(MOMENT_S)
    world.expect_ejected("a")


@pytest.mark.spec("OD-04")
def test_counts_are_reset_when_it_is_turned_off(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    world.rpcs("a", failed=10)
    world.advance(5)
    world.configure("a", "b")
    world.configure("a", "b", **FAILURES)
    world.succeed_rpcs("b")
    world.advance(INTERVAL_S)
    world.expect_ejected()
    world.rpcs("a", failed=10)
    world.advance(INTERVAL_S)
    world.expect_ejected("a")


@pytest.mark.spec("OD-04")
@pytest.mark.parametrize(
    ("interval_s", "left_s"), [(20, 14), (10, 4), (7, 1), (6, 0), (3, 0), (0, 0)]
)
def test_changed_interval_applies_to_the_interval_under_way(
    world: OutlierWorld, interval_s: int, left_s: int
) -> None:
    world.start("a", "b", **FAILURES)
    world.rpcs("a", failed=10)
    world.succeed_rpcs("b")
    world.advance(6)
    world.configure("a", "b", interval=f"{interval_s}s", **FAILURES)
    if left_s:
        world.advance(left_s - MOMENT_S)
        world.expect_ejected()
        world.advance(MOMENT_S)
    else:
        world.settle()
    world.expect_ejected("a")


@pytest.mark.spec("OD-04")
def test_changed_interval_counts_from_the_last_sweep(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    world.advance(INTERVAL_S + 3)
    world.rpcs("a", failed=10)
    world.configure("a", "b", interval="5s", **FAILURES)
    world.advance(2 - MOMENT_S)
    world.expect_ejected()
    world.advance(MOMENT_S)
    world.expect_ejected("a")


@pytest.mark.spec("OD-04")
def test_frequent_updates_do_not_delay_the_sweep(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    world.rpcs("a", failed=10)
    for _ in range(INTERVAL_S):
        world.expect_ejected()
        world.configure("a", "b", **FAILURES)
        world.advance(1)
    world.expect_ejected("a")


@pytest.mark.spec("OD-05")
def test_counts_are_reset_after_each_interval(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    for _ in range(5):
        world.rpcs("a", failed=3)  # One less than requestVolume.
        world.advance(INTERVAL_S)
    world.expect_ejected()


# ---------------------------------------------------------------------------------------------
# Ejection time


@pytest.mark.spec("OD-05")
def test_endpoint_returns_at_the_first_sweep_after_its_ejection_time(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    world.eject("a", "b")
    # After exactly 30 s it is still ejected: A50 requires that the time has passed.
    world.expect_returns_after(40, "a")


@pytest.mark.spec("OD-05")
def test_ejection_time_grows_with_each_ejection(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    for times in (1, 2, 3):
        world.eject("a", "b")
        world.expect_returns_after(30 * times + INTERVAL_S, "a")


@pytest.mark.spec("OD-05")
def test_ejection_time_shrinks_with_each_interval_without_ejection(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    for times in (1, 2, 3):
        world.eject("a", "b")
        world.expect_returns_after(30 * times + INTERVAL_S, "a")
    world.advance(2 * INTERVAL_S)  # From 3 to 1.
    world.eject("a", "b")
    world.expect_returns_after(2 * 30 + INTERVAL_S, "a")
    world.advance(100 * INTERVAL_S)  # Not below 0.
    world.eject("a", "b")
    world.expect_returns_after(30 + INTERVAL_S, "a")


@pytest.mark.spec("OD-05")
@pytest.mark.parametrize(
    ("base", "maximum", "second_s"), [("30s", "40s", 40), ("30s", "0s", 30), ("30s", "60s", 60)]
)
def test_ejection_time_is_limited_by_max_ejection_time(
    world: OutlierWorld, base: str, maximum: str, second_s: int
) -> None:
    world.start("a", "b", baseEjectionTime=base, maxEjectionTime=maximum, **FAILURES)
    world.eject("a", "b")
    world.expect_returns_after(40, "a")
    world.eject("a", "b")
    world.expect_returns_after(second_s + INTERVAL_S, "a")


@pytest.mark.spec("OD-05")
def test_changed_ejection_time_applies_to_ejected_endpoints(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    world.eject("a", "b")
    world.configure("a", "b", baseEjectionTime="5s", **FAILURES)
    world.expect_returns_after(INTERVAL_S, "a")


# ---------------------------------------------------------------------------------------------
# Success rate


@pytest.mark.spec("OD-06")
def test_endpoint_is_ejected_when_its_success_rate_is_far_below_the_others(
    world: OutlierWorld,
) -> None:
    world.start(*"abcde", **RATES)
    world.succeed_rpcs(*"bcde")
    world.rpcs("a", failed=10)
    world.advance(INTERVAL_S)
    # The mean is 0.8, the deviation of all five 0.4: 0.8 - 1.9 × 0.4 is 0.04. The deviation of a
    # sample would be 0.447, with no ejection.
    world.expect_ejected("a")


@pytest.mark.spec("OD-06")
@pytest.mark.parametrize(("factor", "is_ejected"), [(0, True), (999, True), (1000, False)])
def test_endpoint_is_ejected_only_when_its_rate_is_below_the_limit(
    world: OutlierWorld, factor: int, is_ejected: bool
) -> None:
    rule = {"minimumHosts": 2, "requestVolume": 10, "stdevFactor": factor}
    world.start("a", "b", successRateEjection=rule, maxEjectionPercent=50)
    world.rpcs("a", failed=10)
    world.rpcs("b", ok=10)
    world.advance(INTERVAL_S)  # Mean and deviation are 0.5, so with 1000 the limit is 0.
    world.expect_ejected(*("a" if is_ejected else ""))


@pytest.mark.spec("OD-06")
def test_no_endpoint_is_ejected_when_all_have_the_same_rate(world: OutlierWorld) -> None:
    rule = {"minimumHosts": 2, "requestVolume": 10, "stdevFactor": 0}
    world.start(*"abc", successRateEjection=rule, maxEjectionPercent=100)
    for name in "abc":
        world.rpcs(name, ok=1, failed=9)
    world.advance(INTERVAL_S)
    world.expect_ejected()


@pytest.mark.spec("OD-06")
@pytest.mark.parametrize(("hosts", "is_ejected"), [(5, True), (6, False)])
def test_success_rate_needs_minimum_hosts(
    world: OutlierWorld, hosts: int, is_ejected: bool
) -> None:
    rule = {"minimumHosts": hosts, "requestVolume": 4}
    world.start(*"abcdef", successRateEjection=rule)
    world.succeed_rpcs(*"bcde")
    world.rpcs("a", failed=10)
    world.rpcs("f", ok=3)  # One less than requestVolume.
    world.advance(INTERVAL_S)
    world.expect_ejected(*("a" if is_ejected else ""))


@pytest.mark.spec("OD-06")
@pytest.mark.parametrize(("volume", "is_ejected"), [(10, True), (11, False)])
def test_success_rate_needs_the_request_volume(
    world: OutlierWorld, volume: int, is_ejected: bool
) -> None:
    rule = {"minimumHosts": 2, "requestVolume": volume}
    world.start(*"abcdef", successRateEjection=rule)
    world.succeed_rpcs(*"bcdef", count=20)
    world.rpcs("a", failed=10)
    world.advance(INTERVAL_S)
    world.expect_ejected(*("a" if is_ejected else ""))


# ---------------------------------------------------------------------------------------------
# Failure percentage


@pytest.mark.spec("OD-07")
@pytest.mark.parametrize(("failed", "is_ejected"), [(50, False), (51, True)])
def test_endpoint_is_ejected_when_it_fails_more_than_the_threshold(
    world: OutlierWorld, failed: int, is_ejected: bool
) -> None:
    world.start("a", "b", **FAILURES)
    world.rpcs("a", ok=100 - failed, failed=failed)
    world.rpcs("b", ok=50, failed=50)
    world.advance(INTERVAL_S)
    world.expect_ejected(*("a" if is_ejected else ""))


@pytest.mark.spec("OD-07")
@pytest.mark.parametrize(("hosts", "is_ejected"), [(2, True), (3, False)])
def test_failure_percentage_needs_minimum_hosts(
    world: OutlierWorld, hosts: int, is_ejected: bool
) -> None:
    rule = {"minimumHosts": hosts, "requestVolume": 4, "threshold": 50}
    world.start("a", "b", "c", failurePercentageEjection=rule)
    world.rpcs("a", failed=4)
    world.rpcs("b", ok=4)
    world.rpcs("c", ok=3)
    world.advance(INTERVAL_S)
    world.expect_ejected(*("a" if is_ejected else ""))


@pytest.mark.spec("OD-07")
@pytest.mark.parametrize(("failed", "is_ejected"), [(3, False), (4, True)])
def test_failure_percentage_needs_the_request_volume(
    world: OutlierWorld, failed: int, is_ejected: bool
) -> None:
    world.start("a", "b", **FAILURES)
    world.rpcs("a", failed=failed)
    world.advance(INTERVAL_S)
    world.expect_ejected(*("a" if is_ejected else ""))


@pytest.mark.spec("OD-07")
def test_every_status_but_ok_counts_as_a_failure(world: OutlierWorld) -> None:
    codes = [code for code in StatusCode if code is not StatusCode.OK]
    world.start("a", "b", **FAILURES)
    picked = world.pick_for("a")
    for code in codes:
        run_rpc(picked, code)
    world.rpcs("a", ok=len(codes) - 1)
    world.advance(INTERVAL_S)
    world.expect_ejected("a")


# ---------------------------------------------------------------------------------------------
# Enforcement and maximum


@pytest.mark.spec("OD-08")
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"failurePercentageEjection": {"minimumHosts": 1, "requestVolume": 4}}, 100),
        ({"successRateEjection": {"minimumHosts": 1, "requestVolume": 4}}, 100),
    ],
)
@pytest.mark.parametrize("percentage", [0, 30, 100])
def test_outliers_are_ejected_with_the_enforcement_percentage(
    rule: dict[str, dict[str, int]], expected: int, percentage: int
) -> None:
    [(name, settings)] = rule.items()
    ejected = 0
    for seed in range(100):
        world = OutlierWorld(seed=seed)
        world.start(*"abcde", **{name: {**settings, "enforcementPercentage": percentage}})
        world.rpcs("a", failed=4)
        world.succeed_rpcs(*"bcde", count=4)
        world.advance(INTERVAL_S)
        ejected += world.in_use == set("bcde")
    assert ejected == pytest.approx(expected * percentage / 100, abs=0 if percentage != 30 else 12)


@pytest.mark.spec("OD-08")
@pytest.mark.parametrize(
    ("percent", "ejected"), [(0, 1), (1, 1), (10, 1), (11, 2), (25, 3), (30, 3), (31, 4), (100, 10)]
)
def test_no_more_endpoints_are_ejected_when_the_maximum_is_reached(
    world: OutlierWorld, percent: int, ejected: int
) -> None:
    names = "abcdefghij"
    world.start(*names, **{**FAILURES, "maxEjectionPercent": percent})
    for name in names:
        world.rpcs(name, failed=4)
    world.advance(INTERVAL_S)
    assert len(world.in_use) == len(names) - ejected


@pytest.mark.spec("OD-08")
def test_ejected_endpoints_count_towards_the_maximum(world: OutlierWorld) -> None:
    world.start(*"abcdefghij", **{**FAILURES, "maxEjectionPercent": 20})
    world.eject("a")
    for name in "bcd":
        world.rpcs(name, failed=4)
    world.advance(INTERVAL_S)
    assert len(world.in_use) == 8
    for name in world.in_use:
        world.rpcs(name, failed=4)
    world.advance(INTERVAL_S)
    assert len(world.in_use) == 8


@pytest.mark.spec("OD-08")
def test_first_endpoint_is_ejected_even_if_the_maximum_is_0(world: OutlierWorld) -> None:
    world.start("a", "b", **{**FAILURES, "maxEjectionPercent": 0})
    world.eject("a", "b")
    world.rpcs("b", failed=10)
    world.advance(INTERVAL_S)
    world.expect_ejected("a")


def test_both_algorithms_together_eject_an_endpoint_once(world: OutlierWorld) -> None:
    world.start(*"abcde", **{**FAILURES, **RATES})
    world.succeed_rpcs(*"bcde")
    world.eject("a")
    world.expect_returns_after(30 + INTERVAL_S, "a")


def test_rpcs_that_end_after_the_ejection_do_not_extend_it(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    under_way = world.pick_for("a")
    world.eject("a", "b")
    for _ in range(10):
        run_rpc(under_way, StatusCode.UNAVAILABLE)
    world.expect_returns_after(30 + INTERVAL_S, "a")


# ---------------------------------------------------------------------------------------------
# Endpoints


@pytest.mark.spec("OD-09")
def test_rpcs_to_any_address_count_for_the_endpoint(world: OutlierWorld) -> None:
    world.start(("a", "a6"), "b", **FAILURES)
    first = "a" if "a" in world.in_use else "a6"
    world.rpcs(first, failed=2)
    world[first].idle()
    world.settle()
    world[first].connecting()
    world[first].fail()
    second = "a6" if first == "a" else "a"
    world[second].connecting()
    world[second].ready()
    world.rpcs(second, failed=2)
    world.succeed_rpcs("b")
    world.advance(INTERVAL_S)
    world.expect_ejected(second)


@pytest.mark.spec("OD-09", "OD-10")
def test_the_ejection_of_an_endpoint_covers_its_other_addresses(world: OutlierWorld) -> None:
    world.start(("a", "a6"), "b", **FAILURES)
    [first] = world.in_use - {"b"}
    world.eject(first, "b")
    world[first].idle()
    world.settle()
    world[first].connecting()
    world[first].fail()
    second = "a6" if first == "a" else "a"
    world[second].connecting()
    world[second].ready()
    world.expect_ejected(second)


@pytest.mark.spec("OD-09")
def test_endpoint_with_another_set_of_addresses_is_not_ejected(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    world.eject("a", "b")
    world.share("a", READY)
    world.configure(("a", "a6"), "b", **FAILURES)
    world.expect_ejected()


@pytest.mark.spec("OD-09")
def test_endpoint_stays_ejected_when_the_order_of_its_addresses_changes(
    world: OutlierWorld,
) -> None:
    world.start(("a", "a6"), "b", **FAILURES)
    [first] = world.in_use - {"b"}
    world.eject(first, "b")
    world.configure("b", ("a6", "a"), **FAILURES)
    world.expect_ejected(first)


@pytest.mark.spec("OD-09")
def test_endpoint_stays_ejected_when_its_attributes_change(world: OutlierWorld) -> None:
    zone = Key[str]("zone")
    world.start("a", "b", **FAILURES)
    world.eject("a", "b")
    world.share("a", READY)
    moved = endpoint("a", EMPTY_ATTRIBUTES.with_(zone, "z"))
    world.configure(moved, "b", **FAILURES)
    assert world["a"].attributes.get(zone) == "z"
    world.expect_ejected("a")
    world.expect_returns_after(30 + INTERVAL_S, "a")


@pytest.mark.spec("OD-09")
def test_endpoint_is_not_ejected_when_it_returns_after_its_removal(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    world.eject("a", "b")
    world.configure("b", **FAILURES)
    world.expect_subchannels("b")
    world.start("a", "b", **FAILURES)
    world.expect_ejected()


@pytest.mark.spec("A75-05")
def test_an_endpoint_that_moves_to_another_priority_stays_ejected() -> None:
    world = OutlierWorld()

    def update(**places: str) -> None:
        child = {"config": ROUND_ROBIN}
        children = {"p0": child, "p1": child}
        priority = {"priority_experimental": {"children": children, "priorities": ["p0", "p1"]}}
        endpoints = [with_path(endpoint(name), (place,)) for name, place in places.items()]
        world.update(*endpoints, config={"childPolicy": [priority], **FAILURES})

    world.name_all(*"abc")
    update(a="p0", b="p0", c="p1")
    for name in "ab":
        world[name].connecting()
        world[name].ready()
    world.eject("a", "b")
    world.share("a", READY)
    update(a="p1", b="p0", c="p1")
    world["b"].fail()
    world["c"].connecting()
    world["c"].ready()
    assert world.in_use == {"c"}
    world.expect_returns_after(30 + INTERVAL_S, "a")


# ---------------------------------------------------------------------------------------------
# Notifications of a child


class Probe:
    """A child with a subchannel for each address, which records all notifications."""

    def __init__(self, helper: Helper) -> None:
        self.helper = helper
        self.subchannels: dict[Address, Subchannel] = {}
        self.notifications: list[tuple[str, str, State]] = []
        # Called when a health notification is TRANSIENT_FAILURE.
        self.react: Callable[[Address], None] = lambda at: None

    def update(self, update: Update) -> Status:
        assert not isinstance(update.endpoints, Status)
        listed = {at for each in update.endpoints for at in each.addresses}
        for at in [at for at in self.subchannels if at not in listed]:
            self.release(at)
        for at in sorted(listed - self.subchannels.keys()):
            self.create(at)
        self.report()
        return OK

    def create(self, at: Address) -> None:
        subchannel = self.helper.create_subchannel(at, EMPTY_ATTRIBUTES)
        self.subchannels[at] = subchannel
        subchannel.watch(lambda state, _: self._record("state", at, state))
        subchannel.watch_health(lambda state, _: self._record("health", at, state))

    def release(self, at: Address) -> None:
        self.subchannels.pop(at).release()

    def report(self) -> None:
        """Publish a picker of the first subchannel."""
        first = next(iter(self.subchannels.values()))
        self.helper.update_state(READY, SubchannelPicker(Complete(first)))

    def _record(self, what: str, at: Address, state: State) -> None:
        self.notifications.append((what, str(at), state))
        if what == "health" and state is FAILURE:
            self.react(at)

    def take_notifications(self, what: str, name: Name) -> list[State]:
        """Notifications of this kind about this endpoint since the last call."""
        notifications = [
            each for each in self.notifications if each[:2] == (what, str(address(name)))
        ]
        self.notifications = [each for each in self.notifications if each not in notifications]
        return [state for _, _, state in notifications]

    def exit_idle(self) -> None:
        return

    def reset_backoff(self) -> None:
        return

    def close(self) -> None:
        for at in tuple(self.subchannels):
            self.release(at)


class ProbeFactory:
    """Makes one probe."""

    name: Final = "probe"

    def __init__(self) -> None:
        self.made: list[Probe] = []

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        return json

    def create(self, helper: Helper) -> Policy:
        probe = Probe(helper)
        self.made.append(probe)
        return probe


class ProbeWorld(ReportWorld):
    """An outlier_detection policy over a probe, which picks "a" for all RPCs."""

    def __init__(self) -> None:
        self._probes = ProbeFactory()
        super().__init__(OutlierDetectionFactory(), others=(self._probes,))

    def configure(self, *endpoints: EndpointName, **config: object) -> None:
        self.update(*endpoints, config={"childPolicy": [{"probe": {}}], **FAILURES, **config})

    @property
    def probe(self) -> Probe:
        return self._probes.made[-1]

    def eject_a(self) -> None:
        picked = self.picker.pick(PickInfo("/x/y"))
        assert isinstance(picked, Complete)
        for _ in range(10):
            run_rpc(picked, StatusCode.INTERNAL)
        self.advance(INTERVAL_S)

    def notifications(self, name: Name) -> list[State]:
        """Health notifications about this endpoint since the last call."""
        return self.probe.take_notifications("health", name)


@pytest.fixture
def probing() -> ProbeWorld:
    world = ProbeWorld()
    world.configure("a", "b")
    assert world.notifications("a") == [READY]
    return world


@pytest.mark.spec("OD-10")
def test_ejection_changes_health_and_not_connectivity(probing: ProbeWorld) -> None:
    probing.probe.take_notifications("state", "a")
    probing.eject_a()
    assert probing.notifications("a") == [FAILURE]
    assert probing.probe.take_notifications("state", "a") == []
    probing.advance(1000)
    assert probing.notifications("a") == [READY]
    assert probing.probe.take_notifications("state", "a") == []


@pytest.mark.spec("OD-10")
def test_latest_health_is_delivered_after_the_ejection(
    probing: ProbeWorld,
) -> None:
    probing.eject_a()
    probing["a"].set_health(CONNECTING)
    probing["a"].set_health(READY)
    probing["a"].set_health(FAILURE, "not serving")
    assert probing.notifications("a") == [FAILURE]  # Only the ejection.
    probing.advance(1000)
    assert probing.notifications("a") == [FAILURE]
    probing["a"].set_health(READY)
    assert probing.notifications("a") == [READY]


@pytest.mark.spec("OD-10")
def test_connectivity_is_notified_while_the_endpoint_is_ejected(
    probing: ProbeWorld,
) -> None:
    probing.eject_a()
    probing.probe.take_notifications("state", "a")
    probing["a"].ready()
    probing["a"].idle()
    assert probing.probe.take_notifications("state", "a") == [READY, State.IDLE]


@pytest.mark.spec("OD-10")
def test_new_subchannel_is_unhealthy_while_its_endpoint_is_ejected(
    probing: ProbeWorld,
) -> None:
    probing.eject_a()
    probing.notifications("a")
    probing.probe.release(address("a"))
    probing.probe.create(address("a"))
    assert probing.notifications("a") == [FAILURE]
    probing.advance(1000)
    assert probing.notifications("a") == [READY]


@pytest.mark.spec("OD-10")
def test_endpoint_stays_ejected_when_it_reconnects(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    world.eject("a", "b")
    world["a"].idle()
    world.settle()
    world["a"].connecting()
    world["a"].ready()
    world.expect_ejected("a")
    world.expect_returns_after(30 + INTERVAL_S, "a")


@pytest.mark.spec("OD-10")
def test_rpcs_fail_with_the_reason_when_all_endpoints_are_ejected(world: OutlierWorld) -> None:
    world.start("a", **FAILURES)
    world.rpcs("a", ok=1, failed=9)
    world.advance(INTERVAL_S)
    world.expect_state(FAILURE)
    world.expect_pick_fails("ejected by outlier detection: 9 of 10 RPCs failed, more than 50 %")


@pytest.mark.spec("OD-10")
def test_changes_of_one_sweep_are_reported_once(world: OutlierWorld) -> None:
    world.start(*"abcdefgh", **FAILURES)
    for name in "abcd":
        world.rpcs(name, failed=10)
    world.expect_never(FAILURE)
    world.advance(INTERVAL_S)
    world.expect_reports(READY)
    world.expect_ejected(*"abcd")
    world.advance(30 + INTERVAL_S)
    world.expect_reports(READY)
    world.expect_ejected()


@pytest.mark.spec("OD-11")
def test_pick_first_as_child_is_not_affected_by_ejections(world: OutlierWorld) -> None:
    config = {"childPolicy": PICK_FIRST, **FAILURES}
    world.update("a", "b", config=config)
    world["a"].ready()
    world.expect_reports(CONNECTING, READY)
    world.take_requests()
    world.rpcs("a", failed=100)
    world.advance(100)
    world.expect_reports()
    world.expect_pick("a")
    world.expect_subchannels("a")
    world.expect_requests()
    assert world["a"].health_watches == 0


@pytest.mark.spec("OD-12")
def test_equal_update_notifies_nothing(probing: ProbeWorld) -> None:
    probing.probe.notifications.clear()
    for _ in range(3):
        probing.configure("a", "b")
    assert probing.probe.notifications == []
    probing.eject_a()
    assert probing.notifications("a") == [FAILURE]
    for _ in range(3):
        probing.configure("a", "b")
    assert probing.probe.notifications == []


@pytest.mark.spec("OD-12")
def test_released_subchannel_is_not_referenced(probing: ProbeWorld) -> None:
    released = weakref.ref(probing["a"])  # Only the policy and the world refer to it.
    probing.probe.release(address("a"))
    probing.probe.create(address("a"))
    probing.probe.report()
    probing.drop_reports()
    gc.collect()
    assert released() is None


# ---------------------------------------------------------------------------------------------
# Bugs of other implementations


def test_grpc_java_9469_failure_of_the_ejection_is_notified(
    probing: ProbeWorld,
) -> None:
    """There the flag that suppresses changes was set before the failure was notified."""
    probing.eject_a()
    assert probing.notifications("a") == [FAILURE]


def test_subchannels_may_be_created_and_released_during_an_ejection(probing: ProbeWorld) -> None:
    """There the set of subchannels was changed during its iteration."""
    probe = probing.probe

    def replace(at: Address) -> None:
        probe.react = lambda at: None
        probe.release(at)
        probe.create(at)
        probe.create(at)  # The test releases `second`.

    second = probe.subchannels[address("a")]
    probe.create(address("a"))
    probe.react = replace
    probing.eject_a()
    assert set(probing.notifications("a")) == {READY, FAILURE}
    probing.advance(1000)
    assert READY in probing.notifications("a")
    second.release()


def test_grpc_java_10683_released_subchannels_do_not_accumulate(world: OutlierWorld) -> None:
    """There they were kept, and notified of ejections, forever."""
    world.start("a", "b", **FAILURES)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        world["a"].idle()
        world.settle()
        world["a"].connecting()
        world["a"].ready()
        world.configure("b", **FAILURES)
        world.start("a", "b", **FAILURES)
    assert len(world.subchannels) == 2
    world.drop_reports()
    gc.collect()
    assert len(gc.get_objects()) - before < 500


def test_grpc_33069_a_policy_that_watches_no_health_does_not_crash(world: OutlierWorld) -> None:
    """There the ejection of an address below pick_first ended the process."""
    world.update("a", "b", config={"childPolicy": PICK_FIRST, **FAILURES})
    world["a"].ready()
    for _ in range(10):
        world.rpcs("a", failed=10)
        world.advance(INTERVAL_S)
    world["a"].idle()
    world.advance(100)
    world.policy.exit_idle()
    world["a"].connecting()
    world["a"].ready()
    world.expect_pick("a")


def test_grpc_33694_update_does_not_notify_ready_again(probing: ProbeWorld) -> None:
    """There each update notified READY again, which restarted weighted_round_robin's blackout."""
    probing.probe.notifications.clear()
    for percent in (10, 20, 20, 30):
        probing.configure("b", "a", maxEjectionPercent=percent)
    assert probing.probe.notifications == []


def test_grpc_33694_ready_connection_is_reported_ready_once(world: OutlierWorld) -> None:
    """The same for a new list: the first state is notified once, by the connection."""
    world.start("a", "b", **FAILURES)
    world.expect_reports(CONNECTING, READY, READY)
    for _ in range(3):
        world.configure("a", "b", **FAILURES)
    world.expect_reports()


# ---------------------------------------------------------------------------------------------
# Conformance, trackers, tracing and close


@pytest.mark.parametrize("rules", [{}, FAILURES, RATES])
def test_policy_passes_the_checks_for_all_policies(rules: dict[str, object]) -> None:
    config = {"childPolicy": ROUND_ROBIN, **rules}
    check_policy(OutlierDetectionFactory(), config=config, seeds=range(5))


def test_tracker_of_the_child_is_called_for_attempts() -> None:
    notifications: list[str] = []

    class Notes:
        def on_start(self) -> None:
            notifications.append("start")

        def on_end(self, end: object) -> None:
            notifications.append("end")

    inside = ProbeWorld()
    inside.configure("a")
    probe = inside.probe
    complete = Complete(probe.subchannels[address("a")], Notes())
    probe.helper.update_state(READY, SubchannelPicker(complete))
    inside.eject_a()
    assert notifications == ["start", "end"] * 10
    assert FAILURE in inside.notifications("a")


def test_pick_returns_the_same_object_each_time(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    assert world.pick_for("a") is world.pick_for("a")


def test_pick_returns_the_subchannel_of_the_channel(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    assert isinstance(world.pick_for("a").subchannel, ScriptedSubchannel)


def test_changes_are_traced_with_their_reasons(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    with hits(world.trace, "outlier_detection.ejected") as ejected:
        world.eject("a", "b")
    assert [event.fields["reason"] for event in ejected] == ["10 of 10 RPCs failed, more than 50 %"]
    assert ejected[0].fields["endpoint"] == str(address("a"))
    with hits(world.trace, "outlier_detection.unejected") as unejected:
        world.advance(100)
    assert [event.fields["reason"] for event in unejected] == ["30 s are over"]
    world.eject("a", "b")
    with hits(world.trace, "outlier_detection.unejected") as unejected:
        world.configure("a", "b")
    assert [event.fields["reason"] for event in unejected] == ["outlier detection is off"]


def test_resolver_error_does_not_change_ejections(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    world.eject("a", "b")
    config = world.parse({"childPolicy": ROUND_ROBIN, **FAILURES})
    status = world.policy.update(Update(Status(StatusCode.UNAVAILABLE, "no such host"), config))
    assert status.details == "no such host"
    world.expect_ejected("a")
    world.expect_returns_after(30 + INTERVAL_S, "a")


def test_close_releases_all_subchannels_and_timers(world: OutlierWorld) -> None:
    world.start("a", "b", **FAILURES)
    world.eject("a", "b")
    world.policy.close()
    world.expect_closed()
