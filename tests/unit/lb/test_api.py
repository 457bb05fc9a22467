"""Unit tests of proxyless.lb.api."""

import pytest

from proxyless.lb.api import DeferredFactory, PolicyRegistry
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.round_robin import RoundRobinFactory


def test_registry_finds_a_policy_by_its_exact_name() -> None:
    pick_first, round_robin = PickFirstFactory(), RoundRobinFactory()
    registry = PolicyRegistry([pick_first, round_robin])
    assert registry.find("pick_first") is pick_first
    assert registry.find("round_robin") is round_robin
    assert registry.find("PICK_FIRST") is None
    assert registry.names == ("pick_first", "round_robin")


def test_registry_names_both_factories_when_a_name_is_duplicated() -> None:
    with pytest.raises(ValueError, match=r"policy 'pick_first' is registered twice: by .* and by"):
        PolicyRegistry([PickFirstFactory(), PickFirstFactory()])


def test_extended_returns_a_new_registry() -> None:
    registry = PolicyRegistry([PickFirstFactory()])
    extended = registry.extended([RoundRobinFactory()])
    assert extended.names == ("pick_first", "round_robin")
    assert registry.names == ("pick_first",)
    with pytest.raises(ValueError, match="registered twice"):
        extended.extended([RoundRobinFactory()])


def test_deferred_factory_is_loaded_when_its_policy_is_first_found() -> None:
    deferred = DeferredFactory("round_robin", RoundRobinFactory.__module__, "RoundRobinFactory")
    registry = PolicyRegistry([deferred]).extended([PickFirstFactory()])
    assert registry.names == ("round_robin", "pick_first")
    found = registry.find("round_robin")
    assert isinstance(found, RoundRobinFactory)
    assert registry.find("round_robin") is found


def test_registry_rejects_a_duplicate_of_a_deferred_factory() -> None:
    deferred = DeferredFactory("round_robin", "a_module_that_is_not", "RoundRobinFactory")
    with pytest.raises(ValueError, match="registered twice"):
        PolicyRegistry([deferred, RoundRobinFactory()])
