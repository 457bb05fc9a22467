"""A28: weighted_target_experimental, which picks among READY children by weight."""

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

from proxyless.base import Endpoint, State, Status, ValidationError, hits
from proxyless.lb import PolicyFactory, Update
from proxyless.lb.hierarchy import path_of, split_by_child
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.priority import PriorityFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.lb.policies.weighted_target import WeightedTargetConfig, WeightedTargetFactory
from proxyless.lb.retained_child import RETENTION_S
from proxyless.testing import ANY_RPC
from tests.worlds.child_policies import ParentPolicyWorld, StubChildFactory, at, stub_config
from tests.worlds.policies import (
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    PolicyWorld,
    address,
    unavailable,
)

MOMENT_S = 0.001
NO_TARGETS = "weighted_target policy has no target with a weight above 0"


def target(name: str, weight: int = 1, **more: object) -> dict[str, object]:
    return {"weight": weight, "childPolicy": stub_config(name), **more}


class TargetWorld(ParentPolicyWorld):
    """A weighted_target policy whose children are stubs."""

    def __init__(self, *others: PolicyFactory, seed: int = 1) -> None:
        super().__init__(WeightedTargetFactory(), others=others, seed=seed)

    def weigh(self, *, endpoints: Iterable[Endpoint] = (), **weights: int) -> Status:
        """Update with these targets and weights."""
        targets = {name: target(name, weight) for name, weight in weights.items()}
        return self.update(*endpoints, config={"targets": targets})

    def shares(self, picks: int) -> Counter[str]:
        """Number of picks per child."""
        for stub in self.stubs.created:
            stub.picks = 0
        for _ in range(picks):
            self.picker.pick(ANY_RPC)
        return Counter({stub.name: stub.picks for stub in self.stubs.created if stub.picks})


@pytest.fixture
def world() -> TargetWorld:
    return TargetWorld()


# ---------------------------------------------------------------------------------------------
# Config


@pytest.mark.spec("WT-01")
def test_targets_have_a_weight_and_a_policy(world: TargetWorld) -> None:
    assert WeightedTargetFactory.name == "weighted_target_experimental"
    listed = {
        "a": {"weight": 3, "childPolicy": [{"newer": {}}, *stub_config("a")], "colour": "red"},
        "b": target("b", 2**32 - 1),
    }
    config = world.parse({"targets": listed, "shape": 3})
    assert isinstance(config, WeightedTargetConfig)
    assert {name: each.weight for name, each in config.targets.items()} == {"a": 3, "b": 2**32 - 1}
    assert {each.policy.name for each in config.targets.values()} == {"stub"}


@pytest.mark.spec("WT-01")
@pytest.mark.parametrize(
    ("json", "where"),
    [
        ([], "targets error:is a list"),
        ({"a": 1}, 'targets["a"] error:is 1'),
        ({"a": {"weight": 1}}, 'targets["a"].childPolicy error:is missing'),
        ({"a": target("a", childPolicy=[])}, 'targets["a"].childPolicy error:No known policies'),
        (
            {"a": target("a", childPolicy=[{"newer": {}}])},
            'targets["a"].childPolicy error:No known policies in list: newer',
        ),
        ({"a": target("a", childPolicy={})}, 'targets["a"].childPolicy error:is an object'),
        (
            {"a": target("a", childPolicy=[{"stub": {"bad": 1}}])},
            'targets["a"].childPolicy[0].stub.bad error:is not wanted',
        ),
        ({"a": {"childPolicy": stub_config("a")}}, 'targets["a"].weight error:is missing'),
        ({"a": {**target("a"), "weight": "x"}}, "targets[\"a\"].weight error:is 'x'"),
        ({"a": {**target("a"), "weight": 1.5}}, 'targets["a"].weight error:is 1.5'),
        ({"a": {**target("a"), "weight": True}}, 'targets["a"].weight error:is a boolean'),
        ({"a": {**target("a"), "weight": None}}, 'targets["a"].weight error:is missing'),
        ({"a": target("a", -1)}, 'targets["a"].weight error:is -1'),
        ({"a": target("a", 2**32)}, 'targets["a"].weight error:is 4294967296'),
    ],
)
def test_invalid_target_is_rejected(json: object, where: str) -> None:
    with pytest.raises(ValidationError) as raised:
        TargetWorld().parse({"targets": json})
    assert where in str(raised.value)


