"""The router filter."""

from proxyless.base import ValidationErrors
from proxyless.protos import message_class
from proxyless.xds.filters.router import ROUTER_TYPE, RouterConfig, RouterFilterFactory


def test_fields_are_ignored() -> None:
    errors = ValidationErrors()
    message = message_class(ROUTER_TYPE)(suppress_envoy_headers=True)
    assert RouterFilterFactory().parse_config(message, errors) == RouterConfig()
    assert errors.ok


def test_router_is_terminal_and_has_no_overrides() -> None:
    assert RouterFilterFactory.is_terminal
    assert RouterFilterFactory.override_types == ()


def test_typed_struct_is_rejected() -> None:
    errors = ValidationErrors()
    RouterFilterFactory().parse_config({}, errors)
    assert str(errors) == f"[error:is a TypedStruct, wanted {ROUTER_TYPE}]"
