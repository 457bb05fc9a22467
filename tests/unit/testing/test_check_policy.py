"""Unit tests of proxyless.testing.check_policy: does it find each mistake, and nothing else?"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from proxyless.base import Endpoint, Key, ValidationError
from proxyless.lb import Helper, PickInfo, PickResult, Policy, PolicyRegistry, Update
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.testing import ConformanceError, Rule, Sticky, Traits, check_policy
from tests.unit.testing.flawed_policies import (
    FLAWED,
    AnyOf,
    CarelessKind,
    DestructiveKind,
    ForgetsFailure,
    KeepsBackoff,
    NeverAsks,
    PickyKind,
    PolicyKind,
    Raises,
    RaisesForUncommonList,
    RefusesTooLate,
    Sound,
    SoundParent,
    kind_of,
)

HOWTO = Path(__file__).parents[3] / "docs" / "howto" / "write-a-policy.md"


def find_flaw(kind: PolicyKind, seeds: range = range(5)) -> ConformanceError:
    with pytest.raises(ConformanceError) as caught:
        check_policy(kind, seeds=seeds)
    return caught.value


# Policies that are right.


@pytest.mark.parametrize("shuffles", [False, True])
def test_pick_first_conforms(shuffles: bool) -> None:
    check_policy(
        PickFirstFactory(),
        config={"shuffleAddressList": shuffles},
        traits=Traits(sticky=Sticky.UNTIL_READY),
    )


def test_round_robin_conforms() -> None:
    check_policy(RoundRobinFactory())


@pytest.mark.parametrize("make", [Sound, SoundParent])
def test_a_sound_policy_passes(make: Callable[[Helper], Policy]) -> None:
    check_policy(kind_of(make))


# Policies that are not.


@pytest.mark.parametrize(("rule", "make", "seen"), FLAWED)
def test_each_flaw_is_found(rule: Rule, make: Callable[[Helper], Policy], seen: str) -> None:
    flaw = find_flaw(kind_of(make))
    assert flaw.rule is rule, str(flaw)
    assert seen in flaw.seen


def test_every_rule_is_broken_by_somebody() -> None:
    assert {rule for rule, _, _ in FLAWED} | {Rule.CONFIG} == set(Rule)


def test_a_parser_that_raises_is_found() -> None:
    with pytest.raises(ConformanceError, match="parse_config raises KeyError: 'zone'") as caught:
        check_policy(CarelessKind(Sound), config={"zone": "x"})
    assert caught.value.rule is Rule.CONFIG
    assert "parse {}" in str(caught.value)


def test_a_parser_that_changes_its_input_is_found() -> None:
    with pytest.raises(ConformanceError, match="parse_config makes") as caught:
        check_policy(DestructiveKind(Sound), config={"zone": "x"})
    assert caught.value.rule is Rule.CONFIG


# What is said.


def test_the_text_names_rule_policy_and_the_fewest_steps_as_the_howto_shows() -> None:
    text = str(find_flaw(kind_of(KeepsBackoff)))
    assert text == (
        "10.0.0.1:80 is not told\n"
        f"rule RESET_BACKOFF: {Rule.RESET_BACKOFF.value}\n"
        "policy 'KeepsBackoff', scenario 'every address fails, again and again'\n"
        "  1. update: a b c,c6\n"
        "  2. every connection that can becomes CONNECTING\n"
        "  3. every connection that can becomes TRANSIENT_FAILURE\n"
        "  4. reset_backoff"
    )
    assert f"\n{text}\n" in HOWTO.read_text()


def test_what_only_a_walk_finds_is_found_again_by_its_seed_alone() -> None:
    flaw = find_flaw(kind_of(RaisesForUncommonList))
    assert flaw.story is not None
    assert flaw.story.origin.startswith("seed ")
    [step] = flaw.story.steps
    assert step.startswith("update: ")
    assert "f6,f" in step
    seed = int(flaw.story.origin.removeprefix("seed "))
    again = find_flaw(kind_of(RaisesForUncommonList), seeds=range(seed, seed + 1))
    assert str(again) == str(flaw)


def test_what_the_policy_raised_is_the_cause() -> None:
    assert isinstance(find_flaw(kind_of(Raises)).__cause__, KeyError)


# What may be different.


def test_a_policy_may_be_declared_not_to_stick() -> None:
    check_policy(kind_of(ForgetsFailure), traits=Traits(sticky=Sticky.NEVER), seeds=range(5))


def test_a_policy_that_starts_over_with_new_endpoints_does_not_stick_until_ready() -> None:
    with pytest.raises(ConformanceError) as caught:
        check_policy(RoundRobinFactory(), traits=Traits(sticky=Sticky.UNTIL_READY))
    assert caught.value.rule is Rule.STICKY_FAILURE


def test_a_policy_may_be_declared_not_to_need_reresolution() -> None:
    check_policy(kind_of(NeverAsks), traits=Traits(requests_reresolution=False), seeds=range(5))


def test_a_policy_may_be_declared_to_refuse_in_part() -> None:
    check_policy(kind_of(RefusesTooLate), traits=Traits(refuses_in_part=True), seeds=range(5))


def test_endpoints_can_be_given_attributes() -> None:
    zone, seen = Key[str]("zone"), set[str | None]()

    class Zoned(Sound):
        def update(self, update: Update):  # type: ignore[no-untyped-def]  # noqa: ANN202
            if isinstance(update.endpoints, tuple):
                seen.update(each.attributes.get(zone) for each in update.endpoints)
            return super().update(update)

    def to_endpoint(endpoint: Endpoint) -> Endpoint:
        return Endpoint(endpoint.addresses, endpoint.attributes.with_(zone, "here"))

    check_policy(PolicyKind(Zoned), traits=Traits(to_endpoint=to_endpoint), seeds=range(2))
    assert seen == {"here"}


def test_picks_can_be_for_a_certain_rpc() -> None:
    seen: set[str] = set()

    class Nosy(Sound):
        def make_picker(self, usable):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            inner = super().make_picker(usable)

            class NosyPicker(AnyOf):
                def pick(self, info: PickInfo) -> PickResult:
                    seen.add(info.path)
                    return inner.pick(info)

            return NosyPicker([])

    check_policy(PolicyKind(Nosy), traits=Traits(rpc=PickInfo("/a/B")), seeds=range(2))
    assert seen == {"/a/B"}


def test_the_policies_of_the_registry_may_be_children() -> None:
    registry = PolicyRegistry([PickFirstFactory()])
    check_policy(kind_of(SoundParent), registry=registry, seeds=range(2))
    with pytest.raises(ConformanceError) as caught:
        check_policy(kind_of(SoundParent), registry=PolicyRegistry(), seeds=range(2))
    assert caught.value.rule is Rule.RAISES_NOTHING


def test_a_config_that_is_not_valid_is_the_callers_mistake() -> None:
    with pytest.raises(ValidationError, match=r"config of 'Sound': .*has no zone"):
        check_policy(PickyKind(Sound))


def test_the_stack_is_as_long_as_before() -> None:
    before = sys.getrecursionlimit()
    check_policy(kind_of(Sound), seeds=())
    assert sys.getrecursionlimit() == before