# ---------------------------------------------------------------------------------------------
# Picks


@pytest.mark.spec("WT-02")
def test_picks_are_in_proportion_to_weights(world: TargetWorld) -> None:
    world.weigh(a=75, b=25)
    world.report("a", READY)
    world.report("b", READY)
    shares = world.shares(10_000)
    assert shares.total() == 10_000
    assert shares["a"] == pytest.approx(7_500, abs=200)


@pytest.mark.spec("WT-02")
def test_picks_of_many_targets_are_in_proportion_to_weights(world: TargetWorld) -> None:
    weights = {f"t{index}": index for index in range(1, 21)}
    world.update(config={"targets": {name: target(name, each) for name, each in weights.items()}})
    for name in weights:
        world.report(name, READY)
    shares = world.shares(21_000)  # A hundred picks per unit of weight.
    for name, weight in weights.items():
        assert shares[name] == pytest.approx(100 * weight, abs=200)


@pytest.mark.spec("WT-02")
@pytest.mark.parametrize("state", [CONNECTING, FAILURE, IDLE])
def test_only_children_that_are_ready_are_picked(world: TargetWorld, state: State) -> None:
    world.weigh(a=1, b=1000, c=1)
    world.report("a", READY)
    world.report("b", state)
    world.report("c", READY)
    shares = world.shares(1000)
    assert shares.keys() == {"a", "c"}
    assert shares["a"] == pytest.approx(500, abs=80)


@pytest.mark.spec("WT-02")
def test_picks_use_the_random_source_of_the_context() -> None:
    results = set()
    for _ in range(2):
        world = TargetWorld(seed=7)
        world.weigh(a=1, b=1)
        world.report("a", READY)
        world.report("b", READY)
        results.add(world.shares(1000)["a"])
    assert len(results) == 1


# ---------------------------------------------------------------------------------------------
# States


@pytest.mark.spec("WT-03")
def test_state_is_the_best_of_the_children(world: TargetWorld) -> None:
    world.weigh(a=1, b=1, c=1, d=1)
    world.expect_reports(CONNECTING)
    world.expect_picker_queues()
    world.report("a", FAILURE)
    world.report("b", IDLE)
    world.report("c", CONNECTING)
    world.expect_reports()
    world.report("d", READY)
    world.expect_reports(READY)
    world.report("d", FAILURE)
    world.expect_reports(CONNECTING)
    world.report("c", FAILURE)
    world.expect_reports(IDLE)
    world.expect_picker_queues()
    world.report("b", FAILURE)
    world.expect_reports(FAILURE)


@pytest.mark.spec("WT-03")
@pytest.mark.parametrize("state", [CONNECTING, IDLE])
def test_failed_child_counts_as_failing_until_it_is_ready(world: TargetWorld, state: State) -> None:
    world.weigh(a=1, b=1)
    world.report("a", FAILURE)
    world.report("b", FAILURE)
    world.expect_reports(CONNECTING, FAILURE)
    world.report("a", state)
    world.expect_reports(FAILURE)
    world.report("a", READY)
    world.expect_reports(READY)
    world.report("a", CONNECTING)
    world.expect_reports(CONNECTING)


