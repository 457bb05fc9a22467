"""A68: random_subsetting_experimental. Each client uses a few of many endpoints."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from xxhash import xxh64_intdigest

from proxyless.base import Endpoint, Status, ValidationError
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.random_subsetting import RandomSubsettingConfig, RandomSubsettingFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.runtime import seeded_random
from tests.spec.children_world import ChildrenWorld, StubFactory, stub_config
from tests.spec.lb_world import CONNECTING, FAILURE, READY, address, endpoint, unavailable

HUNDRED = tuple(f"#{number}" for number in range(100))


def subset_config(size: object, child: object = None) -> dict[str, object]:
    return {"subsetSize": size, "childPolicy": stub_config("child") if child is None else child}


class SubsetWorld(ChildrenWorld):
    """A random_subsetting policy whose child is a stub."""

    def __init__(self, *others: StubFactory, seed: int = 1) -> None:
        super().__init__(RandomSubsettingFactory(), others=others, seed=seed)

    def choose(self, size: int, *names: str | Endpoint) -> list[str]:
        """Update: what the child sees of these endpoints."""
        self.update(*names, config=subset_config(size))
        return self.seen

    @property
    def seen(self) -> list[str]:
        return [text for text, _ in self.child("child").endpoints]


@pytest.fixture
def world() -> SubsetWorld:
    return SubsetWorld()


def texts(names: Sequence[str]) -> list[str]:
    return [str(address(name)) for name in names]


def published_subset(listed: Sequence[str], size: int, seed: int) -> list[str]:
    """The pseudo-code of A68, line by line."""
    if size >= len(listed):
        return list(listed)
    with_hash = [(xxh64_intdigest(each.encode(), seed), each) for each in listed]
    with_hash.sort(key=lambda pair: pair[0])
    return [each for _, each in with_hash][:size]


# ---------------------------------------------------------------------------------------------
# Config


def test_the_config_has_a_size_and_a_policy(world: SubsetWorld) -> None:
    assert RandomSubsettingFactory.name == "random_subsetting_experimental"
    child = [{"newer": {}}, *stub_config("child")]
    config = world.parse({**subset_config(2**32 - 1, child), "colour": "red"})
    assert isinstance(config, RandomSubsettingConfig)
    assert config.subset_size == 2**32 - 1
    assert config.child is not None
    assert config.child.name == "stub"


@pytest.mark.parametrize(
    ("json", "text"),
    [
        (subset_config(0), "field:subsetSize error:is 0, wanted an integer from 1 to 4294967295"),
        (subset_config(-1), "field:subsetSize error:is -1, wanted"),
        (subset_config(2**32), "field:subsetSize error:is 4294967296, wanted"),
        (subset_config("x"), "field:subsetSize error:is 'x', wanted"),
        (subset_config(2.5), "field:subsetSize error:is 2.5, wanted"),
        (subset_config(True), "field:subsetSize error:is a boolean, wanted"),
        ({"childPolicy": stub_config("child")}, "field:subsetSize error:is missing, wanted"),
        ({"subsetSize": 2}, "field:childPolicy error:is missing, wanted a list of policies"),
        (subset_config(2, {}), "field:childPolicy error:is an object, wanted a list of policies"),
        (subset_config(2, []), "field:childPolicy error:No known policies in list:"),
        (subset_config(2, [{"newer": {}}]), "No known policies in list: newer"),
        (subset_config(2, [{"stub": {"bad": 1}}]), "field:childPolicy[0].stub.bad error:"),
    ],
)
def test_anything_else_is_rejected(
    world: SubsetWorld, json: Mapping[str, object], text: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        world.parse(json)
    assert text in str(caught.value)


def test_everything_that_is_wrong_is_said(world: SubsetWorld) -> None:
    with pytest.raises(ValidationError) as caught:
        world.parse({})
    assert "subsetSize" in str(caught.value)
    assert "childPolicy" in str(caught.value)


# ---------------------------------------------------------------------------------------------
# The subset


@pytest.mark.parametrize("size", [1, 2, 5, 99, 100, 1000])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_child_sees_the_endpoints_that_the_definition_chooses(size: int, seed: int) -> None:
    world = SubsetWorld(seed=seed)
    seed_drawn = seeded_random(seed).getrandbits(64)
    assert world.choose(size, *HUNDRED) == published_subset(texts(HUNDRED), size, seed_drawn)


def test_if_there_are_no_more_than_that_all_are_used_in_their_order(world: SubsetWorld) -> None:
    assert world.choose(4, "c", "a", "b") == texts("cab")
    assert world.choose(3, "c", "a", "b") == texts("cab")


def test_an_endpoint_is_judged_by_its_first_address(world: SubsetWorld) -> None:
    chosen = world.choose(3, *"abcdefgh")
    pairs = [endpoint((name, f"{name}6")) for name in "abcdefgh"]
    assert world.choose(3, *pairs) == chosen
    turned = [endpoint((f"{name}6", name)) for name in "abcdefgh"]
    expected = published_subset(
        texts([f"{name}6" for name in "abcdefgh"]), 3, seeded_random(1).getrandbits(64)
    )
    assert world.choose(3, *turned) == expected


def test_the_order_of_the_list_does_not_matter(world: SubsetWorld) -> None:
    assert world.choose(7, *HUNDRED) == world.choose(7, *reversed(HUNDRED))


def test_an_endpoint_that_comes_or_goes_changes_one_at_most(world: SubsetWorld) -> None:
    before = world.choose(10, *HUNDRED)
    for number in range(100):
        rest = [name for name in HUNDRED if name != f"#{number}"]
        after = world.choose(10, *rest)
        assert len(set(before) - set(after)) == (str(address(f"#{number}")) in before)
        assert world.choose(10, *HUNDRED) == before
    for number in range(100, 200):
        after = world.choose(10, *HUNDRED, f"#{number}")
        assert len(set(before) - set(after)) <= 1


def test_another_size_keeps_those_that_fit(world: SubsetWorld) -> None:
    ten = world.choose(10, *HUNDRED)
    assert world.choose(15, *HUNDRED)[:10] == ten
    assert world.choose(5, *HUNDRED) == ten[:5]


def test_clients_choose_differently_and_all_endpoints_alike() -> None:
    chosen = Counter[str]()
    clients = 2000
    for seed in range(clients):
        chosen.update(SubsetWorld(seed=seed).choose(5, *"abcdefghij"))
    assert len(chosen) == 10
    for times in chosen.values():
        assert times / (clients * 5) == pytest.approx(1 / 10, abs=0.02)


def test_the_child_sees_the_very_endpoints_and_everything_else(world: SubsetWorld) -> None:
    listed = [endpoint(name) for name in "abcdefgh"]
    world.update(*listed, config=subset_config(3), note="from dns")
    update = world.child("child").updates[-1]
    assert not isinstance(update.endpoints, Status)
    assert all(any(each is one for one in listed) for each in update.endpoints)
    assert update.resolution_note == "from dns"


# ---------------------------------------------------------------------------------------------
# Everything else is the child's


def test_what_the_child_says_is_passed_on(world: SubsetWorld) -> None:
    world.choose(2, *"abc")
    world.say("child", CONNECTING)
    world.expect_uses("child")
    world.say("child", READY)
    world.expect_uses("child")
    world.child("child").request_reresolution()
    assert world.reresolutions == 1
    world.policy.exit_idle()
    world.policy.reset_backoff()
    assert world.child("child").calls == ["exit_idle", "reset_backoff"]


def test_a_resolver_error_is_for_the_child(world: SubsetWorld) -> None:
    world.choose(2, *"abc")
    world.stubs.refuses["child"] = unavailable("no such host")
    update = world.child("child").updates[-1]
    status = world.policy.update(
        type(update)(unavailable("no such host"), world.parse(subset_config(2)))
    )
    assert status == unavailable("no such host")
    assert world.child("child").updates[-1].endpoints == unavailable("no such host")
    # Those that were chosen before are chosen again.
    before = texts("abc")
    assert set(world.choose(2, *"abc")) < set(before)


def test_an_empty_list_is_for_the_child(world: SubsetWorld) -> None:
    world.update(config=subset_config(2))
    assert world.child("child").updates[-1].endpoints == ()


def test_another_kind_of_child_takes_over_when_it_can() -> None:
    others = StubFactory("other")
    world = SubsetWorld(others)
    world.choose(2, *"abc")
    world.say("child", READY)
    before = world.picker
    world.update(*"abc", config=subset_config(2, stub_config("new", kind="other")))
    assert world.picker is before
    [new] = others.made
    new.says(READY)
    assert world.picker is new.picker
    world.expect_children()
    assert set(new.endpoints) == set(world.stubs.made[0].endpoints)


def test_only_the_subset_is_connected() -> None:
    world = ChildrenWorld(
        RandomSubsettingFactory(), others=(RoundRobinFactory(), PickFirstFactory())
    )
    config = subset_config(2, [{"round_robin": {}}])
    world.update(*"abcdef", config=config)
    chosen = world.take_requests()
    assert len(chosen) == 2
    connected = [world[name] for name in chosen]
    for subchannel in connected:
        subchannel.connecting()
        subchannel.ready()
    assert set(world.picks(10)) == set(chosen)
    # Connections stay, as long as their endpoints are in the list.
    gone = next(name for name in "abcdef" if name not in chosen)
    world.update(*(name for name in "fedcba" if name != gone), config=config)
    assert [world[name] for name in chosen] == connected
    world.expect_requests()
    world.policy.close()
    world.expect_closed()


def test_when_the_subset_fails_so_does_the_policy() -> None:
    world = ChildrenWorld(RandomSubsettingFactory(), others=(RoundRobinFactory(),))
    world.update(*"abcdef", config=subset_config(2, [{"round_robin": {}}]))
    for name in world.take_requests():
        world[name].connecting()
        world[name].fail()
    world.expect_state(FAILURE)
    world.expect_pick_fails("refused")
