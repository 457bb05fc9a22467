"""FilterRegistry."""

import pytest

from proxyless.base import ValidationErrors
from proxyless.runtime import Random
from proxyless.xds.filters import FILTER_FACTORIES, FilterMessage, FilterRegistry
from proxyless.xds.filters.api import want_message
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


def test_typed_struct_is_rejected_by_want_message() -> None:
    errors = ValidationErrors()
    assert want_message({}, "own.Filter", errors) is None
    assert str(errors) == "[error:is a TypedStruct, wanted own.Filter]"