@pytest.mark.spec("WT-03")
@pytest.mark.parametrize("state", [CONNECTING, IDLE])
def test_picker_of_a_failed_child_is_used_when_it_reconnects(
    world: TargetWorld, state: State
) -> None:
    world.weigh(a=1, b=1)
    world.report("a", FAILURE)
    world.report("b", FAILURE)
    world.expect_reports(CONNECTING, FAILURE)
    world.report("a", state)
    world.expect_reports(FAILURE)  # The state stays, the picker changes.
    assert set(world.picks(100)) == {None, unavailable("b fails")}
    assert world.child("a").picks > 0
    world.child("a").report(FAILURE, "a fails again")
    assert set(world.picks(100)) == {unavailable("a fails again"), unavailable("b fails")}


@pytest.mark.spec("WT-03")
def test_rpcs_wait_when_all_failed_children_reconnect(world: TargetWorld) -> None:
    world.weigh(a=1, b=1)
    for name in "ab":
        world.report(name, FAILURE, CONNECTING)
    world.expect_state(FAILURE)
    assert set(world.picks(100)) == {None}
    assert world.picker.status == unavailable("connecting again after: a fails")


@pytest.mark.spec("WT-03")
def test_rpcs_wait_when_an_update_makes_the_only_failed_child_reconnect(world: TargetWorld) -> None:
    world.weigh(a=1)
    world.report("a", FAILURE)
    world.expect_pick_fails("a fails")
    world.stubs.on_update = {"a": [CONNECTING]}
    world.weigh(a=1)
    world.expect_state(FAILURE)
    world.expect_picker_queues()
    assert world.picker.status == unavailable("connecting again after: a fails")
    world.report("a", READY)
    world.expect_ready("a")


@pytest.mark.spec("WT-04")
def test_pitfall_20_rpcs_fail_with_the_errors_of_children_when_all_fail(world: TargetWorld) -> None:
    world.weigh(a=1, b=1)
    world.child("a").report(FAILURE, "10.0.0.1 refused")
    world.child("b").report(FAILURE, "10.0.0.2 unreachable")
    texts = Counter(str(result) for result in world.picks(100))
    assert texts.keys() == {"UNAVAILABLE: 10.0.0.1 refused", "UNAVAILABLE: 10.0.0.2 unreachable"}
    assert not world.picker.status.is_ok
    world.child("a").report(FAILURE, "10.0.0.1 timed out")  # A new error is used at once.
    assert unavailable("10.0.0.1 timed out") in world.picks(100)


@pytest.mark.spec("WT-04")
@pytest.mark.parametrize("state", [READY, CONNECTING, IDLE])
def test_no_rpc_fails_when_only_one_child_fails(world: TargetWorld, state: State) -> None:
    world.weigh(a=1000, b=1)
    world.report("a", FAILURE)
    world.report("b", state)
    assert set(world.picks(100)) == {None}


@pytest.mark.spec("WT-05")
@pytest.mark.parametrize("config", [{}, {"targets": {}}, {"targets": {"a": target("a", 0)}}])
def test_pitfall_20_rpcs_fail_when_there_are_no_targets(
    world: TargetWorld, config: Mapping[str, object]
) -> None:
    world.update(config=config)
    world.expect_reports(FAILURE)
    world.expect_pick_fails(NO_TARGETS)


@pytest.mark.spec("WT-05")
def test_rpcs_fail_when_all_targets_are_removed(world: TargetWorld) -> None:
    world.weigh(a=1)
    world.report("a", READY)
    world.weigh()
    world.expect_pick_fails(NO_TARGETS)
    world.report("a", CONNECTING, READY)
    world.expect_pick_fails(NO_TARGETS)


# ---------------------------------------------------------------------------------------------
# Updates


@pytest.mark.spec("WT-06")
def test_pitfall_2_update_is_reported_once_at_its_end(world: TargetWorld) -> None:
    world.stubs.on_update = {"a": [FAILURE], "b": [CONNECTING, FAILURE, READY], "c": [FAILURE]}
    world.weigh(a=1, b=1, c=1)
    world.expect_reports(READY)
    world.stubs.on_update = {"a": [READY], "b": [FAILURE], "c": [READY]}
    world.weigh(b=1, a=1, c=1)
    world.expect_reports(READY)
    assert world.shares(100).keys() == {"a", "c"}
    world.stubs.on_update = {}
    world.weigh(a=1, b=1, c=1)
    world.expect_reports(READY)


