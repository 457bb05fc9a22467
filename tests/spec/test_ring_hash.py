"""A42, A61 and A76: ring_hash_experimental, which sends RPCs with equal hashes to one endpoint."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from string import ascii_lowercase

import pytest
from xxhash import xxh64_intdigest

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    Address,
    Attributes,
    Status,
    StatusCode,
    ValidationError,
)
from proxyless.lb import ENDPOINT_WEIGHT, HASH_KEY, REQUEST_HASH, PickInfo, PolicyFactory, Queue
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.priority import PriorityFactory
from proxyless.lb.policies.priority.policy import FAILOVER_TIMEOUT_S
from proxyless.lb.policies.ring_hash import RingHashConfig, RingHashFactory
from proxyless.lb.policies.ring_hash.policy import HASH_HEADER_GUARD, RING_SIZE_CAP
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.runtime import seeded_random
from tests.worlds.child_policies import at
from tests.worlds.policies import (
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    DeadAddresses,
    Name,
    PolicyWorld,
    ScriptedSubchannel,
    address,
    endpoint,
    unavailable,
    unless_released,
)

HASH_MAX = 2**64 - 1

NAMES: dict[Address, Name] = {
    address(name): name
    for letter in ascii_lowercase
    for name in (letter, f"{letter}6", f"{letter}u")
}


def key(name: Name) -> str:
    """Default hash key of this endpoint."""
    return str(address(name))


def xxh64(text: str) -> int:
    return xxh64_intdigest(text.encode())


def entry(of: str, number: int = 0) -> int:
    """Hash of the entry with this number, for an endpoint with this key."""
    return xxh64(f"{of}_{number}")


def attributes_of(weight: int | None = None, hash_key: str | None = None) -> Attributes:
    attributes = EMPTY_ATTRIBUTES
    if weight is not None:
        attributes = attributes.with_(ENDPOINT_WEIGHT, weight)
    if hash_key is not None:
        attributes = attributes.with_(HASH_KEY, hash_key)
    return attributes


class RingWorld(PolicyWorld):
    """A ring_hash policy or a parent of ring_hash policies, and RPCs with a hash."""

    def __init__(
        self,
        factory: PolicyFactory | None = None,
        *,
        others: tuple[PolicyFactory, ...] = (),
        seed: int = 1,
    ) -> None:
        super().__init__(factory or RingHashFactory(), others=others, seed=seed)

    def name(self, at: Address) -> Name:
        return NAMES.get(at, str(at))

    def aim(self, request_hash: int) -> None:
        """Set the hash of further RPCs."""
        attributes = EMPTY_ATTRIBUTES.with_(REQUEST_HASH, request_hash)
        self.rpc = PickInfo("/pkg.Service/Method", attributes=attributes)

    def send(self, *metadata: tuple[str, str | bytes]) -> None:
        """Set the metadata of further RPCs, which have no hash."""
        self.rpc = PickInfo("/pkg.Service/Method", metadata)

    def pick_at(self, request_hash: int) -> Name | Status | None:
        self.aim(request_hash)
        return self.pick()

    def start_connecting(self, *names: Name) -> None:
        """Pick for each of these endpoints, which are then connecting."""
        for name in names:
            assert self.pick_at(entry(key(name))) is None
            self.settle()

    def ready(self, *names: Name) -> None:
        for name in names:
            self.start_connecting(name)
            self[name].connecting()
            self[name].ready()

    def fail(self, *names: Name) -> None:
        """Fail the connection attempts of these endpoints; picks request missing ones."""
        for name in names:
            if name not in self.subchannel_names:
                self.start_connecting(name)
            self[name].connecting()
            self[name].fail(f"{name} refused")

    def repair(self) -> None:
        """Let all further attempts succeed."""

        def succeed(subchannel: ScriptedSubchannel) -> None:
            self.clock.call_later(0.01, unless_released(subchannel, subchannel.ready))

        self.helper.attempt = succeed

    def owners(self, hashes: Iterable[int]) -> list[Name | Status | None]:
        return [self.pick_at(each) for each in hashes]


@pytest.fixture
def world() -> RingWorld:
    return RingWorld()


# ---------------------------------------------------------------------------------------------
# The ring as A42 defines it, step by step


def published_ring(
    weights: Sequence[tuple[str, int]], minimum: int = 1024, maximum: int = 4096
) -> list[tuple[int, str]]:
    """Entries sorted by hash: the hash, and the key of the owner."""
    total = sum(weight for _, weight in weights)
    normalized = [(of, weight / total) for of, weight in weights]
    smallest = min(share for _, share in normalized)
    scale = min(ceil(smallest * minimum) / smallest, maximum)
    ring = []
    current = target = 0.0
    for of, share in normalized:
        target += scale * share
        number = 0
        while current < target:
            ring.append((entry(of, number), of))
            number += 1
            current += 1
    return sorted(ring)


def published_owner(ring: Sequence[tuple[int, str]], request_hash: int) -> str:
    """Owner of the first entry that is not below the hash, or of the first of all."""
    index = bisect_left([place for place, _ in ring], request_hash)
    return ring[index % len(ring)][1]


def published_owners(ring: Sequence[tuple[int, str]], hashes: Iterable[int]) -> list[str]:
    places = [place for place, _ in ring]
    return [ring[bisect_left(places, each) % len(ring)][1] for each in hashes]


def hashes_around(ring: Sequence[tuple[int, str]]) -> list[int]:
    """Hashes that identify the ring: each entry, and the hash after it."""
    places = [place for place, _ in ring]
    return [0, HASH_MAX, *places, *(min(place + 1, HASH_MAX) for place in places)]


def expect_ring(world: RingWorld, ring: Sequence[tuple[int, str]]) -> None:
    """Check the owners of all entries. All endpoints are READY and have the default key."""
    hashes = hashes_around(ring)
    owners = [str(address(name)) for name in map(str, world.owners(hashes))]
    assert owners == published_owners(ring, hashes)


# ---------------------------------------------------------------------------------------------
# Config


@pytest.mark.spec("RH-01")
def test_empty_config_has_the_default_sizes(world: RingWorld) -> None:
    assert RingHashFactory.name == "ring_hash_experimental"
    config = world.parse({"colour": "red"})
    assert isinstance(config, RingHashConfig)
    assert (config.ring_size.minimum, config.ring_size.maximum) == (1024, 4096)
    assert config.request_hash_header == ""


@pytest.mark.spec("RH-01")
@pytest.mark.parametrize(
    ("minimum", "maximum"), [(1, 1), (1, 8_388_608), (8_388_608, 8_388_608), (1024, "8388608")]
)
def test_sizes_may_be_from_1_to_8_388_608(
    world: RingWorld, minimum: int, maximum: int | str
) -> None:
    config = world.parse({"minRingSize": minimum, "maxRingSize": maximum})
    assert isinstance(config, RingHashConfig)
    assert (config.ring_size.minimum, config.ring_size.maximum) == (minimum, int(maximum))


@pytest.mark.spec("RH-01")
@pytest.mark.parametrize(
    ("json", "text"),
    [
        ({"minRingSize": 0}, "field:minRingSize error:is 0, wanted an integer from 1 to 8388608"),
        ({"maxRingSize": 0}, "field:maxRingSize error:is 0, wanted an integer from 1 to 8388608"),
        ({"maxRingSize": 8_388_609}, "field:maxRingSize error:is 8388609, wanted"),
        ({"minRingSize": 8_388_609}, "field:minRingSize error:is 8388609, wanted"),
        ({"minRingSize": -1}, "field:minRingSize error:is -1, wanted"),
        ({"minRingSize": True}, "field:minRingSize error:is a boolean, wanted"),
        ({"minRingSize": 1.5}, "field:minRingSize error:is 1.5, wanted"),
        ({"maxRingSize": "many"}, "field:maxRingSize error:is 'many', wanted"),
        ({"maxRingSize": "8388609"}, "field:maxRingSize error:is '8388609', wanted"),
        (
            {"minRingSize": 20, "maxRingSize": 10},
            "field:minRingSize error:is 20, wanted at most maxRingSize, which is 10",
        ),
        # The default maximum or minimum applies.
        ({"maxRingSize": 10}, "field:minRingSize error:is 1024, wanted at most maxRingSize"),
        ({"minRingSize": 5000}, "is 5000, wanted at most maxRingSize, which is 4096"),
    ],
)
def test_invalid_sizes_are_rejected(
    world: RingWorld, json: Mapping[str, object], text: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        world.parse(json)
    assert text in str(caught.value)


@pytest.mark.spec("RH-01")
@pytest.mark.parametrize(
    ("cap", "size"),
    [
        (None, (4096, 4096)),
        (100, (100, 100)),
        (10_000, (10_000, 10_000)),
        (20_000, (12_000, 15_000)),
    ],
)
def test_sizes_are_limited_by_the_cap_of_the_client(
    world: RingWorld, cap: int | None, size: tuple[int, int]
) -> None:
    attributes = EMPTY_ATTRIBUTES if cap is None else EMPTY_ATTRIBUTES.with_(RING_SIZE_CAP, cap)
    config = {"minRingSize": 12_000, "maxRingSize": 15_000}
    world.update("a", "b", "c", config=config, attributes=attributes)
    world.ready("a", "b", "c")
    expect_ring(world, published_ring([(key(name), 1) for name in "abc"], *size))


# ---------------------------------------------------------------------------------------------
# The ring


@pytest.mark.spec("RH-02", "RH-03", "RH-05")
@pytest.mark.parametrize(
    ("weights", "size"),
    [
        ({"a": 1}, (1024, 4096)),
        ({"a": 1, "b": 1, "c": 1}, (1024, 4096)),
        ({"a": 1, "b": 2, "c": 3}, (1024, 4096)),
        ({"a": 3, "b": 3, "c": 4}, (7, 10)),
        ({"c": 4, "a": 3, "b": 3}, (1, 7)),
        ({"a": 1, "b": 1000}, (100, 4096)),
        ({"a": 1, "b6": 7, "cu": 5}, (1024, 4096)),
        (dict.fromkeys("abcdefghijkl", 1), (1, 100)),
        (dict(zip("abcdefghijkl", range(1, 13), strict=True)), (50, 100)),
    ],
)
def test_entries_equal_those_of_the_definition(
    world: RingWorld, weights: Mapping[Name, int], size: tuple[int, int]
) -> None:
    config = {"minRingSize": size[0], "maxRingSize": size[1]}
    world.update(
        *(endpoint(name, attributes_of(weight)) for name, weight in weights.items()), config=config
    )
    world.ready(*weights)
    ring = published_ring([(key(name), weight) for name, weight in weights.items()], *size)
    expect_ring(world, ring)


@pytest.mark.spec("RH-02", "RH-03")
def test_three_equal_endpoints_have_342_of_1026_entries_each(world: RingWorld) -> None:
    world.update("a", "b", "c")
    world.ready("a", "b", "c")
    places = {entry(key(name), number): name for name in "abc" for number in range(342)}
    assert len(places) == 1026
    # Each of these entries exists,
    assert world.owners(places) == list(places.values())
    # and no others: the hash after an entry belongs to the next one.
    around = sorted(places)
    after = [places[place] for place in [*around[1:], around[0]]]
    assert world.owners(place + 1 for place in around) == after


@pytest.mark.spec("RH-02")
def test_some_endpoints_are_never_picked_when_there_are_more_than_entries(world: RingWorld) -> None:
    names = ascii_lowercase[:20]
    world.update(*names, config={"minRingSize": 1, "maxRingSize": 5})
    ring = published_ring([(key(name), 1) for name in names], 1, 5)
    assert len(ring) == 5
    for place, _ in ring:
        assert world.pick_at(place) is None
    world.settle()
    assert sorted(map(key, world.take_requests())) == sorted(of for _, of in ring)


@pytest.mark.spec("RH-02")
@pytest.mark.parametrize("weights", [(1, 1, 1), (1, 2, 7)])
def test_hashes_spread_in_proportion_to_weights(world: RingWorld, weights: tuple[int, ...]) -> None:
    # The hashes are fixed, so that shares converge only with the number of entries.
    large = EMPTY_ATTRIBUTES.with_(RING_SIZE_CAP, 60_000)
    config = {"minRingSize": 60_000, "maxRingSize": 60_000}
    listed = [
        endpoint(name, attributes_of(weight)) for name, weight in zip("abc", weights, strict=True)
    ]
    world.update(*listed, config=config, attributes=large)
    world.ready("a", "b", "c")
    random = seeded_random(11)
    shares = Counter(world.owners(random.getrandbits(64) for _ in range(10_000)))
    for name, weight in zip("abc", weights, strict=True):
        assert shares[name] / 10_000 == pytest.approx(weight / sum(weights), abs=0.02)


@pytest.mark.spec("RH-03")
def test_endpoint_is_hashed_by_its_first_address(world: RingWorld) -> None:
    world.update(("a", "b"), ("c", "d"))
    world.start_connecting("a", "c")
    world.expect_requests("a", "c")
    # It may be connected to another address.
    world["a"].connecting()
    world["a"].fail()
    world["b"].connecting()
    world["b"].ready()
    assert world.pick_at(entry(key("a"))) == "b"
    world.update(("b", "a"), ("c", "d"))
    assert world.pick_at(entry(key("b"))) == "b"


@pytest.mark.spec("RH-03")
def test_endpoint_is_hashed_by_its_hash_key_when_it_has_one(world: RingWorld) -> None:
    world.update(
        endpoint("a", attributes_of(hash_key="pod-0")), endpoint("b", attributes_of(hash_key=""))
    )
    assert world.pick_at(entry("pod-0")) is None
    world.settle()
    world.expect_requests("a")
    world["a"].connecting()
    world["a"].ready()
    # An empty key counts as none.
    world.ready("b")
    ring = published_ring([("pod-0", 1), (key("b"), 1)])
    hashes = hashes_around(ring)
    names = {"pod-0": "a", key("b"): "b"}
    assert world.owners(hashes) == [names[of] for of in published_owners(ring, hashes)]


def test_next_endpoint_is_used_when_one_with_the_same_hash_key_fails(world: RingWorld) -> None:
    world.update(
        endpoint("b", attributes_of(hash_key="same")), endpoint("a", attributes_of(hash_key="same"))
    )
    assert world.pick_at(entry("same")) is None
    world.settle()
    world.expect_requests("b")
    world["b"].connecting()
    world["b"].fail("b refused")
    world.settle()
    world.expect_requests("a")
    world["a"].connecting()
    world["a"].ready()
    assert world.pick_at(entry("same")) == "a"


@pytest.mark.spec("RH-04")
def test_endpoint_has_the_sum_of_its_weights_when_it_is_listed_twice(world: RingWorld) -> None:
    world.update(
        endpoint(("a", "d"), attributes_of(2)),
        "b",
        endpoint(("d", "a"), attributes_of(3)),
        endpoint("b", attributes_of(0)),
    )
    world.ready("a", "b")
    world.expect_subchannels("a", "b")
    expect_ring(world, published_ring([(key("a"), 5), (key("b"), 2)]))
    # A change of the second weight alone is applied.
    world.update(
        endpoint(("a", "d"), attributes_of(2)),
        "b",
        endpoint(("d", "a"), attributes_of(9)),
        endpoint("b", attributes_of(0)),
    )
    expect_ring(world, published_ring([(key("a"), 11), (key("b"), 2)]))
    world.update(endpoint(("a", "d"), attributes_of(2)), "b")
    expect_ring(world, published_ring([(key("a"), 2), (key("b"), 1)]))


@pytest.mark.spec("RH-04")
@pytest.mark.parametrize("weight", [None, 0, 1])
def test_weight_of_an_endpoint_is_1_by_default(world: RingWorld, weight: int | None) -> None:
    world.update(endpoint("a", attributes_of(weight)), endpoint("b", attributes_of(3)))
    world.ready("a", "b")
    expect_ring(world, published_ring([(key("a"), 1), (key("b"), 3)]))


@pytest.mark.spec("RH-04")
def test_connection_is_kept_when_the_hash_key_of_an_endpoint_changes(world: RingWorld) -> None:
    world.update("a", "b")
    world.ready("a", "b")
    world.take_requests()
    world.update(endpoint("a", attributes_of(hash_key="pod-0")), "b")
    ring = published_ring([("pod-0", 1), (key("b"), 1)])
    names = {"pod-0": "a", key("b"): "b"}
    hashes = hashes_around(ring)
    assert world.owners(hashes) == [names[of] for of in published_owners(ring, hashes)]
    world.expect_requests()


def test_grpc_go_7156_ring_changes_when_only_weights_change(world: RingWorld) -> None:
    world.update(endpoint("a", attributes_of(1)), endpoint("b", attributes_of(1)))
    world.ready("a", "b")
    world.take_requests()
    world.update(endpoint("a", attributes_of(1)), endpoint("b", attributes_of(9)))
    expect_ring(world, published_ring([(key("a"), 1), (key("b"), 9)]))
    world.expect_requests()
    world.expect_state(READY)


def test_grpc_go_6066_entries_are_numbered_per_endpoint(
    world: RingWorld,
) -> None:
    world.update("a", "b", "c")
    world.ready("a", "b", "c")
    hashes = [entry(key("c"), number) for number in range(200)]
    assert world.owners(hashes) == ["c"] * 200
    # So most hashes keep their owner when another endpoint is removed.
    world.update("b", "c")
    assert world.owners(hashes) == ["c"] * 200


def test_only_hashes_of_the_removed_endpoint_get_another_owner(world: RingWorld) -> None:
    # Each endpoint has 60 entries, before and after.
    names = ascii_lowercase[:10]
    world.update(*names, config={"minRingSize": 600, "maxRingSize": 600})
    world.ready(*names)
    random = seeded_random(3)
    hashes = [random.getrandbits(64) for _ in range(500)]
    before = world.owners(hashes)
    world.update(*names[1:], config={"minRingSize": 540, "maxRingSize": 600})
    moved = {old for old, new in zip(before, world.owners(hashes), strict=True) if old != new}
    assert moved == {"a"}


# ---------------------------------------------------------------------------------------------
# Picks


@pytest.mark.spec("RH-05")
def test_hashes_above_the_last_entry_belong_to_the_first(world: RingWorld) -> None:
    world.update("a", "b", "c", config={"minRingSize": 3, "maxRingSize": 3})
    world.ready("a", "b", "c")
    ring = published_ring([(key(name), 1) for name in "abc"], 3, 3)
    first, last = ring[0], ring[-1]
    assert key(str(world.pick_at(last[0]))) == last[1]
    assert key(str(world.pick_at(last[0] + 1))) == first[1]
    assert key(str(world.pick_at(HASH_MAX))) == first[1]
    assert key(str(world.pick_at(0))) == first[1]


@pytest.mark.spec("RH-06")
def test_policy_starts_idle_without_connecting(world: RingWorld) -> None:
    world.update("a", "b", "c")
    world.expect_reports(IDLE)
    world.advance(600)
    world.expect_requests()
    world.expect_subchannels()
    assert world.clock.timers_pending == 0


@pytest.mark.spec("RH-06")
def test_pick_connects_only_the_owner_of_its_hash(world: RingWorld) -> None:
    world.update("a", "b", "c")
    assert world.pick_at(entry(key("b"))) is None
    world.expect_requests()  # Not inside the pick.
    world.settle()
    world.expect_requests("b")
    world.expect_reports(IDLE, CONNECTING)
    assert world.pick() is None
    world["b"].connecting()
    assert world.pick() is None
    world["b"].ready()
    world.expect_pick("b")
    world.settle()
    world.expect_requests()
    world.expect_subchannels("b")


@pytest.mark.spec("RH-06")
def test_other_endpoints_connect_when_they_are_picked_while_one_is_ready(world: RingWorld) -> None:
    world.update("a", "b", "c")
    world.ready("a")
    world.take_requests()
    assert world.pick_at(entry(key("c"))) is None
    world.settle()
    world.expect_requests("c")
    world.expect_state(READY)
    assert world.pick_at(entry(key("a"))) == "a"


@pytest.mark.spec("RH-06")
def test_pick_uses_the_next_endpoint_of_the_ring_when_the_owner_fails(world: RingWorld) -> None:
    world.update("a", "b", "c", config={"minRingSize": 3, "maxRingSize": 3})
    first, second, third = (
        "abc"[[key(name) for name in "abc"].index(of)]
        for _, of in published_ring([(key(name), 1) for name in "abc"], 3, 3)
    )
    world.ready(third)
    world.fail(first)
    # The next one is IDLE: it is connected even though another is READY.
    assert world.pick_at(entry(key(first))) is None
    world.settle()
    assert world.take_requests()[-1] == second
    world[second].connecting()
    assert world.pick() is None
    world[second].fail()
    world.expect_pick(third)


@pytest.mark.spec("RH-06")
def test_pick_fails_with_the_error_of_its_owner_when_all_endpoints_fail(world: RingWorld) -> None:
    world.update("a", "b", "c")
    world.fail("a", "b", "c")
    world.expect_state(FAILURE)
    for name in "abc":
        world.aim(entry(key(name)))
        world.expect_pick_fails(f"last error: {name} refused")


@pytest.mark.spec("RH-06")
def test_endpoints_without_entries_are_not_used_when_the_whole_ring_fails(world: RingWorld) -> None:
    names = ascii_lowercase[:20]
    world.update(*names, config={"minRingSize": 1, "maxRingSize": 5})
    ring = published_ring([(key(name), 1) for name in names], 1, 5)
    owners = [name for name in names if key(name) in {of for _, of in ring}]
    world.fail(*owners)
    world.settle()
    world.take_requests()
    world.aim(entry(key(owners[2])))
    world.expect_pick_fails(f"{owners[2]} refused")
    world.advance(10)
    world.expect_requests()


# ---------------------------------------------------------------------------------------------
# States


@pytest.mark.spec("RH-07")
def test_policy_is_ready_when_one_endpoint_is_ready(world: RingWorld) -> None:
    world.update("a", "b", "c", "d")
    world.fail("a", "b")
    world.expect_state(FAILURE)
    world.ready("c")
    world.expect_state(READY)
    world.fail("d")
    world.expect_state(READY)


@pytest.mark.spec("RH-07")
def test_policy_fails_when_two_endpoints_fail_even_if_another_is_connecting(
    world: RingWorld,
) -> None:
    world.update("a", "b", "c", "d")
    world.start_connecting("c")
    world["c"].connecting()
    world.fail("a")
    world.expect_state(CONNECTING)
    world.fail("b")
    world.expect_state(FAILURE)
    assert "no reachable endpoints; last failure: " in world.picker.status.details
    assert "b refused" in world.picker.status.details


@pytest.mark.spec("RH-07")
def test_policy_is_connecting_when_one_of_several_endpoints_fails(world: RingWorld) -> None:
    world.update("a", "b")
    world.expect_state(IDLE)
    world.start_connecting("a")
    world.expect_state(CONNECTING)
    world.fail("a")
    world.expect_reports(IDLE, CONNECTING, CONNECTING)


@pytest.mark.spec("RH-07")
def test_policy_has_the_state_of_its_only_endpoint(world: RingWorld) -> None:
    world.update("a")
    world.expect_state(IDLE)
    world.fail("a")
    world.expect_state(FAILURE)
    world["a"].idle()
    world["a"].connecting()
    world.expect_state(FAILURE)
    world["a"].ready()
    world.expect_state(READY)
    world["a"].idle()
    world.expect_state(IDLE)


@pytest.mark.spec("RH-07")
def test_endpoint_counts_as_failing_while_it_reconnects(world: RingWorld) -> None:
    world.update("a", "b")
    world.fail("a", "b")
    world.expect_never()
    world["a"].idle()
    world["a"].connecting()
    world.expect_reports()
    world.aim(entry(key("a")))
    world.expect_pick_fails("a refused")


def test_unhealthy_endpoint_reconnects_when_its_connection_is_lost(world: RingWorld) -> None:
    world.update("a", "b")
    world.ready("a")
    world["a"].set_health(FAILURE, "not serving")
    world.settle()
    world.take_requests()
    world["a"].idle()
    world.settle()
    world.expect_requests("a")


@pytest.mark.spec("RH-07")
def test_failure_does_not_name_an_endpoint_when_it_is_removed(world: RingWorld) -> None:
    world.update("a", "b")
    world.fail("a", "b")
    assert "b refused" in world.picker.status.details
    world.update("a")
    world.expect_state(FAILURE)
    assert "a refused" in world.picker.status.details


@pytest.mark.spec("RH-13")
def test_removed_endpoints_are_released_at_once_though_no_new_one_is_ready(
    world: RingWorld,
) -> None:
    world.update("a", "b")
    world.ready("a", "b")
    world.update("c")
    world.expect_state(IDLE)
    world.expect_picker_queues()
    world.settle()
    world.expect_subchannels("c")


# ---------------------------------------------------------------------------------------------
# Connection attempts without RPCs


@pytest.mark.spec("RH-08")
def test_idle_endpoints_are_tried_one_after_another_after_a_failure(world: RingWorld) -> None:
    world.update("a", "b", "c", "d", "e")
    world.start_connecting("a")
    world.expect_requests("a")
    tried = ["a"]
    for _ in range(4):
        world[tried[-1]].connecting()
        world.advance(5)
        world.expect_requests()  # One attempt is under way.
        world[tried[-1]].fail()
        world.settle()
        [following] = world.take_requests()
        assert following not in tried
        tried.append(following)
    world[tried[-1]].connecting()
    world[tried[-1]].fail()
    world.advance(5)
    world.expect_requests()
    world.expect_state(FAILURE)


@pytest.mark.spec("RH-08")
def test_endpoint_to_try_is_chosen_at_random() -> None:
    seen = set()
    for seed in range(20):
        world = RingWorld(seed=seed)
        world.update("a", "b", "c", "d")
        world.fail("a")
        world.settle()
        seen.add(world.take_requests()[-1])
    assert seen == {"b", "c", "d"}


@pytest.mark.spec("RH-08")
def test_no_endpoint_is_tried_while_one_is_connecting_or_ready(world: RingWorld) -> None:
    world.update("a", "b", "c", "d")
    world.ready("b")
    world.fail("a")
    world.take_requests()
    world.advance(60)
    world.expect_requests()
    world.start_connecting("c")
    world["c"].connecting()
    world["b"].idle()
    world.expect_state(CONNECTING)
    world.advance(5)
    world.expect_requests("c")


@pytest.mark.spec("RH-08")
def test_one_endpoint_is_tried_when_several_fail_at_once(world: RingWorld) -> None:
    world.update(*"abcdefgh")
    world.start_connecting("a", "b")
    for name in "ab":
        world[name].connecting()
    world.take_requests()
    for name in "ab":
        world[name].fail()
    for _ in range(5):
        world.update(*"abcdefgh")
    world.settle()
    assert len(world.take_requests()) == 1


@pytest.mark.spec("RH-08")
def test_update_starts_an_attempt_when_the_connecting_endpoint_is_removed(world: RingWorld) -> None:
    world.update("a", "b", "c")
    world.fail("a", "b")
    world.settle()
    world["c"].connecting()
    world.take_requests()
    world.update("a", "b", "d", "e")
    world.expect_state(FAILURE)
    world.settle()
    [tried] = world.take_requests()
    assert tried in {"d", "e"}
    # An endpoint that was to be tried and is removed is replaced by another.
    world[tried].connecting()
    world[tried].fail()
    world.update("a", "b", tried, "f")
    world.settle()
    world.expect_requests("f")


@pytest.mark.spec("RH-08")
def test_policy_recovers_from_an_outage_without_rpcs(world: RingWorld) -> None:
    dead = DeadAddresses(world)
    world.update("a", "b", "c", "d")
    world.start_connecting("a")
    world.advance(60)
    world.expect_state(FAILURE)
    assert set(dead.attempts) == set("abcd")
    world.repair()
    world.advance(200)
    world.expect_state(READY)


# ---------------------------------------------------------------------------------------------
# Reports


@pytest.mark.spec("RH-09")
def test_each_change_of_an_endpoint_publishes_a_new_picker(world: RingWorld) -> None:
    world.update("a", "b", "c")
    world.ready("a")
    world.expect_reports(IDLE, CONNECTING, READY)
    pickers = [world.picker]
    world.start_connecting("b")
    pickers.append(world.picker)
    world["b"].connecting()
    world["b"].ready()
    pickers.append(world.picker)
    world["b"].idle()
    pickers.append(world.picker)
    assert len(set(map(id, pickers))) == 4
    world.expect_reports(READY, READY, READY)


@pytest.mark.spec("RH-09")
def test_each_update_is_reported_once_with_a_new_picker(world: RingWorld) -> None:
    world.update("a", "b")
    world.ready("a")
    world.expect_never()
    before = world.picker
    world.update("a", "b")
    world.expect_reports(READY)
    assert world.picker is not before
    world.update("a", "c")
    world.expect_reports(READY)


def test_old_picker_does_not_change(world: RingWorld) -> None:
    world.update("a", "b")
    old = world.picker
    world.ready("a")
    assert isinstance(old.pick(world.rpc), Queue)
    world.expect_pick("a")


def test_endpoints_that_start_to_connect_at_once_are_reported_once(world: RingWorld) -> None:
    world.update("a", "b", "c", "d")
    world.expect_reports(IDLE)
    for name in "abcd":
        world.pick_at(entry(key(name)))
    world.settle()
    world.expect_reports(CONNECTING)
    assert sorted(world.take_requests()) == ["a", "b", "c", "d"]


# ---------------------------------------------------------------------------------------------
# The hash of a request


@pytest.mark.spec("RH-10")
def test_an_rpc_without_a_hash_fails(world: RingWorld) -> None:
    world.update("a")
    world.ready("a")
    world.send(("user", "x"))
    failure = world.pick()
    assert isinstance(failure, Status)
    assert failure.code is StatusCode.INTERNAL
    assert "RPC has no hash" in failure.details


@pytest.mark.spec("RH-10")
def test_values_of_the_header_are_joined_by_commas_and_hashed(world: RingWorld) -> None:
    world.update("a", "b", "c", config={"requestHashHeader": "User-Id"})
    ring = published_ring([(key(name), 1) for name in "abc"])
    for values in (("x",), ("y", "z"), ("z", "y"), ("", "q"), (b"bytes",)):
        world.send(("other", "1"), *(("user-id", value) for value in values))
        texts = [value.decode() if isinstance(value, bytes) else value for value in values]
        owner = published_owner(ring, xxh64(",".join(texts)))
        picked = world.pick()
        if picked is None:
            world.settle()
            [requested] = [each for each in world.subchannels if each.state is IDLE]
            requested.connecting()
            requested.ready()
            picked = world.pick()
        assert key(str(picked)) == owner


@pytest.mark.spec("RH-10")
def test_hash_of_the_route_is_ignored_when_a_header_is_configured(world: RingWorld) -> None:
    world.update("a", "b", "c", config={"requestHashHeader": "user"})
    ring = published_ring([(key(name), 1) for name in "abc"])
    owner = published_owner(ring, xxh64("x"))
    for name in "abc":
        attributes = EMPTY_ATTRIBUTES.with_(REQUEST_HASH, entry(key(name)))
        world.rpc = PickInfo("/pkg.Service/Method", (("user", "x"),), attributes)
        world.pick()
    world.settle()
    assert [key(name) for name in world.take_requests()] == [owner]


@pytest.mark.spec("RH-10")
@pytest.mark.parametrize("header", ["user-bin", "User-BIN", "user id", ":path", "naïve", 5, [], {}])
def test_binary_or_invalid_header_name_is_rejected(world: RingWorld, header: object) -> None:
    with pytest.raises(ValidationError, match="field:requestHashHeader error:is"):
        world.parse({"requestHashHeader": header})


@pytest.mark.spec("RH-10")
@pytest.mark.parametrize(("value", "is_used"), [("false", False), ("true", True), ("", True)])
def test_header_is_ignored_when_the_guard_is_false(
    world: RingWorld, monkeypatch: pytest.MonkeyPatch, value: str, is_used: bool
) -> None:
    monkeypatch.setenv(HASH_HEADER_GUARD, value)
    config = world.parse({"requestHashHeader": "user"})
    assert isinstance(config, RingHashConfig)
    assert config.request_hash_header == ("user" if is_used else "")
    if not is_used:
        world.parse({"requestHashHeader": "user-bin"})


# ---------------------------------------------------------------------------------------------
# RPCs without the header


HEADER = {"requestHashHeader": "user"}


class HeaderWorld(RingWorld):
    """Endpoints a to d with a request hash header."""

    def __init__(self, *, seed: int = 1) -> None:
        super().__init__(seed=seed)
        self.update(*"abcd", config=HEADER)
        self._ring = published_ring([(key(name), 1) for name in "abcd"])

    def start_connecting(self, *names: Name) -> None:
        for name in names:
            self.send(("user", self._value_for(name)))
            assert self.pick() is None
            self.settle()
        self.send()
        self.take_requests()

    def _value_for(self, name: Name) -> str:
        values = map(str, range(1000))
        return next(
            value for value in values if published_owner(self._ring, xxh64(value)) == key(name)
        )


@pytest.mark.spec("RH-11")
@pytest.mark.parametrize("metadata", [(), (("other", "x"),), (("user", ""),)])
def test_endpoint_is_chosen_at_random_without_the_header(
    metadata: tuple[tuple[str, str], ...],
) -> None:
    world = HeaderWorld()
    world.ready(*"abcd")
    world.send(*metadata)
    shares = Counter(world.picks(10_000))
    around = published_ring([(key(name), 1) for name in "abcd"])
    starts = [around[-1][0] - 2**64, *(place for place, _ in around)]
    for name in "abcd":
        owned = sum(
            place - before
            for before, (place, of) in zip(starts, around, strict=False)
            if of == key(name)
        )
        assert shares[name] / 10_000 == pytest.approx(owned / 2**64, abs=0.02)


@pytest.mark.spec("RH-11")
def test_ready_endpoint_is_used_at_once_without_the_header() -> None:
    world = HeaderWorld()
    world.ready("b")
    assert set(world.picks(50)) == {"b"}


@pytest.mark.spec("RH-11")
def test_rpc_without_the_header_connects_at_most_one_idle_endpoint() -> None:
    requested = Counter[Name]()
    for seed in range(60):
        world = HeaderWorld(seed=seed)
        world.ready("b")
        world.expect_pick("b")
        world.settle()
        requests = world.take_requests()
        assert len(requests) <= 1
        requested.update(requests or ["none"])
    # The first endpoint from a random hash on, unless it is the READY one.
    assert set(requested) == {"a", "c", "d", "none"}


@pytest.mark.spec("RH-11")
def test_rpc_without_the_header_connects_none_while_one_is_connecting() -> None:
    world = HeaderWorld()
    world.ready("b")
    world.start_connecting("c")
    assert set(world.picks(50)) == {"b"}
    world.settle()
    world.expect_requests()


@pytest.mark.spec("RH-11")
def test_rpc_without_the_header_waits_for_the_endpoint_it_connects() -> None:
    world = HeaderWorld()
    world.send()
    assert world.pick() is None
    world.settle()
    [requested] = world.take_requests()
    world[requested].connecting()
    assert world.picks(20) == [None] * 20
    world.settle()
    world.expect_requests()
    world[requested].ready()
    world.expect_pick(requested)


@pytest.mark.spec("RH-11")
def test_failing_endpoints_are_skipped_without_the_header() -> None:
    world = HeaderWorld()
    world.start_connecting("a", "b")
    for name in "ab":
        world[name].connecting()
        world[name].fail(f"{name} refused")
    world.settle()
    [tried] = world.take_requests()
    world[tried].connecting()
    assert world.picks(20) == [None] * 20
    world[tried].ready()
    world.send()
    assert set(world.picks(20)) == {tried}


@pytest.mark.spec("RH-11")
def test_rpcs_without_the_header_fail_when_all_endpoints_fail() -> None:
    world = HeaderWorld()
    world.start_connecting(*"abcd")
    for name in "abcd":
        world[name].connecting()
        world[name].fail(f"{name} refused")
    world.send()
    world.expect_pick_fails("refused")
    failures = {failure.details for failure in world.picks(100) if isinstance(failure, Status)}
    assert len(failures) == 4


def test_rpcs_without_the_header_use_every_endpoint_in_time() -> None:
    world = HeaderWorld()
    world.repair()
    world.send()
    for _ in range(100):
        world.pick()
        world.advance(0.1)
    assert set(world.picks(100)) == set("abcd")


# ---------------------------------------------------------------------------------------------
# Lost connections, and no endpoints


@pytest.mark.spec("RH-12")
def test_endpoint_is_idle_when_its_connection_is_lost(world: RingWorld) -> None:
    world.update("a", "b")
    world.ready("a")
    world.take_requests()
    world["a"].idle()
    world.expect_state(IDLE)
    world.advance(600)
    world.expect_requests()
    assert world.pick() is None
    world.settle()
    world.expect_requests("a")


@pytest.mark.spec("RH-12")
def test_empty_list_is_refused_and_fails_rpcs(world: RingWorld) -> None:
    assert world.update() == unavailable("empty address list")
    world.expect_reports(FAILURE)
    world.expect_pick_fails("empty address list")
    world.update("a")
    world.ready("a")
    assert world.update(note="from dns") == unavailable("empty address list (from dns)")
    world.expect_state(FAILURE)
    world.expect_subchannels()
    world.expect_pick_fails("empty address list")
    world.update("b")
    world.expect_state(IDLE)


@pytest.mark.spec("RH-12")
def test_resolver_error_fails_rpcs_when_there_is_no_list(world: RingWorld) -> None:
    assert world.resolver_error("no such host") == unavailable("no such host")
    world.expect_reports(FAILURE)
    world.expect_pick_fails("no such host")
    world.update("a")
    world.expect_reports(IDLE)


@pytest.mark.spec("RH-12")
def test_ring_is_kept_when_the_resolver_fails(world: RingWorld) -> None:
    world.update("a", "b")
    world.ready("a", "b")
    assert not world.resolver_error().is_ok
    world.expect_state(READY)
    expect_ring(world, published_ring([(key("a"), 1), (key("b"), 1)]))


def test_grpc_43411_config_is_applied_with_a_resolver_error() -> None:
    world = HeaderWorld()
    world.ready(*"abcd")
    assert set(world.picks(100)) == set("abcd")
    # The error comes with an empty config: now the route has to set the hash.
    assert not world.resolver_error().is_ok
    assert isinstance(world.pick(), Status)
    expect_ring(world, published_ring([(key(name), 1) for name in "abcd"]))


# ---------------------------------------------------------------------------------------------
# Under priority


def under_priority() -> RingWorld:
    """A priority policy: p0 is a ring of a, b and c; p1 has z."""
    world = RingWorld(
        PriorityFactory(), others=(RingHashFactory(), RoundRobinFactory(), PickFirstFactory())
    )
    resolve(world, "abc")
    return world


def resolve(world: RingWorld, names: str) -> None:
    config = {
        "children": {
            "p0": {"config": [{"ring_hash_experimental": {}}]},
            "p1": {"config": [{"round_robin": {}}]},
        },
        "priorities": ["p0", "p1"],
    }
    world.update(*(at("p0", name) for name in names), at("p1", "z"), config=config)


def fail_over(world: RingWorld) -> None:
    """Fail two endpoints of p0 while the third is connecting, so that p1 is used."""
    world.fail("a", "b")
    world.settle()
    world["c"].connecting()
    world["z"].connecting()
    world["z"].ready()
    world.expect_pick("z")
    world.take_requests()


def test_grpc_go_4889_idle_ring_is_preferred_to_a_lower_priority() -> None:
    world = under_priority()
    world.expect_state(IDLE)
    world.advance(FAILOVER_TIMEOUT_S + 1)
    world.expect_requests()  # p1 has not been created.
    world.ready("a")
    world.expect_pick("a")
    world["a"].idle()
    world.expect_state(IDLE)
    world.advance(FAILOVER_TIMEOUT_S + 1)
    world.expect_subchannels()


def test_grpc_java_8926_idle_ring_is_used_even_if_a_lower_priority_is_ready() -> None:
    world = under_priority()
    fail_over(world)
    world["c"].ready()
    world.expect_state(READY)
    assert world.pick_at(entry(key("c"))) == "c"
    world["c"].idle()
    # a and b still fail, so the ring is in TRANSIENT_FAILURE and p1 is used.
    world.expect_state(READY)
    world.expect_pick("z")
    world["a"].idle()
    world["a"].connecting()
    world["a"].ready()
    world["b"].idle()
    world["b"].connecting()
    world["b"].ready()
    world["a"].idle()
    world["b"].idle()
    world.settle()
    # All endpoints are IDLE, and none has failed since: p0 is used.
    assert world.pick_at(entry(key("a"))) is None


def test_grpc_29332_ring_has_the_whole_failover_time_after_idle() -> None:
    world = under_priority()
    world.advance(3600)
    world.start_connecting("a")
    world.expect_state(CONNECTING)
    world["a"].connecting()
    world.advance(FAILOVER_TIMEOUT_S - 0.001)
    assert "z" not in world.subchannel_names
    world.advance(0.002)
    assert "z" in world.subchannel_names


def test_grpc_go_5334_no_failover_when_a_ring_leaves_idle() -> None:
    world = under_priority()
    world.ready("a")
    world["a"].idle()
    world.take_requests()
    world.start_connecting("b")
    world["b"].connecting()
    world.expect_state(CONNECTING)
    world.expect_requests("b")
    world.expect_subchannels("b")
    world["b"].ready()
    world.expect_pick("b")


def test_grpc_go_7363_ring_recovers_when_its_connecting_endpoint_is_removed() -> None:
    world = under_priority()
    fail_over(world)
    resolve(world, "abd")
    world.settle()
    world.expect_requests("d")
    world["d"].connecting()
    world["d"].ready()
    assert world.pick_at(entry(key("d"))) == "d"


def test_proposal_296_ring_reconnects_without_rpcs() -> None:
    world = under_priority()
    dead = DeadAddresses(world)
    world.start_connecting("a")
    world.advance(60)
    assert set(dead.attempts) == {*"abcz"}
    world.expect_state(FAILURE)
    world.repair()
    world.advance(200)
    assert world.pick_at(entry(key("b"))) == "b"


# ---------------------------------------------------------------------------------------------
# exit_idle, reset_backoff, errors and close


def test_exit_idle_connects_one_endpoint(world: RingWorld) -> None:
    world.update("a", "b", "c")
    world.policy.exit_idle()
    world.policy.exit_idle()
    world.settle()
    [requested] = world.take_requests()
    world[requested].connecting()
    world.policy.exit_idle()
    world[requested].ready()
    world.policy.exit_idle()
    world.settle()
    world.expect_requests()


def test_exit_idle_without_endpoints_does_nothing(world: RingWorld) -> None:
    world.update()
    world.policy.exit_idle()
    world.settle()
    world.expect_requests()


def test_reset_backoff_reaches_every_subchannel(world: RingWorld) -> None:
    world.update("a", "b", "c")
    world.fail("a")
    world.policy.reset_backoff()
    assert world["a"].backoff_resets == 1


def test_error_text_has_the_resolution_note(world: RingWorld) -> None:
    world.update("a", note="from xds")
    world.fail("a")
    text = (
        "no reachable endpoints; last failure: "
        "failed to connect to all addresses; last error: a refused (from xds)"
    )
    assert world.picker.status == unavailable(text)


def test_close_releases_all_subchannels_and_timers(world: RingWorld) -> None:
    world.update("a", "b", ("c", "d"))
    world.ready("a")
    world.start_connecting("b")
    old = world.picker
    world.pick_at(entry(key("c")))
    world.policy.close()
    world.expect_closed()
    old.pick(world.rpc)
    world.expect_closed()


def test_endpoint_is_not_connected_when_it_is_removed_after_the_pick(world: RingWorld) -> None:
    world.update("a", "b")
    assert world.pick_at(entry(key("a"))) is None
    world.update("b")
    world.settle()
    world.expect_requests()
    world.expect_reports(IDLE, IDLE)
