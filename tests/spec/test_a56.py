"""A56: priority_experimental, which uses the highest priority that works."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    Endpoint,
    Event,
    Key,
    State,
    Status,
    ValidationError,
    ValidationErrors,
    hits,
)
from proxyless.lb import PolicyFactory, PolicyRegistry, Update, parse_policy_list
from proxyless.lb.hierarchy import path_of
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.priority import PriorityConfig, PriorityFactory
from proxyless.lb.policies.priority.choice import ChildView, Create, Reason, Use, choose
from proxyless.lb.policies.priority.policy import (
    CHILD_POLICY_CACHE,
    FAILOVER_TIMEOUT_S,
    KEEPS_CONNECTING,
)
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.lb.retained_child import RETENTION_S
from tests.worlds.child_policies import (
    ParentPolicyWorld,
    StubChild,
    StubChildFactory,
    at,
    stub_config,
)
from tests.worlds.policies import (
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    DeadAddresses,
    PolicyWorld,
    address,
    endpoint,
    unavailable,
)

MOMENT_S = 0.001
TIMED_OUT = "failover timeout (10s) expired while CONNECTING"


def child(name: str, **more: object) -> dict[str, object]:
    return {"config": stub_config(name), **more}


def children(*names: str) -> dict[str, object]:
    return {name: child(name) for name in names}


class PriorityWorld(ParentPolicyWorld):
    """A priority policy whose children are stubs, unless the test configures others."""

    def __init__(self, *others: PolicyFactory) -> None:
        self.config: Mapping[str, object] = {}
        super().__init__(PriorityFactory(), others=others)

    def prioritize(
        self,
        *priorities: str,
        endpoints: Iterable[Endpoint] = (),
        also: Iterable[str] = (),
        ignoring: Collection[str] = (),
        configs: Mapping[str, object] | None = None,
    ) -> Status:
        """Update. `also` are children without priority; `ignoring` may not request endpoints."""
        listed = {
            name: child(name, ignore_reresolution_requests=name in ignoring)
            for name in (*priorities, *also)
        }
        for name, config in (configs or {}).items():
            listed[name]["config"] = config
        self.config = {"children": listed, "priorities": list(priorities)}
        return self.update(*endpoints, config=self.config)

    def fail_resolution(self, text: str) -> Status:
        return self.policy.update(Update(unavailable(text), self.parse(self.config)))

    def time_out(self) -> None:
        self.advance(FAILOVER_TIMEOUT_S)

    def expect_only_deactivated(self, *names: str) -> None:
        """Check that these children, and no others, are destroyed after the retention time."""
        staying = sorted(each.name for each in self.open_children if each.name not in names)
        self.advance(RETENTION_S)
        assert sorted(each.name for each in self.open_children) == staying


@pytest.fixture
def world() -> PriorityWorld:
    return PriorityWorld()


def errors_of(json: Mapping[str, object], *others: PolicyFactory) -> str:
    """Error text for this config."""
    with pytest.raises(ValidationError) as raised:
        PriorityWorld(*others).parse(json)
    return str(raised.value)


# ---------------------------------------------------------------------------------------------
# Config


@pytest.mark.spec("A56-01", "A56-68")
def test_policy_is_created_from_a_config_without_xds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.environ", {})
    world = PriorityWorld()
    json = [{"priority_experimental": {"children": children("p0"), "priorities": ["p0"]}}]
    errors = ValidationErrors()
    chosen = parse_policy_list(json, errors, world.context.registry)
    assert errors.ok
    assert chosen is not None
    assert chosen.name == "priority_experimental"
    policy = chosen.factory.create(world.helper)
    assert policy.update(Update((), chosen.config)).is_ok
    world.report("p0", READY)
    world.expect_ready("p0")


@pytest.mark.spec("A56-02")
@pytest.mark.parametrize("order", list(itertools.permutations(["x", "a", "m"])))
def test_the_order_of_priorities_is_kept(order: tuple[str, ...]) -> None:
    config = PriorityWorld().parse({"children": children("a", "m", "x"), "priorities": [*order]})
    assert isinstance(config, PriorityConfig)
    assert config.priorities == order
    assert config.children.keys() == {"a", "m", "x"}


@pytest.mark.spec("A56-03")
def test_first_supported_policy_of_a_child_is_used(world: PriorityWorld) -> None:
    config = [{"newer": {"no": "idea"}}, *stub_config("first"), *stub_config("second")]
    world.prioritize("p0", configs={"p0": config})
    world.expect_children("first")


@pytest.mark.spec("A56-04")
def test_child_without_a_supported_policy_is_an_error() -> None:
    unknown: list[object] = [{"newer": {}}, {"newest": {}}]
    listed = {"p7": {"config": unknown}, **children("p0")}
    text = errors_of({"children": listed, "priorities": ["p0"]})
    assert 'children["p7"].config error:No known policies in list: newer newest' in text


@pytest.mark.spec("A56-05")
@pytest.mark.parametrize(
    ("bad", "where"),
    [
        ({}, 'children["p0"].config error:is missing'),
        ({"config": {"stub": {}}}, 'children["p0"].config error:is an object'),
        ({"config": "stub"}, 'children["p0"].config error:is a string'),
        ({"config": ["stub"]}, 'children["p0"].config[0] error:is a string'),
        ({"config": [{}]}, 'children["p0"].config[0] error:has 0 keys'),
        ({"config": [{"stub": {}, "x": {}}]}, 'children["p0"].config[0] error:has 2 keys'),
        ({"config": [{"stub": 3}]}, 'children["p0"].config[0].stub error:is a number'),
        ({"config": [{"stub": {}}, 7]}, 'children["p0"].config[1] error:is a number'),
    ],
)
def test_a_child_needs_a_list_of_policies(bad: Mapping[str, object], where: str) -> None:
    assert where in errors_of({"children": {"p0": bad}, "priorities": ["p0"]})


@pytest.mark.spec("A56-06")
def test_error_lists_every_priority_without_a_child() -> None:
    text = errors_of({"children": children("p0"), "priorities": ["x", "p0", "y"]})
    assert "priorities[0] error:is 'x'" in text
    assert "priorities[2] error:is 'y'" in text
    assert "'p0'" not in text


@pytest.mark.spec("A56-07")
@pytest.mark.parametrize(
    ("json", "where"),
    [
        ({"children": []}, "children error:is a list, wanted an object"),
        ({"children": {"p0": []}}, 'children["p0"] error:is a list, wanted an object'),
        ({"priorities": {}}, "priorities error:is an object, wanted a list"),
        ({"priorities": [1]}, "priorities[0] error:is 1, wanted a string"),
        (
            {"children": {"p0": child("p0", ignore_reresolution_requests="true")}},
            "children[\"p0\"].ignoreReresolutionRequests error:is 'true', wanted a boolean",
        ),
        (
            {"children": {"p0": child("p0", ignoreReresolutionRequests=1)}},
            'children["p0"].ignoreReresolutionRequests error:is 1, wanted a boolean',
        ),
    ],
)
def test_wrong_types_are_errors(json: Mapping[str, object], where: str) -> None:
    assert where in errors_of(json)


@pytest.mark.spec("A56-08")
def test_unknown_keys_of_the_config_are_ignored(world: PriorityWorld) -> None:
    plain = {"children": children("p0"), "priorities": ["p0"]}
    more = {"children": {"p0": child("p0", colour=3)}, "priorities": ["p0"], "shape": []}
    assert world.parse(more) == world.parse(plain)


@pytest.mark.spec("A56-09")
@pytest.mark.parametrize(
    ("more", "ignores"),
    [
        ({}, False),
        ({"ignore_reresolution_requests": False}, False),
        ({"ignore_reresolution_requests": True}, True),
        ({"ignoreReresolutionRequests": False}, False),
        ({"ignoreReresolutionRequests": True}, True),
    ],
)
def test_ignore_reresolution_requests_is_read_in_either_spelling_and_false_by_default(
    world: PriorityWorld, more: Mapping[str, object], *, ignores: bool
) -> None:
    world.update(config={"children": {"p0": child("p0", **more)}, "priorities": ["p0"]})
    world.child("p0").request_reresolution()
    assert world.reresolutions == (0 if ignores else 1)


@pytest.mark.spec("A56-10")
@pytest.mark.parametrize(
    "json", [{"children": {}, "priorities": []}, {}, {"children": {}}, {"priorities": []}]
)
def test_empty_list_of_priorities_is_valid(json: Mapping[str, object]) -> None:
    assert PriorityWorld().parse(json) == PriorityConfig({}, ())


@pytest.mark.spec("A56-11")
def test_error_in_the_config_of_a_child_has_its_path() -> None:
    bad = {"config": [{"pick_first": {"shuffleAddressList": 666}}]}
    text = errors_of({"children": {"p0": bad}, "priorities": ["p0"]}, PickFirstFactory())
    assert 'children["p0"].config[0].pick_first.shuffleAddressList error:is 666' in text


@pytest.mark.spec("A56-12")
def test_a_child_without_a_priority_is_never_created(world: PriorityWorld) -> None:
    world.prioritize("p0", also=["spare"])
    world.report("p0", FAILURE)
    world.expect_children("p0")
    world.expect_uses("p0")


@pytest.mark.spec("A56-12")
def test_a_name_that_is_listed_twice_is_one_child(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1", "p0")
    world.report("p0", FAILURE)
    world.report("p1", FAILURE)
    world.expect_uses("p0")
    world.report("p0", READY)
    world.expect_ready("p0")
    world.expect_children("p0", "p1")
    world.expect_only_deactivated("p1")
    world.expect_ready("p0")


@pytest.mark.spec("A56-12")
def test_child_is_updated_and_deactivated_when_it_loses_its_priority(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1")
    world.report("p0", FAILURE)
    world.prioritize("p0", also=["p1"], endpoints=[at("p1", "a")])
    assert world.child("p1").endpoints == [(str(address("a")), ())]
    world.expect_uses("p0")
    world.expect_only_deactivated("p1")


# ---------------------------------------------------------------------------------------------
# Hierarchical addresses


@pytest.mark.spec("A56-13", "A56-14")
def test_child_gets_its_endpoints_with_the_rest_of_their_paths(world: PriorityWorld) -> None:
    world.prioritize(
        "p0", "p1", endpoints=[at("p0/x/y", "a"), at("p1/x", "b"), at("p0", "c"), at("p1", "d")]
    )
    world.report("p0", FAILURE)
    a, b, c, d = (str(address(name)) for name in "abcd")
    assert world.child("p0").endpoints == [(a, ("x", "y")), (c, ())]
    assert world.child("p1").endpoints == [(b, ("x",)), (d, ())]


@pytest.mark.spec("A56-16")
def test_endpoints_without_a_child_are_ignored(world: PriorityWorld) -> None:
    stray = [endpoint("a"), at("p9", "b"), at("P0", "c")]
    assert world.prioritize("p0", endpoints=[*stray, at("p0", "d")]).is_ok
    assert world.child("p0").endpoints == [(str(address("d")), ())]


@pytest.mark.spec("A56-17")
def test_order_and_attributes_are_kept_and_the_caller_s_endpoints_are_not_changed(
    world: PriorityWorld,
) -> None:
    weight, colour = Key[int]("weight"), Key[str]("colour")
    given = [
        Endpoint(each.addresses, each.attributes.with_(weight, index).with_(colour, "red"))
        for index, each in enumerate([at("p0", "c"), at("p1", "x"), at("p0", "a"), at("p0", "b")])
    ]
    before = [(each.addresses, each.attributes, path_of(each)) for each in given]
    world.prioritize("p0", "p1", endpoints=given)
    seen = world.child("p0").updates[-1].endpoints
    assert not isinstance(seen, Status)
    assert [each.addresses[0] for each in seen] == [address("c"), address("a"), address("b")]
    assert [each.attributes.get(weight) for each in seen] == [0, 2, 3]
    assert {each.attributes.get(colour) for each in seen} == {"red"}
    assert [(each.addresses, each.attributes, path_of(each)) for each in given] == before


@pytest.mark.spec("A56-17")
def test_child_gets_attributes_and_resolution_note_of_the_update(world: PriorityWorld) -> None:
    attributes = EMPTY_ATTRIBUTES.with_(Key[int]("answer"), 42)
    config = {"children": children("p0"), "priorities": ["p0"]}
    world.update(config=config, attributes=attributes, note="from dns")
    assert world.child("p0").updates[-1].attributes == attributes
    assert world.child("p0").updates[-1].resolution_note == "from dns"


@pytest.mark.spec("A56-18")
def test_child_without_endpoints_is_updated_with_an_empty_list(world: PriorityWorld) -> None:
    world.prioritize("p0", endpoints=[at("p0", "a")])
    world.prioritize("p0", endpoints=[at("p1", "a")])
    assert len(world.child("p0").updates) == 2
    assert world.child("p0").endpoints == []


@pytest.mark.spec("A56-18")
def test_an_error_of_the_resolver_reaches_the_children(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1", endpoints=[at("p0", "a")])
    world.fail_resolution("no such host")
    assert world.child("p0").updates[-1].endpoints == unavailable("no such host")
    world.report("p0", FAILURE)  # It also reaches children that are created later.
    assert world.child("p1").updates[-1].endpoints == unavailable("no such host")


# ---------------------------------------------------------------------------------------------
# Lazy creation


@pytest.mark.spec("A56-20")
def test_only_the_highest_child_is_created_at_first(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1", "p2", endpoints=[at("p1", "a"), at("p2", "b")])
    world.expect_children("p0")
    assert world.clock.timers_pending == 1  # The failover timer of p0.
    world.expect_subchannels()


@pytest.mark.spec("A56-21")
@pytest.mark.parametrize("state", [READY, IDLE, CONNECTING])
def test_next_child_is_created_only_when_the_one_above_fails(
    world: PriorityWorld, state: State
) -> None:
    world.prioritize("p0", "p1", "p2")
    world.report("p0", FAILURE)
    world.expect_children("p0", "p1")
    world.report("p1", state)
    world.expect_children("p0", "p1")
    world.report("p1", FAILURE)
    world.expect_children("p0", "p1", "p2")


@pytest.mark.spec("A56-22")
@pytest.mark.parametrize("state", [READY, IDLE])
def test_no_child_is_created_when_lower_priorities_change(
    world: PriorityWorld, state: State
) -> None:
    world.prioritize("p0", "p1")
    world.report("p0", state)
    world.prioritize("p0", "p1", "p2", "p3")
    world.prioritize("p0")
    world.prioritize("p0", "p4")
    world.advance(2 * RETENTION_S)
    world.expect_children("p0")
    assert len(world.stubs.created) == 1


@pytest.mark.spec("A56-23")
def test_new_child_gets_one_update_with_the_current_config_and_endpoints(
    world: PriorityWorld,
) -> None:
    world.prioritize("p0", "p1", endpoints=[at("p1", "a")])
    newer = {"p1": stub_config("p1", version=2)}
    world.prioritize("p0", "p1", endpoints=[at("p1", "b")], configs=newer)
    world.report("p0", FAILURE)
    assert len(world.child("p1").updates) == 1
    assert world.child("p1").endpoints == [(str(address("b")), ())]
    assert world.child("p1").config["version"] == 2


@pytest.mark.spec("A56-24")
@pytest.mark.parametrize("state", [READY, FAILURE, CONNECTING, IDLE])
def test_no_child_is_created_twice_when_it_reports_inside_its_first_update(
    world: PriorityWorld, state: State
) -> None:
    world.stubs.on_update = {"p0": [FAILURE], "p1": [state]}
    world.prioritize("p0", "p1")
    world.expect_children("p0", "p1")
    assert len(world.stubs.created) == 2
    world.expect_reports(state)
    world.expect_uses("p1")


@pytest.mark.spec("A56-24")
def test_pitfall_24_200_priorities_may_fail_inside_one_update(world: PriorityWorld) -> None:
    names = [f"p{index}" for index in range(200)]
    world.stubs.on_update = {name: [FAILURE] for name in names}
    world.prioritize(*names)
    world.expect_children(*names)
    world.expect_reports(FAILURE)
    world.expect_uses("p199")
    world.stubs.on_update = {}
    world.report("p100", READY)
    world.expect_ready("p100")


@pytest.mark.spec("A56-24")
def test_pitfall_24_200_priorities_may_fail_inside_one_report(world: PriorityWorld) -> None:
    names = [f"p{index}" for index in range(200)]
    world.stubs.on_update = {name: [FAILURE] for name in names[1:]}
    world.prioritize(*names)
    world.report("p0", READY)
    world.expect_reports(CONNECTING, READY)
    world.report("p0", FAILURE)
    world.expect_reports(FAILURE)
    world.expect_uses("p199")


@pytest.mark.spec("A56-25", "A56-65")
def test_a_child_that_has_not_reported_is_connecting(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1")
    world.expect_reports(CONNECTING)
    world.expect_waits()


# ---------------------------------------------------------------------------------------------
# Deactivation and reactivation


def settle_on_p1(world: PriorityWorld, *names: str) -> None:
    """p0 fails, p1 is READY."""
    world.prioritize(*(names or ("p0", "p1")))
    world.report("p0", FAILURE)
    world.report("p1", READY)


@pytest.mark.spec("A56-26", "A56-27")
@pytest.mark.parametrize("state", [READY, IDLE])
def test_lower_children_are_deactivated_and_destroyed_after_15_minutes(
    world: PriorityWorld, state: State
) -> None:
    world.prioritize("p0", "p1", "p2")
    world.report("p0", FAILURE)
    world.report("p1", FAILURE)
    world.child("p1").create_subchannel("a")
    world.child("p2").create_subchannel("b")
    world.report("p2", READY)
    world.report("p0", state)
    assert {each.address for each in world.subchannels} == {address("a"), address("b")}
    world.advance(RETENTION_S - MOMENT_S)
    world.expect_children("p0", "p1", "p2")
    assert len(world.subchannels) == 2
    world.advance(MOMENT_S)
    world.expect_children("p0")
    assert not world.subchannels
    assert world.clock.timers_pending == 0


@pytest.mark.spec("A56-28")
def test_deactivated_child_is_used_again_as_it_is(world: PriorityWorld) -> None:
    settle_on_p1(world)
    deactivated = world.child("p1")
    deactivated.create_subchannel("a")
    world.report("p0", READY)
    world.advance(RETENTION_S - MOMENT_S)
    world.expect_reports(CONNECTING, CONNECTING, READY, READY)
    world.report("p0", FAILURE)
    world.expect_reports(READY)
    assert world.picker is deactivated.picker
    assert world.child("p1") is deactivated
    assert world.helper.created == 1
    assert len(deactivated.updates) == 1
    world.advance(2 * RETENTION_S)
    world.expect_children("p0", "p1")


@pytest.mark.spec("A56-29")
def test_deactivating_again_does_not_extend_the_timer(world: PriorityWorld) -> None:
    settle_on_p1(world)
    for _ in range(15):
        world.report("p0", READY)
        world.expect_children("p0", "p1")
        world.advance(60)
    world.expect_children("p0")


@pytest.mark.spec("A56-30")
def test_no_child_is_deactivated_when_the_chosen_one_is_only_connecting(
    world: PriorityWorld,
) -> None:
    settle_on_p1(world)
    # The failover timer of p0 is pending; p1 stays READY.
    world.stubs.on_update = {"p0": [IDLE, CONNECTING]}
    world.prioritize("p0", "p1")
    world.expect_uses("p0")
    world.stubs.on_update = {}
    world.report("p0", FAILURE)
    # Without a timer: p1 is CONNECTING, then p0, then neither.
    world.report("p1", FAILURE, CONNECTING)
    world.expect_uses("p1")
    world.report("p0", CONNECTING)
    world.expect_uses("p0")
    world.report("p0", FAILURE)
    world.report("p1", FAILURE)
    world.expect_uses("p1")
    assert world.clock.timers_pending == 0
    world.expect_only_deactivated()


@pytest.mark.spec("A56-31")
def test_child_is_deactivated_and_not_updated_when_it_leaves_the_config(
    world: PriorityWorld,
) -> None:
    settle_on_p1(world)
    world.report("p0", READY)
    world.advance(100)
    world.report("p0", FAILURE)
    removed = world.child("p1")
    world.prioritize("p0")
    world.prioritize("p0")
    assert len(removed.updates) == 1
    world.advance(RETENTION_S - MOMENT_S)
    world.expect_children("p0", "p1")
    world.advance(MOMENT_S)
    world.expect_children("p0")


@pytest.mark.spec("A56-31")
def test_removed_child_is_destroyed_at_once_when_the_child_cache_is_disabled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = PriorityWorld()
    monkeypatch.setenv(CHILD_POLICY_CACHE, "false")
    after = PriorityWorld()
    for world in (before, after):
        settle_on_p1(world, "p0", "p1", "p2")
        closed = record_closed_at_reports(world, world.child("p1"))
        world.prioritize("p0", "p2")
        assert closed == [False]  # The new picker is published before the child is closed.
    before.expect_children("p0", "p1", "p2")
    after.expect_children("p0", "p2")
    # A child in the config is deactivated, whether it has a priority or not.
    after.report("p0", READY)
    after.expect_children("p0", "p2")
    after.prioritize("p0", also=["p2"])
    after.expect_children("p0", "p2")
    after.expect_only_deactivated("p2")


def record_closed_at_reports(world: PriorityWorld, stub: StubChild) -> list[bool]:
    """Whether the child was closed, at each report from now on."""
    closed: list[bool] = []
    world.helper.react = lambda state: closed.append(stub.is_closed)
    return closed


@pytest.mark.spec("A56-32")
def test_returning_child_is_updated_but_stays_deactivated_when_not_chosen(
    world: PriorityWorld,
) -> None:
    settle_on_p1(world)
    world.report("p0", READY)
    world.prioritize("p0")
    world.advance(100)
    world.prioritize("p0", "p1", endpoints=[at("p1", "b")])
    returned = world.child("p1")
    assert world.instances("p1") == [returned]
    assert len(returned.updates) == 2
    assert returned.endpoints == [(str(address("b")), ())]
    world.advance(RETENTION_S - 100 - MOMENT_S)
    world.expect_children("p0", "p1")
    world.advance(MOMENT_S)
    world.expect_children("p0")


@pytest.mark.spec("A56-32")
def test_returning_child_is_reactivated_when_it_is_chosen(world: PriorityWorld) -> None:
    settle_on_p1(world)
    world.prioritize("p0")
    world.prioritize("p0", "p1")
    world.expect_ready("p1")
    assert len(world.stubs.created) == 2
    world.expect_only_deactivated()


@pytest.mark.spec("A56-33")
def test_choice_reactivates_the_children_it_visits_and_none_below(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1", "p2", "p3")
    for name in ("p0", "p1", "p2"):
        world.report(name, FAILURE)
    world.report("p3", READY)
    world.report("p2", READY)
    world.report("p0", READY)  # p1 (in failure), p2 and p3 are deactivated.
    world.report("p0", FAILURE)  # p1 is skipped, p2 is chosen.
    world.expect_ready("p2")
    world.expect_only_deactivated("p3")


@pytest.mark.spec("A56-33")
def test_lower_children_are_reactivated_when_the_choice_returns_to_a_higher_one(
    world: PriorityWorld,
) -> None:
    settle_on_p1(world)
    world.report("p1", FAILURE)
    world.report("p0", READY)  # p1 is deactivated.
    world.stubs.on_update = {"p0": [FAILURE, CONNECTING]}
    world.prioritize("p0", "p1")
    world.expect_uses("p0")
    world.expect_only_deactivated()


@pytest.mark.spec("A56-34")
def test_child_is_created_anew_when_it_is_needed_after_its_retention(world: PriorityWorld) -> None:
    settle_on_p1(world)
    old = world.child("p1")
    world.report("p0", READY)
    world.advance(RETENTION_S)
    assert old.is_closed
    world.report("p0", FAILURE)
    assert world.child("p1") is not old
    world.expect_waits()
    world.advance(FAILOVER_TIMEOUT_S - MOMENT_S)
    world.expect_waits()
    world.advance(MOMENT_S)
    world.expect_pick_fails(TIMED_OUT)
    old.report_again()  # Reports of a closed child are ignored.
    world.expect_state(FAILURE)


@pytest.mark.spec("A56-35")
def test_children_stay_the_same_instances_when_they_change_places(world: PriorityWorld) -> None:
    world.prioritize("a", "b")
    world.report("a", FAILURE)
    world.child("a").create_subchannel("x")
    world.child("b").create_subchannel("y")
    world.report("b", READY)
    world.prioritize("b", "a")
    world.expect_ready("b")
    assert len(world.stubs.created) == 2
    assert world.helper.created == len(world.subchannels) == 2
    world.expect_only_deactivated("a")


@pytest.mark.spec("A56-36")
def test_pitfall_8_deactivation_does_not_stop_the_failover_timer(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1", "p2")
    world.report("p0", FAILURE)
    world.advance(4)
    world.report("p0", READY)  # p1 is deactivated, but its failover timer runs on.
    world.advance(3)
    world.report("p0", FAILURE)
    world.expect_waits()
    world.expect_children("p0", "p1")
    world.advance(3 - MOMENT_S)
    world.expect_children("p0", "p1")
    world.advance(MOMENT_S)  # 10 s since p1 was created.
    world.expect_children("p0", "p1", "p2")


@pytest.mark.spec("A56-37")
def test_deactivated_children_are_updated_and_their_reports_saved(world: PriorityWorld) -> None:
    settle_on_p1(world)
    world.report("p0", READY)
    world.prioritize("p0", "p1", endpoints=[at("p1", "b")])
    assert len(world.child("p1").updates) == 2
    for state in (CONNECTING, FAILURE, IDLE, READY):
        world.report("p1", state)
        world.expect_ready("p0")
    world.report("p0", FAILURE)
    world.expect_ready("p1")


@pytest.mark.spec("A56-38")
def test_close_closes_all_children_and_stops_all_timers(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1", "p2")
    world.report("p0", FAILURE)
    world.time_out()
    old = [world.child(name) for name in ("p0", "p1", "p2")]
    world.report("p0", READY, CONNECTING)  # A failover timer, and two retention timers.
    assert world.clock.timers_pending == 4  # And the failover timer of p2, which is new.
    world.expect_reports(CONNECTING, CONNECTING, CONNECTING, READY, CONNECTING)
    world.policy.close()
    world.expect_children()
    world.expect_closed()
    for each in old:
        each.report_again()
        each.request_reresolution()
    world.advance(2 * RETENTION_S)
    world.expect_reports()
    assert world.reresolutions == 0


@pytest.mark.spec("A56-38")
def test_timers_that_are_due_when_the_policy_is_closed_do_nothing(world: PriorityWorld) -> None:
    world.clock.call_later(FAILOVER_TIMEOUT_S, world.policy.close)
    world.prioritize("p0", "p1")
    world.expect_reports(CONNECTING)
    world.time_out()  # First the close, then, at the same time, the failover timer.
    world.expect_children()
    world.expect_reports()


# ---------------------------------------------------------------------------------------------
# States of children, and the failover timer


@pytest.mark.spec("A56-39")
def test_the_newest_report_of_a_child_is_kept_while_it_is_not_used(world: PriorityWorld) -> None:
    settle_on_p1(world)
    world.report("p0", READY)
    world.report("p1", CONNECTING, READY, READY)
    newest = world.child("p1").picker
    world.report("p0", FAILURE)
    assert world.picker is newest
    world.report("p1", FAILURE)
    world.expect_uses("p1")  # State and status are also the newest.
    world.expect_pick_fails("p1 fails")


@pytest.mark.spec("A56-40", "A56-41", "A56-44")
def test_each_child_has_10_seconds_from_its_creation(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1", "p2")
    for created in (["p0"], ["p0", "p1"], ["p0", "p1", "p2"]):
        world.expect_children(*created)
        world.advance(FAILOVER_TIMEOUT_S - MOMENT_S)
        world.expect_children(*created)
        world.expect_waits()
        world.advance(MOMENT_S)
    world.expect_pick_fails(TIMED_OUT)
    assert FAILOVER_TIMEOUT_S == 10


@pytest.mark.spec("A56-42")
@pytest.mark.parametrize("state", [READY, IDLE])
def test_child_that_is_ready_or_idle_has_no_failover_timer(
    world: PriorityWorld, state: State
) -> None:
    world.prioritize("p0", "p1")
    world.advance(FAILOVER_TIMEOUT_S - MOMENT_S)
    world.report("p0", state)
    assert world.clock.timers_pending == 0
    world.advance(FAILOVER_TIMEOUT_S)
    world.expect_children("p0")
    world.expect_uses("p0")


@pytest.mark.spec("A56-42")
def test_next_child_is_created_at_once_when_a_child_fails(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1")
    world.report("p0", FAILURE)
    world.expect_children("p0", "p1")
    assert world.clock.timers_pending == 1  # That of p1.


@pytest.mark.spec("A56-43")
def test_pitfall_1_duplicate_connecting_does_not_delay_the_failover(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1")
    for _ in range(100):
        world.advance(FAILOVER_TIMEOUT_S / 101)
        world.report("p0", CONNECTING)
        world.expect_children("p0")
    world.advance(FAILOVER_TIMEOUT_S / 101)
    world.expect_children("p0", "p1")


@pytest.mark.spec("A56-43", "A56-45")
def test_pitfall_1_duplicate_connecting_does_not_delay_a_restarted_failover_timer(
    world: PriorityWorld,
) -> None:
    world.prioritize("p0", "p1")
    world.report("p0", READY, CONNECTING)
    for _ in range(9):
        world.advance(1)
        world.report("p0", CONNECTING)
    world.expect_children("p0")
    world.advance(1)
    world.expect_children("p0", "p1")


@pytest.mark.spec("A56-44")
def test_a_child_that_times_out_counts_as_failing(world: PriorityWorld) -> None:
    world.prioritize("p0")
    with hits(world.trace, "priority.child") as events:
        world.time_out()
    assert [event.fields["change"] for event in events] == ["failover timer fired"]
    world.expect_reports(CONNECTING, FAILURE)


@pytest.mark.spec("A56-44")
def test_pitfall_10_timeout_error_names_the_child_and_the_reason(
    world: PriorityWorld,
) -> None:
    world.prioritize("p0", "eu-west")
    world.time_out()
    world.report("eu-west", CONNECTING)
    world.time_out()
    world.expect_pick_fails(f"child 'eu-west': {TIMED_OUT}")
    # Later reports of the child are used.
    world.child("eu-west").report(FAILURE, "10.0.0.7 refused")
    world.expect_pick_fails("10.0.0.7 refused")


@pytest.mark.spec("A56-44")
def test_pitfall_10_child_stays_connecting_after_its_timeout_when_the_switch_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = PriorityWorld()
    monkeypatch.setenv(KEEPS_CONNECTING, "true")
    after = PriorityWorld()
    monkeypatch.delenv(KEEPS_CONNECTING)
    for world in (before, after):
        world.prioritize("p0", "p1")
        world.time_out()
        world.expect_children("p0", "p1")
        world.expect_waits()
        world.time_out()
    before.expect_state(FAILURE)
    after.expect_waits()
    after.report("p0", FAILURE)
    after.expect_waits()
    after.report("p1", FAILURE)
    after.expect_pick_fails("p1 fails")


@pytest.mark.spec("A56-45")
@pytest.mark.parametrize("state", [READY, IDLE])
def test_child_has_10_seconds_again_after_ready_or_idle(world: PriorityWorld, state: State) -> None:
    world.prioritize("p0", "p1")
    world.advance(5)
    world.report("p0", state, CONNECTING)
    world.expect_uses("p0")
    world.advance(FAILOVER_TIMEOUT_S - MOMENT_S)
    world.expect_children("p0")
    world.advance(MOMENT_S)
    world.expect_children("p0", "p1")


@pytest.mark.spec("A56-46")
@pytest.mark.parametrize(
    "states",
    [
        [FAILURE, CONNECTING],
        [CONNECTING, FAILURE, CONNECTING],
        [READY, FAILURE, CONNECTING],
        [IDLE, CONNECTING, FAILURE, CONNECTING, CONNECTING],
    ],
)
def test_child_gets_no_failover_timer_when_its_last_other_state_was_failure(
    world: PriorityWorld, states: list[State]
) -> None:
    world.prioritize("p0")
    world.report("p0", *states)
    world.expect_uses("p0")
    assert world.clock.timers_pending == 0
    world.time_out()
    world.expect_state(CONNECTING)


@pytest.mark.spec("A56-46", "A56-47")
@pytest.mark.parametrize("keeps_connecting", ["false", "true"])
@pytest.mark.parametrize("before", [[], [READY, CONNECTING], [IDLE, CONNECTING]])
def test_child_gets_no_further_failover_timer_until_it_was_ready_or_idle(
    monkeypatch: pytest.MonkeyPatch, before: list[State], keeps_connecting: str
) -> None:
    monkeypatch.setenv(KEEPS_CONNECTING, keeps_connecting)
    world = PriorityWorld()
    world.prioritize("p0")
    world.report("p0", *before)
    assert world.clock.timers_pending == 1
    world.time_out()
    world.report("p0", CONNECTING, CONNECTING)
    assert world.clock.timers_pending == 0
    world.report("p0", IDLE, CONNECTING)
    assert world.clock.timers_pending == 1


@pytest.mark.spec("A56-48")
def test_timed_out_child_is_used_at_once_when_it_becomes_ready(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1", "p2")
    world.time_out()
    world.time_out()
    world.report("p2", READY)
    world.expect_ready("p2")
    world.report("p0", READY)
    world.expect_ready("p0")
    world.expect_only_deactivated("p1", "p2")


@pytest.mark.spec("A56-48")
def test_ready_child_is_not_used_while_a_higher_one_has_a_failover_timer(
    world: PriorityWorld,
) -> None:
    world.prioritize("p0", "p1")
    world.time_out()
    world.report("p0", IDLE, CONNECTING)
    world.report("p1", READY)
    world.expect_uses("p0")
    world.time_out()
    world.expect_ready("p1")


# ---------------------------------------------------------------------------------------------
# Updates


@pytest.mark.spec("A56-49")
def test_every_existing_child_gets_one_update(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1", "p2", "p3")
    world.report("p0", FAILURE)
    world.report("p1", FAILURE)
    world.report("p1", READY)  # p2 is deactivated.
    newer = {name: stub_config(name, version=2) for name in ("p0", "p1", "p2")}
    world.prioritize("p2", "p0", "p1", configs=newer, endpoints=[at("p2", "a"), at("p0", "b")])
    for name, listed in (("p0", "b"), ("p1", ""), ("p2", "a")):
        assert len(world.child(name).updates) == 2
        assert world.child(name).config["version"] == 2
        assert world.child(name).endpoints == [(str(address(each)), ()) for each in listed]


@pytest.mark.spec("A56-50", "A56-51")
def test_pitfall_2_reports_inside_an_update_are_processed_at_its_end(
    world: PriorityWorld,
) -> None:
    world.prioritize("p1", "p0")  # Created in this order, so updated in this order.
    world.report("p1", FAILURE)
    world.report("p0", FAILURE)
    world.prioritize("p0", "p1")
    world.report("p1", READY)
    world.expect_never(IDLE)
    world.stubs.on_update = {"p1": [FAILURE], "p0": [CONNECTING, READY]}
    with hits(world.trace, "priority.choice") as choices:
        world.prioritize("p0", "p1", "p2")
    assert len(choices) == 1
    world.expect_reports(READY)
    world.expect_ready("p0")
    world.expect_children("p0", "p1")


@pytest.mark.spec("A56-52")
def test_reports_are_processed_after_an_update_that_raised(world: PriorityWorld) -> None:
    settle_on_p1(world)
    world.stubs.raises = {"p0"}
    with pytest.raises(RuntimeError, match="p0 raises"):
        world.prioritize("p0", "p1")
    world.report("p0", READY)
    world.expect_ready("p0")


@pytest.mark.spec("A56-52")
def test_reports_are_processed_after_a_first_update_that_raised(world: PriorityWorld) -> None:
    world.stubs.raises = {"p0"}
    with pytest.raises(RuntimeError, match="p0 raises"):
        world.prioritize("p0", "p1")
    world.report("p0", READY)
    world.expect_ready("p0")


@pytest.mark.spec("A56-52")
def test_update_returns_the_errors_of_its_children(world: PriorityWorld) -> None:
    settle_on_p1(world, "p0", "p1")
    world.stubs.update_results = {"p0": unavailable("no zones"), "p1": unavailable("no names")}
    status = world.prioritize("p0", "p1")
    assert status == unavailable(
        "errors from children: [child 'p0': no zones; child 'p1': no names]"
    )
    world.stubs.update_results = {}
    assert world.prioritize("p0", "p1").is_ok
    assert world.reresolutions == 0


@pytest.mark.spec("A56-53")
def test_reresolution_is_requested_when_a_new_child_rejects_its_endpoints(
    world: PriorityWorld,
) -> None:
    world.stubs.update_results = {"p1": unavailable("no endpoints")}
    assert world.prioritize("p0", "p1", ignoring=["p1"]).is_ok
    assert world.reresolutions == 0
    world.report("p0", FAILURE)
    assert world.reresolutions == 1


@pytest.mark.spec("A56-52", "A56-53")
def test_update_fails_when_a_child_created_by_it_rejects_its_endpoints(
    world: PriorityWorld,
) -> None:
    world.stubs.update_results = {"p0": unavailable("no endpoints")}
    assert world.prioritize("p0") == unavailable("errors from children: [child 'p0': no endpoints]")
    assert world.reresolutions == 0


@pytest.mark.spec("A56-54")
def test_child_is_replaced_gracefully_when_its_policy_changes() -> None:
    others = StubChildFactory("other")
    world = PriorityWorld(others)
    settle_on_p1(world)
    old, sibling = world.child("p1"), world.child("p0")
    world.prioritize("p0", "p1", configs={"p1": stub_config("p1", kind="other")})
    [new] = others.created
    world.expect_ready("p1")  # The old policy is used until the new one is READY.
    new.report(CONNECTING)
    world.expect_ready("p1")
    new.report(READY)
    assert world.picker is new.picker
    assert old.is_closed
    assert world.child("p0") is sibling
    assert len(sibling.updates) == 2


# ---------------------------------------------------------------------------------------------
# Choosing


@pytest.mark.spec("A56-55")
def test_choice_is_made_after_every_report_update_and_timeout(world: PriorityWorld) -> None:
    with hits(world.trace, "priority.choice") as choices:
        world.prioritize("p0", "p1")
        world.time_out()
        world.report("p1", CONNECTING, READY)
        world.report("p0", CONNECTING, FAILURE)
        world.prioritize("p0", "p1")
    assert [(event.fields["child"], event.fields["reason"]) for event in choices] == [
        ("p0", Reason.ATTEMPTING.value),
        ("p1", Reason.ATTEMPTING.value),
        ("p1", Reason.ATTEMPTING.value),
        *[("p1", Reason.CONNECTED.value)] * 4,
    ]


@pytest.mark.spec("A56-56")
@pytest.mark.parametrize("state", [READY, IDLE, CONNECTING, FAILURE])
def test_equal_updates_leave_choice_timers_and_picker_unchanged(
    world: PriorityWorld, state: State
) -> None:
    settle_on_p1(world, "p0", "p1", "p2")
    world.report("p0", READY)
    world.advance(5)
    world.report("p0", state)
    made, timers, shown = len(world.stubs.created), world.clock.timers_pending, world.picker
    with hits(world.trace, "priority.choice") as choices:
        world.prioritize("p0", "p1", "p2")
        world.prioritize("p0", "p1", "p2")
    assert len(choices) == 2
    assert choices[0] == choices[1]
    assert world.picker is shown
    assert (len(world.stubs.created), world.clock.timers_pending) == (made, timers)
    # The retention time of p1, which is deactivated if p0 is READY or IDLE, runs on.
    world.advance(RETENTION_S - 5 - MOMENT_S)
    assert not world.instances("p1")[0].is_closed
    world.advance(MOMENT_S)
    assert world.instances("p1")[0].is_closed == (state in {READY, IDLE})


@pytest.mark.spec("A56-57")
def test_policy_fails_and_deactivates_children_when_there_are_no_priorities(
    world: PriorityWorld,
) -> None:
    settle_on_p1(world)
    world.prioritize()
    world.expect_state(FAILURE)
    assert world.pick() == unavailable("priority policy has empty priority list")
    assert world.picker.status == unavailable("priority policy has empty priority list")
    world.report("p1", IDLE)
    world.expect_pick_fails("empty priority list")
    world.policy.exit_idle()
    assert not world.child("p1").calls
    world.expect_children("p0", "p1")
    world.expect_only_deactivated("p0", "p1")


@pytest.mark.spec("A56-58")
def test_pitfall_5_idle_child_is_used_like_a_ready_one(world: PriorityWorld) -> None:
    settle_on_p1(world)
    world.report("p0", IDLE)
    world.expect_uses("p0")
    world.report("p1", READY)
    world.expect_uses("p0")
    world.report("p0", CONNECTING)  # Leaving IDLE does not cause a failover.
    world.expect_uses("p0")
    world.report("p0", READY)
    world.expect_ready("p0")


@pytest.mark.spec("A56-59")
def test_child_with_a_failover_timer_is_preferred_to_a_lower_ready_one(
    world: PriorityWorld,
) -> None:
    settle_on_p1(world)
    world.prioritize("p0", "p9", "p1")
    world.expect_children("p0", "p1", "p9")
    world.expect_waits()
    world.report("p9", FAILURE)
    world.expect_ready("p1")


@pytest.mark.spec("A56-60")
def test_highest_connecting_child_is_used_when_none_is_ready_or_idle(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1", "p2")
    for name in ("p0", "p1", "p2"):
        world.report(name, FAILURE)
    world.report("p2", CONNECTING)
    world.expect_uses("p2")
    world.report("p1", CONNECTING)
    world.expect_uses("p1")
    world.report("p2", CONNECTING)
    world.expect_uses("p1")


@pytest.mark.spec("A56-61")
def test_error_of_the_last_child_is_reported_when_all_fail(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1")
    world.report("p0", FAILURE)
    world.report("p1", FAILURE)
    world.report("p0", FAILURE)
    world.expect_uses("p1")
    world.expect_pick_fails("p1 fails")


@pytest.mark.spec("A56-62")
@pytest.mark.parametrize("is_new", [True, False])
def test_pitfall_4_child_that_loses_its_connection_is_reported_as_connecting(
    *, is_new: bool
) -> None:
    world = PriorityWorld()
    if is_new:
        world.prioritize("p0", "p1")
    else:
        settle_on_p1(world)
    world.report("p0", READY)
    world.advance(100)
    world.report("p0", CONNECTING)
    world.expect_uses("p0")  # The new picker, not the one of READY.
    world.advance(FAILOVER_TIMEOUT_S - MOMENT_S)
    world.expect_uses("p0")
    world.advance(MOMENT_S)
    assert len(world.instances("p1")) == 1
    if is_new:
        world.expect_waits()
    else:
        world.expect_ready("p1")
        world.expect_only_deactivated()


@pytest.mark.spec("A56-63")
def test_pitfall_3_picker_is_kept_while_a_higher_child_flaps(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1", "p2")
    world.report("p0", FAILURE)
    world.report("p1", FAILURE)
    world.report("p1", READY)
    used = world.child("p1").picker
    for state in (FAILURE, CONNECTING, FAILURE, FAILURE, CONNECTING, CONNECTING, FAILURE):
        world.report("p0", state)
        assert world.picker is used
    world.expect_never(FAILURE, IDLE)
    world.report("p0", READY)
    world.expect_reports(READY)
    world.expect_ready("p0")
    world.expect_only_deactivated("p1", "p2")


@pytest.mark.spec("A56-64")
def test_every_report_of_the_child_in_use_is_forwarded(world: PriorityWorld) -> None:
    settle_on_p1(world)
    world.expect_never(IDLE)
    for state in (READY, READY, CONNECTING, CONNECTING, FAILURE, FAILURE, IDLE, IDLE):
        world.report("p1", state)
        world.expect_reports(state)
        world.expect_uses("p1")
    world.child("p1").report_again()
    world.expect_reports(IDLE)


@pytest.mark.spec("A56-65")
def test_pitfall_4_rpcs_wait_while_a_new_child_connects(world: PriorityWorld) -> None:
    world.prioritize("p0", "p1")
    world.report("p0", READY, FAILURE)
    world.expect_waits()
    world.expect_never(FAILURE)


# State of a child, and whether its failover timer is pending; None: not created.
Kind = tuple[State, bool]
NEW: Kind = (CONNECTING, True)
REACHABLE: tuple[Kind | None, ...] = (
    None,
    (READY, False),
    (IDLE, False),
    (FAILURE, False),
    (CONNECTING, False),
    (CONNECTING, True),
)


@dataclass
class Transcription:
    """ChoosePriority and SetCurrentPriority, transcribed from the pseudo-code of A56."""

    priorities: list[str]
    children: dict[str, Kind]
    created: list[str] = field(default_factory=list)
    visited: list[str] = field(default_factory=list)
    deactivated: list[str] = field(default_factory=list)
    chosen: int = -1

    def set_current_priority(self, priority: int, *, deactivate_lower_priorities: bool) -> None:
        if deactivate_lower_priorities:
            for p in range(priority + 1, len(self.priorities)):
                child_name = self.priorities[p]
                if child_name in self.children:
                    self.deactivated.append(child_name)
        self.chosen = priority

    def choose_priority(self) -> None:
        for priority in range(len(self.priorities)):
            child_name = self.priorities[priority]
            self.visited.append(child_name)
            if child_name not in self.children:
                self.children[child_name] = NEW
                self.created.append(child_name)
            state, failover_timer_pending = self.children[child_name]
            if state in {READY, IDLE}:
                self.set_current_priority(priority, deactivate_lower_priorities=True)
                return
            if failover_timer_pending:
                self.set_current_priority(priority, deactivate_lower_priorities=False)
                return
        for priority in range(len(self.priorities)):
            child_name = self.priorities[priority]
            if self.children[child_name][0] is CONNECTING:
                self.set_current_priority(priority, deactivate_lower_priorities=False)
                return
        self.set_current_priority(len(self.priorities) - 1, deactivate_lower_priorities=False)


def trees(size_max: int) -> Iterator[tuple[Kind | None, ...]]:
    for size in range(1, size_max + 1):
        yield from itertools.product(REACHABLE, repeat=size)


def transcribe(tree: tuple[Kind | None, ...]) -> Transcription:
    names = [f"p{index}" for index in range(len(tree))]
    existing = {name: kind for name, kind in zip(names, tree, strict=True) if kind is not None}
    result = Transcription(names, existing)
    result.choose_priority()
    return result


@pytest.mark.spec(
    "A56-21",
    "A56-30",
    "A56-33",
    "A56-58",
    "A56-59",
    "A56-60",
    "A56-61",
    reason="every tree is compared with the pseudo-code",
)
def test_choice_equals_that_of_the_pseudo_code_for_all_trees_of_up_to_five() -> None:
    cases = 0
    for tree in trees(5):
        expected = transcribe(tree)
        views = [None if kind is None else ChildView(*kind) for kind in tree]
        created = []
        while isinstance(choice := choose(views), Create):
            created.append(f"p{choice.priority}")
            views[choice.priority] = ChildView(*NEW)
        assert isinstance(choice, Use)
        assert choice.priority == expected.chosen, tree
        assert created == expected.created, tree
        assert choice.considered == len(expected.visited), tree
        below = [f"p{p}" for p in range(choice.priority + 1, len(tree)) if views[p] is not None]
        deactivated = below if choice.reason is Reason.CONNECTED else []
        assert deactivated == expected.deactivated, tree
        cases += 1
    assert cases == 6 + 6**2 + 6**3 + 6**4 + 6**5


# Reports that bring a child in TRANSIENT_FAILURE into that kind.
REPORTS: Mapping[Kind, list[State]] = {
    (READY, False): [READY],
    (IDLE, False): [IDLE],
    (FAILURE, False): [FAILURE],
    (CONNECTING, False): [CONNECTING],
    (CONNECTING, True): [IDLE, CONNECTING],
}


@pytest.mark.spec(
    "A56-21",
    "A56-26",
    "A56-30",
    "A56-50",
    "A56-55",
    reason="every tree is compared with the pseudo-code",
)
def test_policy_behaves_as_the_pseudo_code_for_all_trees_of_up_to_three() -> None:
    for tree in trees(3):
        expected, world = transcribe(tree), PriorityWorld()
        kinds = {name: kind for name, kind in zip(expected.priorities, tree, strict=True) if kind}
        world.stubs.on_update = {name: [FAILURE] for name in kinds}
        world.prioritize(*kinds)
        world.stubs.on_update = {name: REPORTS[kind] for name, kind in kinds.items()}
        events: list[Event] = []
        world.trace.subscribe(events.append)
        world.prioritize(*expected.priorities)
        choices = [event.fields for event in events if event.name == "priority.choice"]
        assert [choice["priority"] for choice in choices] == [expected.chosen], tree
        world.expect_uses(expected.priorities[expected.chosen])
        changes = [event.fields for event in events if event.name == "priority.child"]
        assert [(str(change["change"]), change["child"]) for change in changes] == [
            *[("created", name) for name in expected.created],
            *[("deactivated", name) for name in expected.deactivated],
        ], tree
        world.policy.close()
        world.expect_closed()


# ---------------------------------------------------------------------------------------------
# Re-resolution, exit_idle and reset_backoff


@pytest.mark.spec("A56-66")
def test_reresolution_requests_are_forwarded_unless_the_newest_config_ignores_them(
    world: PriorityWorld,
) -> None:
    world.prioritize("p0", "p1", ignoring=["p0"])
    world.report("p0", FAILURE)
    world.child("p0").request_reresolution()
    assert world.reresolutions == 0
    world.child("p1").request_reresolution()
    assert world.reresolutions == 1
    world.prioritize("p0", "p1", ignoring=["p1"])
    world.child("p0").request_reresolution()
    assert world.reresolutions == 2
    world.child("p1").request_reresolution()
    assert world.reresolutions == 2
    assert len(world.stubs.created) == 2


@pytest.mark.spec("A56-67")
def test_exit_idle_is_called_on_the_child_in_use_only(world: PriorityWorld) -> None:
    settle_on_p1(world)
    world.policy.exit_idle()
    assert world.child("p0").calls == []
    assert world.child("p1").calls == ["exit_idle"]
    world.report("p0", IDLE)
    world.expect_never(FAILURE)
    world.policy.exit_idle()
    assert world.child("p0").calls == ["exit_idle"]
    assert world.child("p1").calls == ["exit_idle"]
    world.expect_reports(CONNECTING)  # Reported by the child inside exit_idle.
    world.expect_uses("p0")


@pytest.mark.spec("A56-67")
def test_backoff_is_reset_for_all_children(world: PriorityWorld) -> None:
    settle_on_p1(world)
    world.report("p0", READY)
    world.stubs.on_reset = {"p0": [FAILURE], "p1": [FAILURE]}  # So that p2 is created.
    world.prioritize("p0", "p1", "p2")
    world.expect_never(FAILURE)
    world.policy.reset_backoff()
    assert world.child("p0").calls == world.child("p1").calls == ["reset_backoff"]
    world.expect_children("p0", "p1", "p2")
    world.expect_reports(CONNECTING)


# ---------------------------------------------------------------------------------------------
# Pitfalls that are not part of a requirement


def test_pitfall_6_timer_does_nothing_when_it_is_cancelled_while_due(
    world: PriorityWorld,
) -> None:
    settle_on_p1(world)
    # p0 fails at the time at which p1 is to be destroyed; this timer fires first.
    world.clock.call_later(RETENTION_S, lambda: world.report("p0", FAILURE))
    world.report("p0", READY)
    world.advance(RETENTION_S)
    world.expect_ready("p1")
    world.expect_children("p0", "p1")
    # The same with the failover timer.
    world.clock.call_later(FAILOVER_TIMEOUT_S, lambda: world.report("p0", READY))
    world.report("p0", IDLE, CONNECTING)
    world.time_out()
    world.expect_ready("p0")


def test_pitfall_7_child_is_used_again_when_its_name_returns_during_retention(
    world: PriorityWorld,
) -> None:
    settle_on_p1(world)
    world.prioritize("p1")  # p0 is removed, and deactivated.
    world.expect_ready("p1")
    world.prioritize("p1", "p0")
    world.report("p1", FAILURE)
    world.expect_uses("p0")
    assert len(world.stubs.created) == 2
    world.prioritize("p0")
    world.advance(RETENTION_S)
    world.prioritize("p1", "p0")
    assert len(world.instances("p1")) == 2


def test_pitfall_9_a_choice_does_not_update_children(world: PriorityWorld) -> None:
    settle_on_p1(world, "p0", "p1", "p2")
    for state in (READY, CONNECTING, FAILURE, CONNECTING, READY, IDLE, FAILURE):
        world.report("p0", state)
        world.report("p1", FAILURE, READY)
    world.time_out()
    assert [len(each.updates) for each in world.stubs.created] == [1, 1, 1]


# ---------------------------------------------------------------------------------------------
# With real policies


def real_config(policy: str, *names: str) -> Mapping[str, object]:
    config: Mapping[str, object] = {"config": [{policy: {}}]}
    return {"children": dict.fromkeys(names, config), "priorities": list(names)}


@pytest.mark.spec("A62-13")
def test_next_priority_serves_undisturbed_while_pick_first_of_the_first_cannot_connect() -> None:
    world = PolicyWorld(PriorityFactory(), others=(PickFirstFactory(),))
    dead = DeadAddresses(world)
    fail_attempt = world.helper.attempt
    alive = address("z")
    world.helper.attempt = lambda each: fail_attempt(each) if each.address != alive else None
    config = real_config("pick_first", "p0", "p1")
    world.update(at("p0", "a"), at("p0", "b"), at("p1", "z"), config=config)
    world.advance(1)  # Long enough for two attempts, not for the failover timer.
    world["z"].connecting()
    world["z"].ready()
    world.expect_pick(str(alive))
    world.expect_never(FAILURE)
    for _ in range(600):
        world.advance(1)
        world.expect_pick(str(alive))
    world.expect_never(FAILURE, IDLE, CONNECTING)
    assert dead.attempts.keys() == {str(address("a")), str(address("b"))}
    assert all(len(times) > 5 for times in dead.attempts.values())


@pytest.mark.spec("A56-26", "A56-27", "A56-28")
def test_connections_of_a_deactivated_child_are_kept() -> None:
    world = PolicyWorld(PriorityFactory(), others=(RoundRobinFactory(), PickFirstFactory()))
    config = real_config("round_robin", "p0", "p1")
    world.update(at("p0", "a"), at("p1", "b"), config=config)
    world["a"].connecting()
    world["a"].fail()
    world["b"].connecting()
    world["b"].ready()
    connected = world["b"]
    world.expect_pick(str(address("b")))
    world["a"].idle()
    world.settle()
    world["a"].connecting()
    world["a"].ready()
    world.expect_pick(str(address("a")))
    world.advance(RETENTION_S - MOMENT_S)
    world["a"].fail()
    world.advance(FAILOVER_TIMEOUT_S)
    world.expect_pick(str(address("b")))
    assert world["b"] is connected
    assert not connected.is_released


def test_policy_is_found_by_its_exact_name_only() -> None:
    registry = PolicyRegistry([PriorityFactory()])
    assert registry.find("priority_experimental") is not None
    assert registry.find("priority") is None
