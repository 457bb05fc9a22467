"""FilterRegistry."""

import subprocess
import sys

import pytest

from proxyless.base import ValidationErrors
from proxyless.runtime import Random
from proxyless.xds.filters import (
    FILTER_FACTORIES,
    DeferredFilter,
    FilterMessage,
    FilterRegistry,
)
from proxyless.xds.filters.router import ROUTER_TYPE, RouterFilterFactory
from proxyless.xds.filters.rpc_filter import ClientFilter


class OwnFilterFactory:
    """A filter of an application."""

    config_types = ("own.Filter",)
    override_types = ("own.Filter", "own.FilterPerRoute")
    is_terminal = False

    def parse_config(self, message: FilterMessage, errors: ValidationErrors) -> object:
        raise NotImplementedError

    def parse_override(self, message: FilterMessage, errors: ValidationErrors) -> object:
        raise NotImplementedError

    def create(
        self, config: object, override: object | None, random: Random
    ) -> ClientFilter | None:
        raise NotImplementedError


def test_filter_is_found_by_each_type_of_its_messages() -> None:
    own = OwnFilterFactory()
    registry = FilterRegistry([own])
    assert registry.get("own.Filter") is own
    assert registry.get("own.FilterPerRoute") is own
    assert registry.get("own.Other") is None


def test_extended_returns_a_new_registry() -> None:
    default = FilterRegistry(FILTER_FACTORIES)
    extended = default.extended([OwnFilterFactory()])
    assert extended.get("own.Filter") is not None
    assert extended.get(ROUTER_TYPE) is default.get(ROUTER_TYPE)
    assert default.get("own.Filter") is None


def test_registry_rejects_two_filters_of_one_type() -> None:
    with pytest.raises(ValueError, match=f"filter type '{ROUTER_TYPE}' is registered twice"):
        FilterRegistry(FILTER_FACTORIES).extended([RouterFilterFactory()])


def test_default_filters_are_router_fault_and_stateful_session() -> None:
    assert sorted(
        name.rpartition(".")[2] for name in FilterRegistry(FILTER_FACTORIES).type_names
    ) == [
        "HTTPFault",
        "Router",
        "StatefulSession",
        "StatefulSessionPerRoute",
    ]


@pytest.mark.parametrize("deferred", FILTER_FACTORIES, ids=lambda each: each.factory)
def test_default_filter_has_the_types_that_it_is_registered_by(deferred: DeferredFilter) -> None:
    factory = deferred.load()
    assert {*deferred.type_names} == {*factory.config_types, *factory.override_types}
    registry = FilterRegistry([deferred])
    assert {registry.get(name) for name in deferred.type_names} == {factory}


def test_filter_is_imported_when_its_type_is_first_used() -> None:
    code = """
import sys
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry

registry = FilterRegistry(FILTER_FACTORIES)
assert not {"proxyless.xds.filters.fault", "proxyless.xds.parsing"} & {*sys.modules}
assert registry.get("envoy.extensions.filters.http.fault.v3.HTTPFault") is not None
assert "proxyless.xds.filters.fault" in sys.modules
assert "proxyless.xds.filters.stateful_session" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
