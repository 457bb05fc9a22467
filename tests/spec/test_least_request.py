"""least_request (A48): the one with the fewest RPCs under way, of a few that were drawn.

What it has in common with round_robin is in test_as_round_robin.py.
"""

from collections import Counter
from dataclasses import dataclass
from functools import partial

import pytest

from proxyless.assembly import default_policies
from proxyless.base import EMPTY_METADATA, OK, Metadata, Status, StatusCode, ValidationError
from proxyless.lb import CallTracker, Complete
from proxyless.lb.policies.least_request import LeastRequestConfig, LeastRequestFactory
from tests.spec.lb_world import ANY_RPC, Name, World

PICKS = 10_000


@dataclass(frozen=True, slots=True)
class End:
    """How an RPC ended."""

    status: Status = OK
    trailing_metadata: Metadata = EMPTY_METADATA


class LeastRequestWorld(World):
    """A world whose RPCs begin and end."""

    def __init__(self, *, seed: int = 1) -> None:
        super().__init__(LeastRequestFactory(), seed=seed)

    def ready(self, *names: Name) -> None:
        for name in names:
            self[name].connecting()
            self[name].ready()

    def start(self, name: Name, count: int = 1) -> CallTracker:
        """Begin RPCs on this endpoint; chance may have to be asked often for that."""
        for _ in range(1_000):
            result = self.picker.pick(ANY_RPC)
            assert isinstance(result, Complete)
            if self.name(result.subchannel.address) == name:
                tracker = result.tracker
                assert tracker is not None
                for _ in range(count):
                    tracker.on_start()
                return tracker
        raise AssertionError(f"{name} is never picked")

    def part(self, name: Name) -> float:
        """Which part of the RPCs goes there if none of them begins."""
        pick = self.picker.pick
        results = Counter(pick(ANY_RPC) for _ in range(PICKS))
        return (
            sum(
                count
                for result, count in results.items()
                if isinstance(result, Complete) and self.name(result.subchannel.address) == name
            )
            / PICKS
        )


@pytest.fixture
def world() -> LeastRequestWorld:
    return LeastRequestWorld()


# ---------------------------------------------------------------------------------------------
# Config


@pytest.mark.spec("LR-01")
@pytest.mark.parametrize(
    ("json", "count"),
    [
        ({}, 2),
        ({"choiceCount": None}, 2),
        ({"choiceCount": 2}, 2),
        ({"choiceCount": 10}, 10),
        ({"choiceCount": 11}, 10),
        ({"choiceCount": 2**32 - 1}, 10),
        ({"choiceCount": 5, "whatever": 1}, 5),
    ],
)
def test_choice_count_is_two_unless_said_and_ten_at_most(
    world: World, json: dict[str, object], count: int
) -> None:
    assert world.parse(json) == LeastRequestConfig(count)


@pytest.mark.spec("LR-01")
@pytest.mark.parametrize("count", [1, 0, -3, 2.5, True, "x", [], {}])
def test_fewer_than_two_or_no_integer_is_refused(world: World, count: object) -> None:
    with pytest.raises(ValidationError, match=r"field:choiceCount error:is .* wanted an "):
        world.parse({"choiceCount": count})


@pytest.mark.spec("LR-01")
def test_a_channel_knows_it_by_its_name() -> None:
    assert isinstance(default_policies().find("least_request_experimental"), LeastRequestFactory)


# ---------------------------------------------------------------------------------------------
# Picks


@pytest.mark.spec("LR-02")
@pytest.mark.parametrize(("choice_count", "part"), [(2, 1 / 4), (3, 1 / 8), (10, 1 / 1024)])
def test_the_busier_of_two_is_picked_only_if_nothing_else_was_drawn(
    world: LeastRequestWorld, choice_count: int, part: float
) -> None:
    # With replacement: else the busier one would never be picked.
    world.update("a", "b", config={"choiceCount": choice_count})
    world.ready("a", "b")
    world.start("a")
    assert world.part("a") == pytest.approx(part, abs=0.02)


@pytest.mark.spec("LR-02")
def test_with_the_same_number_of_rpcs_everybody_is_picked_alike(world: LeastRequestWorld) -> None:
    world.update(*"abcd")
    world.ready(*"abcd")
    for name in "abcd":
        world.start(name, count=3)
    for name in "abcd":
        assert world.part(name) == pytest.approx(1 / 4, abs=0.02)


