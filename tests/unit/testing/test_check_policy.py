"""Unit tests of proxyless.testing.check_policy."""

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


# Policies that conform.


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
def test_sound_policy_conforms(make: Callable[[Helper], Policy]) -> None:
    check_policy(kind_of(make))


# Policies that do not conform.


@pytest.mark.parametrize(("rule", "make", "observed"), FLAWED)
def test_flaw_is_reported_as_its_rule(
    rule: Rule, make: Callable[[Helper], Policy], observed: str
) -> None:
    flaw = find_flaw(kind_of(make))
    assert flaw.rule is rule, str(flaw)
    assert observed in flaw.observed


def test_every_rule_has_a_policy_that_breaks_it() -> None:
    assert {rule for rule, _, _ in FLAWED} | {Rule.CONFIG} == set(Rule)


def test_parser_that_raises_breaks_the_config_rule() -> None:
    with pytest.raises(ConformanceError, match="parse_config raises KeyError: 'zone'") as caught:
        check_policy(CarelessKind(Sound), config={"zone": "x"})
    assert caught.value.rule is Rule.CONFIG
    assert "parse {}" in str(caught.value)


def test_parser_that_changes_its_input_breaks_the_config_rule() -> None:
    with pytest.raises(ConformanceError, match="parse_config makes") as caught:
        check_policy(DestructiveKind(Sound), config={"zone": "x"})
    assert caught.value.rule is Rule.CONFIG


# Error texts.


def test_error_text_is_the_one_in_the_howto() -> None:
    text = str(find_flaw(kind_of(KeepsBackoff)))
    assert text == (
        "backoff of 10.0.0.1:80 is not reset\n"
        f"rule RESET_BACKOFF: {Rule.RESET_BACKOFF.value}\n"
        "policy 'KeepsBackoff', scenario 'every address fails, again and again'\n"
        "  1. update: a b c,c6\n"
        "  2. every connection that can becomes CONNECTING\n"
        "  3. every connection that can becomes TRANSIENT_FAILURE\n"
        "  4. reset_backoff"
    )
    assert f"\n{text}\n" in HOWTO.read_text()


def test_error_of_a_walk_is_reproduced_by_its_seed() -> None:
    flaw = find_flaw(kind_of(RaisesForUncommonList))
    assert flaw.reproduction is not None
    assert flaw.reproduction.origin.startswith("seed ")
    [step] = flaw.reproduction.steps
    assert step.startswith("update: ")
    assert "f6,f" in step
    seed = int(flaw.reproduction.origin.removeprefix("seed "))
    again = find_flaw(kind_of(RaisesForUncommonList), seeds=range(seed, seed + 1))
    assert str(again) == str(flaw)


def test_exception_of_the_policy_is_the_cause_of_the_error() -> None:
    assert isinstance(find_flaw(kind_of(Raises)).__cause__, KeyError)


# Traits.


def test_policy_may_leave_failure_when_traits_allow() -> None:
    check_policy(kind_of(ForgetsFailure), traits=Traits(sticky=Sticky.NEVER), seeds=range(5))


def test_policy_that_leaves_failure_for_new_endpoints_is_not_sticky_until_ready() -> None:
    with pytest.raises(ConformanceError) as caught:
        check_policy(RoundRobinFactory(), traits=Traits(sticky=Sticky.UNTIL_READY))
    assert caught.value.rule is Rule.STICKY_FAILURE


def test_policy_may_omit_reresolution_when_traits_allow() -> None:
    check_policy(kind_of(NeverAsks), traits=Traits(requests_reresolution=False), seeds=range(5))


def test_policy_may_reject_in_part_when_traits_allow() -> None:
    check_policy(kind_of(RefusesTooLate), traits=Traits(refuses_in_part=True), seeds=range(5))


def test_traits_add_attributes_to_endpoints() -> None:
    zone, observed = Key[str]("zone"), set[str | None]()

    class Zoned(Sound):
        def update(self, update: Update):  # type: ignore[no-untyped-def]  # noqa: ANN202
            if isinstance(update.endpoints, tuple):
                observed.update(each.attributes.get(zone) for each in update.endpoints)
            return super().update(update)

    def to_endpoint(endpoint: Endpoint) -> Endpoint:
        return Endpoint(endpoint.addresses, endpoint.attributes.with_(zone, "here"))

    check_policy(PolicyKind(Zoned), traits=Traits(to_endpoint=to_endpoint), seeds=range(2))
    assert observed == {"here"}


def test_traits_set_the_rpc_of_picks() -> None:
    observed: set[str] = set()

    class Nosy(Sound):
        def make_picker(self, usable):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            inner = super().make_picker(usable)

            class NosyPicker(AnyOf):
                def pick(self, info: PickInfo) -> PickResult:
                    observed.add(info.path)
                    return inner.pick(info)

            return NosyPicker([])

    check_policy(PolicyKind(Nosy), traits=Traits(rpc=PickInfo("/a/B")), seeds=range(2))
    assert observed == {"/a/B"}


def test_registry_provides_the_children() -> None:
    registry = PolicyRegistry([PickFirstFactory()])
    check_policy(kind_of(SoundParent), registry=registry, seeds=range(2))
    with pytest.raises(ConformanceError) as caught:
        check_policy(kind_of(SoundParent), registry=PolicyRegistry(), seeds=range(2))
    assert caught.value.rule is Rule.RAISES_NOTHING


def test_invalid_config_raises_validation_error() -> None:
    with pytest.raises(ValidationError, match=r"config of 'Sound': .*has no zone"):
        check_policy(PickyKind(Sound))


def test_recursion_limit_is_restored() -> None:
    before = sys.getrecursionlimit()
    check_policy(kind_of(Sound), seeds=())
    assert sys.getrecursionlimit() == before
