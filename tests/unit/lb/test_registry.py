"""Unit tests of proxyless.lb.registry."""

import pytest

from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.lb.registry import PolicyRegistry


def test_a_policy_is_found_by_its_exact_name() -> None:
    pick_first, round_robin = PickFirstFactory(), RoundRobinFactory()
    registry = PolicyRegistry([pick_first, round_robin])
    assert registry.find("pick_first") is pick_first
    assert registry.find("round_robin") is round_robin
    assert registry.find("PICK_FIRST") is None
    assert registry.names == ("pick_first", "round_robin")


def test_the_same_name_twice_is_an_error_that_says_both() -> None:
    with pytest.raises(ValueError, match=r"policy 'pick_first' is registered twice: by .* and by"):
        PolicyRegistry([PickFirstFactory(), PickFirstFactory()])


def test_extending_makes_a_new_registry() -> None:
    registry = PolicyRegistry([PickFirstFactory()])
    extended = registry.extended([RoundRobinFactory()])
    assert extended.names == ("pick_first", "round_robin")
    assert registry.names == ("pick_first",)
    with pytest.raises(ValueError, match="registered twice"):
        extended.extended([RoundRobinFactory()])