@pytest.mark.spec("WT-06")
def test_pitfall_20_policy_is_connecting_when_one_child_fails_at_once(
    world: TargetWorld,
) -> None:
    world.stubs.on_update = {"a": [FAILURE]}
    world.weigh(a=1, b=1)
    world.expect_reports(CONNECTING)


@pytest.mark.spec("WT-06")
def test_update_returns_the_errors_of_its_children(world: TargetWorld) -> None:
    world.stubs.update_results = {"b": unavailable("no endpoints")}
    assert world.weigh(a=1, b=1) == unavailable("errors from children: [child 'b': no endpoints]")
    world.stubs.update_results = {}
    assert world.weigh(a=1, b=1).is_ok


@pytest.mark.spec("WT-06")
@pytest.mark.parametrize("is_first", [True, False])
def test_reports_are_processed_after_an_update_that_raised(
    world: TargetWorld, *, is_first: bool
) -> None:
    if not is_first:
        world.weigh(a=1, b=1)
    world.stubs.raises = {"a"}
    with pytest.raises(RuntimeError, match="a raises"):
        world.weigh(a=1, b=1)
    world.report("a", READY)
    world.expect_ready("a")


@pytest.mark.spec("WT-07")
def test_removed_child_is_not_picked_and_retained_for_15_minutes(world: TargetWorld) -> None:
    world.weigh(a=1, b=1)
    world.report("a", READY)
    world.report("b", READY)
    world.child("b").create_subchannel("x")
    world.weigh(a=1)
    assert world.shares(100) == {"a": 100}
    world.weigh(a=1)
    assert len(world.child("b").updates) == 1
    world.advance(RETENTION_S - MOMENT_S)
    world.expect_children("a", "b")
    assert len(world.subchannels) == 1
    world.advance(MOMENT_S)
    world.expect_children("a")
    assert not world.subchannels


@pytest.mark.spec("WT-07")
def test_returning_child_has_its_newest_state(world: TargetWorld) -> None:
    world.weigh(a=1, b=1)
    world.report("a", READY)
    world.weigh(a=1)
    world.report("b", FAILURE, READY)  # The child is removed, but its report is kept.
    world.expect_never(FAILURE)
    world.advance(RETENTION_S - MOMENT_S)
    world.weigh(a=1, b=3, endpoints=[at("b", "x")])
    world.expect_reports(READY)
    assert world.shares(4000)["b"] == pytest.approx(3000, abs=150)
    assert world.child("b").endpoints == [(str(address("x")), ())]
    world.advance(2 * RETENTION_S)
    world.expect_children("a", "b")
    assert len(world.stubs.created) == 2


@pytest.mark.spec("WT-07")
def test_changed_weights_create_no_children(world: TargetWorld) -> None:
    world.weigh(a=1, b=99)
    world.report("a", READY)
    world.report("b", READY)
    world.weigh(a=99, b=1)
    assert world.shares(1000)["a"] == pytest.approx(990, abs=20)
    assert len(world.stubs.created) == 2


@pytest.mark.spec("WT-07")
def test_child_is_replaced_gracefully_when_its_policy_changes() -> None:
    others = StubChildFactory("other")
    world = TargetWorld(others)
    world.weigh(a=1)
    world.report("a", READY)
    config = {"a": {"weight": 1, "childPolicy": stub_config("a", kind="other")}}
    world.update(config={"targets": config})
    world.expect_uses("a")
    [new] = others.created
    new.report(READY)
    assert world.picker is new.picker


