"""Unit tests of proxyless.lb.api."""

import pytest

from proxyless.lb.api import DeferredFactory, PolicyRegistry
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory


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


def test_a_deferred_factory_is_loaded_when_its_policy_is_asked_for() -> None:
    deferred = DeferredFactory("round_robin", RoundRobinFactory.__module__, "RoundRobinFactory")
    registry = PolicyRegistry([deferred]).extended([PickFirstFactory()])
    assert registry.names == ("round_robin", "pick_first")
    found = registry.find("round_robin")
    assert isinstance(found, RoundRobinFactory)
    assert registry.find("round_robin") is found


def test_the_name_of_a_deferred_factory_is_taken() -> None:
    deferred = DeferredFactory("round_robin", "a_module_that_is_not", "RoundRobinFactory")
    with pytest.raises(ValueError, match="registered twice"):
        PolicyRegistry([deferred, RoundRobinFactory()])
