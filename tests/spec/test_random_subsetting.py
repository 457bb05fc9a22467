"""A68: random_subsetting_experimental, with which each client uses a subset of the endpoints."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from xxhash import xxh64_intdigest

from proxyless.base import Endpoint, Status, ValidationError
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.random_subsetting import RandomSubsettingConfig, RandomSubsettingFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.runtime import seeded_random
from tests.worlds.child_policies import ParentPolicyWorld, StubChildFactory, stub_config
from tests.worlds.policies import CONNECTING, FAILURE, READY, address, endpoint, unavailable

HUNDRED = tuple(str(number) for number in range(100))


def subset_config(size: object, child: object = None) -> dict[str, object]:
    return {"subsetSize": size, "childPolicy": stub_config("child") if child is None else child}


class SubsetWorld(ParentPolicyWorld):
    """A random_subsetting policy whose child is a stub."""

    def __init__(self, *others: StubChildFactory, seed: int = 1) -> None:
        super().__init__(RandomSubsettingFactory(), others=others, seed=seed)

    def choose(self, size: int, *names: str | Endpoint) -> list[str]:
        """Update with these endpoints; return those of the child."""
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


def test_config_has_a_subset_size_and_a_child_policy(world: SubsetWorld) -> None:
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
def test_invalid_config_is_rejected(
    world: SubsetWorld, json: Mapping[str, object], text: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        world.parse(json)
    assert text in str(caught.value)


def test_all_errors_of_a_config_are_reported(world: SubsetWorld) -> None:
    with pytest.raises(ValidationError) as caught:
        world.parse({})
    assert "subsetSize" in str(caught.value)
    assert "childPolicy" in str(caught.value)


# ---------------------------------------------------------------------------------------------
# The subset


@pytest.mark.parametrize("size", [1, 2, 5, 99, 100, 1000])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_child_gets_the_endpoints_that_the_pseudo_code_of_a68_chooses(size: int, seed: int) -> None:
    world = SubsetWorld(seed=seed)
    hash_seed = seeded_random(seed).getrandbits(64)
    assert world.choose(size, *HUNDRED) == published_subset(texts(HUNDRED), size, hash_seed)


def test_all_endpoints_are_used_in_order_when_they_are_not_more_than_the_subset_size(
    world: SubsetWorld,
) -> None:
    assert world.choose(4, "c", "a", "b") == texts("cab")
    assert world.choose(3, "c", "a", "b") == texts("cab")


def test_endpoint_is_hashed_by_its_first_address(world: SubsetWorld) -> None:
    chosen = world.choose(3, *"abcdefgh")
    pairs = [endpoint((name, f"{name}6")) for name in "abcdefgh"]
    assert world.choose(3, *pairs) == chosen
    turned = [endpoint((f"{name}6", name)) for name in "abcdefgh"]
    expected = published_subset(
        texts([f"{name}6" for name in "abcdefgh"]), 3, seeded_random(1).getrandbits(64)
    )
    assert world.choose(3, *turned) == expected


def test_subset_does_not_depend_on_the_order_of_the_list(world: SubsetWorld) -> None:
    assert world.choose(7, *HUNDRED) == world.choose(7, *reversed(HUNDRED))


def test_subset_changes_by_at_most_one_when_an_endpoint_is_added_or_removed(
    world: SubsetWorld,
) -> None:
    before = world.choose(10, *HUNDRED)
    for number in range(100):
        rest = [name for name in HUNDRED if name != str(number)]
        after = world.choose(10, *rest)
        assert len(set(before) - set(after)) == (str(address(str(number))) in before)
        assert world.choose(10, *HUNDRED) == before
    for number in range(100, 200):
        after = world.choose(10, *HUNDRED, str(number))
        assert len(set(before) - set(after)) <= 1


def test_subset_is_extended_or_cut_when_its_size_changes(world: SubsetWorld) -> None:
    ten = world.choose(10, *HUNDRED)
    assert world.choose(15, *HUNDRED)[:10] == ten
    assert world.choose(5, *HUNDRED) == ten[:5]


def test_endpoints_are_chosen_equally_often_over_many_clients() -> None:
    chosen = Counter[str]()
    clients = 2000
    for seed in range(clients):
        chosen.update(SubsetWorld(seed=seed).choose(5, *"abcdefghij"))
    assert len(chosen) == 10
    for times in chosen.values():
        assert times / (clients * 5) == pytest.approx(1 / 10, abs=0.02)


def test_child_gets_the_same_endpoint_objects_and_the_resolution_note(world: SubsetWorld) -> None:
    listed = [endpoint(name) for name in "abcdefgh"]
    world.update(*listed, config=subset_config(3), note="from dns")
    update = world.child("child").updates[-1]
    assert not isinstance(update.endpoints, Status)
    assert all(any(each is one for one in listed) for each in update.endpoints)
    assert update.resolution_note == "from dns"


# ---------------------------------------------------------------------------------------------
# Forwarding to and from the child


def test_reports_and_calls_are_forwarded(world: SubsetWorld) -> None:
    world.choose(2, *"abc")
    world.report("child", CONNECTING)
    world.expect_uses("child")
    world.report("child", READY)
    world.expect_uses("child")
    world.child("child").request_reresolution()
    assert world.reresolutions == 1
    world.policy.exit_idle()
    world.policy.reset_backoff()
    assert world.child("child").calls == ["exit_idle", "reset_backoff"]


def test_resolver_error_is_forwarded_to_the_child(world: SubsetWorld) -> None:
    chosen = world.choose(2, *"abc")
    world.stubs.update_results["child"] = unavailable("no such host")
    update = world.child("child").updates[-1]
    status = world.policy.update(
        type(update)(unavailable("no such host"), world.parse(subset_config(2)))
    )
    assert status == unavailable("no such host")
    assert world.child("child").updates[-1].endpoints == unavailable("no such host")
    # The next list is used as before.
    assert world.choose(2, *"abc") == chosen


def test_empty_list_is_forwarded_to_the_child(world: SubsetWorld) -> None:
    world.update(config=subset_config(2))
    assert world.child("child").updates[-1].endpoints == ()


def test_child_of_another_kind_is_used_when_it_is_ready() -> None:
    others = StubChildFactory("other")
    world = SubsetWorld(others)
    world.choose(2, *"abc")
    world.report("child", READY)
    before = world.picker
    world.update(*"abc", config=subset_config(2, stub_config("new", kind="other")))
    assert world.picker is before
    [new] = others.created
    new.report(READY)
    assert world.picker is new.picker
    world.expect_children()
    assert set(new.endpoints) == set(world.stubs.created[0].endpoints)


def test_only_the_subset_is_connected() -> None:
    world = ParentPolicyWorld(
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
    # Connections are kept while their endpoints are listed.
    gone = next(name for name in "abcdef" if name not in chosen)
    world.update(*(name for name in "fedcba" if name != gone), config=config)
    assert [world[name] for name in chosen] == connected
    world.expect_requests()
    world.policy.close()
    world.expect_closed()


def test_policy_fails_when_the_subset_fails() -> None:
    world = ParentPolicyWorld(RandomSubsettingFactory(), others=(RoundRobinFactory(),))
    world.update(*"abcdef", config=subset_config(2, [{"round_robin": {}}]))
    for name in world.take_requests():
        world[name].connecting()
        world[name].fail()
    world.expect_state(FAILURE)
    world.expect_pick_fails("refused")
