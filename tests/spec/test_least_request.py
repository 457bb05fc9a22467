"""A48: least_request, which picks the least busy of a few randomly chosen endpoints.

test_as_round_robin.py covers what it shares with round_robin.
"""

from collections import Counter
from dataclasses import dataclass
from functools import partial

import pytest

from proxyless.assembly import default_policies
from proxyless.base import EMPTY_METADATA, OK, Metadata, Status, StatusCode, ValidationError
from proxyless.lb import CallTracker, Complete
from proxyless.lb.policies.least_request import LeastRequestConfig, LeastRequestFactory
from proxyless.testing import ANY_RPC
from tests.worlds.policies import Name, PolicyWorld

PICKS = 10_000


@dataclass(frozen=True, slots=True)
class End:
    """How an RPC ended."""

    status: Status = OK
    trailing_metadata: Metadata = EMPTY_METADATA


class LeastRequestWorld(PolicyWorld):
    """A world in which RPCs start and end."""

    def __init__(self, *, seed: int = 1) -> None:
        super().__init__(LeastRequestFactory(), seed=seed)

    def ready(self, *names: Name) -> None:
        for name in names:
            self[name].connecting()
            self[name].ready()

    def start(self, name: Name, count: int = 1) -> CallTracker:
        """Start RPCs on this endpoint; picks until it is chosen."""
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

    def pick_share(self, name: Name) -> float:
        """Share of picks for this endpoint while no RPC starts."""
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
def test_choice_count_is_two_by_default_and_ten_at_most(
    world: PolicyWorld, json: dict[str, object], count: int
) -> None:
    assert world.parse(json) == LeastRequestConfig(count)


@pytest.mark.spec("LR-01")
@pytest.mark.parametrize("count", [1, 0, -3, 2.5, True, "x", [], {}])
def test_choice_count_is_refused_when_below_two_or_not_an_integer(
    world: PolicyWorld, count: object
) -> None:
    with pytest.raises(ValidationError, match=r"field:choiceCount error:is .* wanted an "):
        world.parse({"choiceCount": count})


@pytest.mark.spec("LR-01")
def test_policy_is_registered_by_default() -> None:
    assert isinstance(default_policies().find("least_request_experimental"), LeastRequestFactory)


# ---------------------------------------------------------------------------------------------
# Picks


@pytest.mark.spec("LR-02")
@pytest.mark.parametrize(("choice_count", "pick_share"), [(2, 1 / 4), (3, 1 / 8), (10, 1 / 1024)])
def test_busier_endpoint_is_picked_only_when_all_choices_are_that_endpoint(
    world: LeastRequestWorld, choice_count: int, pick_share: float
) -> None:
    # Choices are with replacement; without, the busier one would never be picked.
    world.update("a", "b", config={"choiceCount": choice_count})
    world.ready("a", "b")
    world.start("a")
    assert world.pick_share("a") == pytest.approx(pick_share, abs=0.02)


@pytest.mark.spec("LR-02")
def test_endpoints_are_picked_equally_when_they_have_the_same_number_of_rpcs(
    world: LeastRequestWorld,
) -> None:
    world.update(*"abcd")
    world.ready(*"abcd")
    for name in "abcd":
        world.start(name, count=3)
    for name in "abcd":
        assert world.pick_share(name) == pytest.approx(1 / 4, abs=0.02)


@pytest.mark.spec("LR-02")
def test_least_busy_endpoint_is_picked_whenever_it_is_among_the_choices(
    world: LeastRequestWorld,
) -> None:
    world.update(*"abcd")
    world.ready(*"abcd")
    for rpcs, name in enumerate("abcd"):
        if rpcs:
            world.start(name, rpcs)
    # P(n least busy endpoints are not chosen) = (1 - n/4)^2; the shares are the differences.
    for name, pick_share in zip("abcd", (7 / 16, 5 / 16, 3 / 16, 1 / 16), strict=True):
        assert world.pick_share(name) == pytest.approx(pick_share, abs=0.02)


# ---------------------------------------------------------------------------------------------
# Counting


@pytest.mark.spec("LR-03")
@pytest.mark.parametrize("code", [StatusCode.OK, StatusCode.UNAVAILABLE, StatusCode.CANCELLED])
def test_rpc_counts_until_it_ends_with_any_status(
    world: LeastRequestWorld, code: StatusCode
) -> None:
    world.update("a", "b")
    world.ready("a", "b")
    rpc = world.start("a")
    assert world.pick_share("a") == pytest.approx(1 / 4, abs=0.02)
    rpc.on_end(End(Status(code)))
    assert world.pick_share("a") == pytest.approx(1 / 2, abs=0.02)


@pytest.mark.spec("LR-03")
def test_pick_without_a_started_rpc_does_not_count(world: LeastRequestWorld) -> None:
    # A pick may start no RPC, if its connection is lost.
    world.update("a", "b")
    world.ready("a")
    world.picks(100)
    world.ready("b")
    assert world.pick_share("a") == pytest.approx(1 / 2, abs=0.02)


@pytest.mark.spec("LR-03")
def test_counts_are_kept_when_pickers_and_lists_change(world: LeastRequestWorld) -> None:
    world.update("a", "b", "c")
    world.ready("a", "b")
    old = world.start("a", count=2)
    world.ready("c")
    world["c"].idle()
    assert world.pick_share("a") == pytest.approx(1 / 4, abs=0.02)
    world.update("b", "a", config={"choiceCount": 3})
    assert world.pick_share("a") == pytest.approx(1 / 8, abs=0.02)
    # RPCs of the old picker end on the same count.
    for _ in range(2):
        old.on_end(End())
    assert world.pick_share("a") == pytest.approx(1 / 2, abs=0.02)


@pytest.mark.spec("LR-03")
def test_count_is_not_negative_when_rpcs_outlive_their_connection(
    world: LeastRequestWorld,
) -> None:
    world.update("a", "b")
    world.ready("a", "b")
    old = world.start("a", count=5)
    # The backend sent GOAWAY: its RPCs continue while there is a new connection to it.
    world["a"].idle()
    world.settle()
    world.ready("a")
    for _ in range(5):
        old.on_end(End())
    assert world.pick_share("a") == pytest.approx(1 / 2, abs=0.02)


@pytest.mark.spec("LR-03")
def test_count_starts_at_0_when_a_removed_endpoint_returns(world: LeastRequestWorld) -> None:
    world.update("a", "b")
    world.ready("a", "b")
    old = world.start("a", count=5)
    world.update("b")
    world.update("a", "b")
    world.ready("a")
    old.on_end(End())
    assert world.pick_share("a") == pytest.approx(1 / 2, abs=0.02)


# ---------------------------------------------------------------------------------------------
# Updates and effect


@pytest.mark.spec("LR-01")
def test_changed_choice_count_is_used_at_once_even_with_a_resolver_error(
    world: LeastRequestWorld,
) -> None:
    world.update("a", "b")
    world.ready("a", "b")
    world.start("a")
    world.expect_never()
    world.update("a", "b", config={"choiceCount": 10})
    world.expect_reports(world.state)
    assert world.pick_share("a") < 0.02
    # A resolver error comes with the current config, here the default.
    world.resolver_error()
    assert world.pick_share("a") == pytest.approx(1 / 4, abs=0.02)


def test_faster_backend_gets_more_rpcs(world: LeastRequestWorld) -> None:
    """RPCs of backend a take four times as long as those of b."""
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
        duration_s = 0.4 if name == "a" else 0.1
        world.clock.call_later(duration_s, partial(result.tracker.on_end, End()))
    assert done["b"] > 2 * done["a"]