@pytest.mark.spec("WT-08")
def test_exit_idle_is_called_on_an_idle_child_after_its_report(world: TargetWorld) -> None:
    world.weigh(a=1, b=1)
    world.report("a", READY)
    world.report("b", READY)
    world.report("a", IDLE)
    assert world.child("a").calls == []  # Not inside its report.
    world.settle()
    assert world.child("a").calls == ["exit_idle"]
    assert world.child("b").calls == []


@pytest.mark.spec("WT-08")
def test_report_of_a_child_inside_exit_idle_is_used(world: TargetWorld) -> None:
    world.weigh(a=1)
    world.report("a", IDLE)
    world.expect_reports(CONNECTING, IDLE)
    world.settle()
    world.expect_reports(CONNECTING)


@pytest.mark.spec("WT-08")
def test_exit_idle_of_several_children_is_reported_once(world: TargetWorld) -> None:
    world.weigh(a=1, b=1)
    world.stubs.on_exit_idle = {"a": [CONNECTING, READY], "b": [READY]}
    world.report("a", IDLE)
    world.report("b", IDLE)
    world.expect_reports(CONNECTING, IDLE)
    world.settle()
    world.expect_reports(READY)
    assert world.shares(100).keys() == {"a", "b"}


@pytest.mark.spec("WT-08")
def test_exit_idle_is_not_called_on_a_closed_child(world: TargetWorld) -> None:
    world.weigh(a=1, b=1)
    # It reports IDLE just before its retention ends; exit_idle would follow its close.
    world.clock.call_later(RETENTION_S, lambda: world.report("b", IDLE))
    world.weigh(a=1)
    world.advance(RETENTION_S)
    world.expect_children("a")
    world.report("a", IDLE)
    world.policy.close()
    world.expect_closed()
    world.settle()


@pytest.mark.spec("WT-08")
def test_a_target_of_weight_0_is_never_picked(world: TargetWorld) -> None:
    world.weigh(a=0, b=1, c=0, d=1)
    world.expect_children("a", "b", "c", "d")
    for name in "abcd":
        world.report(name, READY)
    assert world.shares(1000).keys() == {"b", "d"}
    world.report("b", FAILURE)
    world.report("d", FAILURE)
    world.expect_state(FAILURE)
    assert set(world.picks(100)) == {unavailable("b fails"), unavailable("d fails")}
    world.weigh(a=1, b=1)
    assert world.shares(100) == {"a": 100}


# ---------------------------------------------------------------------------------------------
# Forwarding, close and tracing


def test_reresolution_requests_are_forwarded(world: TargetWorld) -> None:
    world.weigh(a=1)
    world.child("a").request_reresolution()
    assert world.reresolutions == 1


def test_exit_idle_reaches_all_targets_and_reset_backoff_all_children(
    world: TargetWorld,
) -> None:
    world.weigh(a=1, b=1, c=1)
    world.weigh(a=1, b=0)
    world.stubs.on_reset = {"a": [READY], "b": [READY]}
    world.expect_never(FAILURE)
    world.policy.exit_idle()
    world.expect_reports()
    world.policy.reset_backoff()
    world.expect_reports(READY)
    assert world.child("a").calls == world.child("b").calls == ["exit_idle", "reset_backoff"]
    assert world.child("c").calls == ["reset_backoff"]


def test_close_closes_all_children_and_stops_all_timers(world: TargetWorld) -> None:
    world.weigh(a=1, b=1)
    world.report("a", IDLE)
    world.weigh(b=1)
    made = list(world.stubs.created)
    assert world.clock.timers_pending == 2
    world.expect_never(READY)
    world.policy.close()
    world.expect_children()
    world.expect_closed()
    for each in made:
        each.report_again()
    world.expect_reports()


def test_changes_of_children_are_traced(world: TargetWorld) -> None:
    with hits(world.trace, "weighted_target.child") as events:
        world.weigh(a=1)
        world.weigh(b=1)
        world.weigh(a=1, b=1)
    assert [(event.fields["child"], event.fields["change"]) for event in events] == [
        ("a", "created"),
        ("b", "created"),
        ("a", "deactivated"),
        ("a", "reactivated"),
    ]