@pytest.mark.spec("LR-02")
def test_the_least_busy_of_many_is_picked_whenever_it_is_drawn(world: LeastRequestWorld) -> None:
    world.update(*"abcd")
    world.ready(*"abcd")
    for rpcs, name in enumerate("abcd"):
        if rpcs:
            world.start(name, rpcs)
    # 1 - (3/4)^2, then what is left of it for the next, and so on.
    for name, part in zip("abcd", (7 / 16, 5 / 16, 3 / 16, 1 / 16), strict=True):
        assert world.part(name) == pytest.approx(part, abs=0.02)


# ---------------------------------------------------------------------------------------------
# Counting


@pytest.mark.spec("LR-03")
@pytest.mark.parametrize("code", [StatusCode.OK, StatusCode.UNAVAILABLE, StatusCode.CANCELLED])
def test_an_rpc_counts_until_it_ends_in_whatever_way(
    world: LeastRequestWorld, code: StatusCode
) -> None:
    world.update("a", "b")
    world.ready("a", "b")
    rpc = world.start("a")
    assert world.part("a") == pytest.approx(1 / 4, abs=0.02)
    rpc.on_end(End(Status(code)))
    assert world.part("a") == pytest.approx(1 / 2, abs=0.02)


@pytest.mark.spec("LR-03")
def test_a_pick_alone_counts_nothing(world: LeastRequestWorld) -> None:
    # A pick may come to nothing: its connection may be gone.
    world.update("a", "b")
    world.ready("a")
    world.picks(100)
    world.ready("b")
    assert world.part("a") == pytest.approx(1 / 2, abs=0.02)


@pytest.mark.spec("LR-03")
def test_counts_survive_new_pickers_and_new_lists(world: LeastRequestWorld) -> None:
    world.update("a", "b", "c")
    world.ready("a", "b")
    old = world.start("a", count=2)
    world.ready("c")
    world["c"].idle()
    assert world.part("a") == pytest.approx(1 / 4, abs=0.02)
    world.update("b", "a", config={"choiceCount": 3})
    assert world.part("a") == pytest.approx(1 / 8, abs=0.02)
    # What the old picker started ends on the same count.
    for _ in range(2):
        old.on_end(End())
    assert world.part("a") == pytest.approx(1 / 2, abs=0.02)


@pytest.mark.spec("LR-03")
def test_rpcs_that_outlive_their_connection_never_make_a_count_negative(
    world: LeastRequestWorld,
) -> None:
    world.update("a", "b")
    world.ready("a", "b")
    old = world.start("a", count=5)
    # The backend says GOAWAY; its RPCs go on while there is a new connection to it.
    world["a"].idle()
    world.settle()
    world.ready("a")
    for _ in range(5):
        old.on_end(End())
    assert world.part("a") == pytest.approx(1 / 2, abs=0.02)


@pytest.mark.spec("LR-03")
def test_an_endpoint_that_returns_starts_from_nothing(world: LeastRequestWorld) -> None:
    world.update("a", "b")
    world.ready("a", "b")
    old = world.start("a", count=5)
    world.update("b")
    world.update("a", "b")
    world.ready("a")
    old.on_end(End())
    assert world.part("a") == pytest.approx(1 / 2, abs=0.02)


# ---------------------------------------------------------------------------------------------
# The rest


@pytest.mark.spec("LR-01")
def test_a_new_choice_count_is_used_at_once_even_beside_a_resolver_error(
    world: LeastRequestWorld,
) -> None:
    world.update("a", "b")
    world.ready("a", "b")
    world.start("a")
    world.expect_never()
    world.update("a", "b", config={"choiceCount": 10})
    world.expect_reports(world.state)
    assert world.part("a") < 0.02
    # A resolver error comes with the config of the moment, here the default.
    world.resolver_error()
    assert world.part("a") == pytest.approx(1 / 4, abs=0.02)


def test_rpcs_spread_towards_backends_that_are_faster(world: LeastRequestWorld) -> None:
    """Two backends, of which one takes four times as long for each RPC."""
    world.update("a", "b")
    world.ready("a", "b")
    done: Counter[Name] = Counter()
    for _ in range(2_000):
        world.advance(0.01)
        result = world.picker.pick(ANY_RPC)
        assert isinstance(result, Complete)
        assert result.tracker is not None
        name = world.name(result.subchannel.address)
        done[name] += 1
        result.tracker.on_start()
        takes_s = 0.4 if name == "a" else 0.1
        world.clock.call_later(takes_s, partial(result.tracker.on_end, End()))
    assert done["b"] > 2 * done["a"]
