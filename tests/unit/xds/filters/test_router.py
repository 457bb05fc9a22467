"""What the router filter reads of its config: nothing."""

from proxyless.base import ValidationErrors
from proxyless.protos import message_class
from proxyless.xds.filters.router import ROUTER_TYPE, RouterConfig, RouterFilterFactory


def test_the_fields_of_the_router_are_ignored() -> None:
    errors = ValidationErrors()
    message = message_class(ROUTER_TYPE)(suppress_envoy_headers=True)
    assert RouterFilterFactory().parse_config(message, errors) == RouterConfig()
    assert errors.ok


def test_the_router_ends_a_chain_and_has_no_overrides() -> None:
    assert RouterFilterFactory.is_terminal
    assert RouterFilterFactory.override_types == ()


def test_an_object_is_not_a_router() -> None:
    errors = ValidationErrors()
    RouterFilterFactory().parse_config({}, errors)
    assert str(errors) == f"[error:is a TypedStruct, wanted {ROUTER_TYPE}]"