# ---------------------------------------------------------------------------------------------
# Hierarchical addresses (A56)


def leaves_config() -> Mapping[str, object]:
    """The tree of the example in A56, with stubs as leaves."""

    def child(*localities: str) -> Mapping[str, object]:
        targets = {name: target(name) for name in localities}
        return {"config": [{"weighted_target_experimental": {"targets": targets}}]}

    children = {
        "child0": child("localityA", "localityB"),
        "child1": child("localityC", "localityD"),
    }
    return {"children": children, "priorities": ["child0", "child1"]}


EXAMPLE = [
    at("child0/localityA", "a"),
    at("child0/localityB", "b"),
    at("child1/localityC", "c"),
    at("child1/localityD", "d"),
]


@pytest.mark.spec("A56-15")
def test_every_leaf_gets_its_endpoint_in_the_example_of_a56() -> None:
    world = ParentPolicyWorld(PriorityFactory(), others=(WeightedTargetFactory(),))
    world.update(*EXAMPLE, config=leaves_config())
    world.expect_children("localityA", "localityB")
    world.report("localityA", FAILURE)
    world.report("localityB", FAILURE)
    world.expect_children("localityA", "localityB", "localityC", "localityD")
    for locality, name in zip("ABCD", "abcd", strict=True):
        assert world.child(f"locality{locality}").endpoints == [(str(address(name)), ())]


@pytest.mark.spec("A56-15")
def test_rpcs_use_the_endpoints_of_the_priority_in_use_in_the_example_of_a56() -> None:
    factories = (WeightedTargetFactory(), RoundRobinFactory(), PickFirstFactory())
    world = PolicyWorld(PriorityFactory(), others=factories)
    leaf: list[Mapping[str, object]] = [{"round_robin": {}}]
    children = {
        name: {
            "config": [
                {
                    "weighted_target_experimental": {
                        "targets": {each: {"weight": 1, "childPolicy": leaf} for each in localities}
                    }
                }
            ]
        }
        for name, localities in (
            ("child0", ("localityA", "localityB")),
            ("child1", ("localityC", "localityD")),
        )
    }
    world.update(*EXAMPLE, config={"children": children, "priorities": ["child0", "child1"]})
    for name in "ab":
        world[name].connecting()
        world[name].fail()
    for name in "cd":
        world[name].connecting()
        world[name].ready()
    assert set(world.picks(50)) == {str(address("c")), str(address("d"))}


@pytest.mark.spec("A56-19")
def test_priority_and_weighted_target_split_endpoints_equally() -> None:
    """Children of both policies get the endpoints of `split_by_child`."""
    strays = [at("x", "e"), Endpoint((address("f"),))]
    given = (at("b/y", "a"), at("a", "b"), *strays, at("a/x/y", "c"), at("b", "d"))
    expected = split_by_child(given)
    targets = TargetWorld()
    targets.weigh(endpoints=given, a=1, b=1)
    priorities = ParentPolicyWorld(PriorityFactory())
    listed = {name: {"config": stub_config(name)} for name in "ab"}
    priorities.stubs.on_update = {"a": [FAILURE]}
    priorities.update(*given, config={"children": listed, "priorities": ["a", "b"]})
    for name in "ab":
        for world in (targets, priorities):
            seen = world.child(name).updates[-1].endpoints
            assert seen == expected.endpoints_of(name)
            assert not isinstance(seen, Status)
            found = expected.endpoints_of(name)
            assert not isinstance(found, Status)
            assert [path_of(each) for each in seen] == [path_of(each) for each in found]


def test_resolver_error_reaches_the_children(world: TargetWorld) -> None:
    config = world.parse({"targets": {"a": target("a")}})
    world.policy.update(Update(unavailable("no such host"), config))
    assert world.child("a").updates[-1].endpoints == unavailable("no such host")
