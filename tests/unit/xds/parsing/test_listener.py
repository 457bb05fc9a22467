"""Listeners. Rejected filters and routes are tested in tests/spec."""

import pytest

from proxyless.protos import Proto, merging
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry
from proxyless.xds.filters.router import RouterConfig
from proxyless.xds.parsing import ListenerType
from proxyless.xds.resources import (
    HttpConnectionManager,
    HttpFilter,
    Listener,
    RouteConfiguration,
)
from tests.unit.xds.parsing.messages import (
    MANAGER,
    MANAGER_PATH,
    ROUTER,
    UNKNOWN,
    any_of,
    decode_listener,
    listener,
    listener_error,
    make,
    route,
)


def test_listener_type_is_full_state() -> None:
    kind = ListenerType(FilterRegistry(FILTER_FACTORIES))
    assert kind.type_url == "type.googleapis.com/envoy.config.listener.v3.Listener"
    assert kind.is_full_state


def test_listener_holds_its_connection_manager() -> None:
    decoded = decode_listener(
        listener(common_http_protocol_options={"max_stream_duration": "2.5s"})
    )
    router = HttpFilter("router", ROUTER, RouterConfig())
    assert decoded.name == "api.example"
    assert decoded.error == ""
    assert decoded.resource == Listener(
        "api.example", HttpConnectionManager("routes", (router,), max_stream_duration_s=2.5)
    )


def test_stream_duration_of_zero_differs_from_unset() -> None:
    manager = listener(common_http_protocol_options={"max_stream_duration": "0s"})
    zero = decode_listener(manager).resource
    assert zero is not None
    assert zero.api_listener is not None
    assert zero.api_listener.max_stream_duration_s == 0.0
    unset = decode_listener(listener()).resource
    assert unset is not None
    assert unset.api_listener is not None
    assert unset.api_listener.max_stream_duration_s is None


def test_fields_for_original_client_addresses_are_rejected() -> None:
    extension = {"name": "e", "typed_config": any_of(UNKNOWN)}
    assert listener_error(xff_num_trusted_hops=2, original_ip_detection_extensions=[extension]) == (
        "[field:xff_num_trusted_hops error:is 2, wanted 0;"
        " field:original_ip_detection_extensions error:is set, wanted none]"
    )


def test_invalid_stream_duration_is_an_error_at_its_field() -> None:
    assert listener_error(common_http_protocol_options={"max_stream_duration": "-1s"}) == (
        "[field:common_http_protocol_options.max_stream_duration.seconds"
        " error:is -1, wanted 0 to 315576000000]"
    )


def test_errors_in_inline_routes_have_the_whole_path() -> None:
    host = {"domains": ["*"], "routes": [route(cluster="")]}
    fields = {"http_filters": [], "route_config": {"virtual_hosts": [host]}}
    message = make(
        "envoy.config.listener.v3.Listener",
        {
            "name": "l",
            "api_listener": {"api_listener": any_of(MANAGER_PATH.split('"')[1], **fields)},
        },
    )
    assert decode_listener(message).error == (
        f'listener "l": [field:{MANAGER_PATH}.http_filters'
        " error:is empty, wanted at least one filter;"
        f" field:{MANAGER_PATH}.route_config.virtual_hosts[0].routes[0].route.cluster"
        " error:is empty, wanted the name of a cluster]"
    )


def test_inline_routes_rewrite_the_authority_when_the_server_is_trusted() -> None:
    host = {"domains": ["*"], "routes": [route(auto_host_rewrite=True)]}
    fields = {
        "http_filters": [{"name": "router", "typed_config": any_of(ROUTER)}],
        "route_config": {"virtual_hosts": [host]},
    }
    message = make(
        "envoy.config.listener.v3.Listener",
        {
            "name": "l",
            "api_listener": {"api_listener": any_of(MANAGER_PATH.split('"')[1], **fields)},
        },
    )
    for trusted in (False, True):
        resource = decode_listener(message, trusted=trusted).resource
        assert resource is not None
        assert f"auto_host_rewrite={trusted}" in repr(resource)


def large_listener(count: int = 1_000) -> Proto:
    """A listener whose connection manager is so large that it is parsed in steps."""
    host = {"name": "h", "domains": ["*"], "routes": [route()] * count}
    fields = {
        "http_filters": [{"name": "router", "typed_config": any_of(ROUTER)}],
        "route_config": {"name": "inline", "virtual_hosts": [host]},
    }
    api_listener = any_of(MANAGER, **fields)
    return make(
        "envoy.config.listener.v3.Listener",
        {"name": "api.example", "api_listener": {"api_listener": api_listener}},
    )


def test_large_listener_holds_its_inline_routes() -> None:
    decoded = decode_listener(large_listener())
    assert decoded.resource is not None
    assert decoded.resource.api_listener is not None
    routes = decoded.resource.api_listener.routes
    assert isinstance(routes, RouteConfiguration)
    assert len(routes.virtual_hosts[0].routes) == 1_000


def test_large_connection_manager_of_another_type_is_an_error() -> None:
    message = large_listener()
    message.api_listener.api_listener.type_url = "host/own.Manager"
    error = decode_listener(message).error
    assert "error:is host/own.Manager, wanted envoy.extensions.filters.network" in error


def test_large_connection_manager_that_is_cut_is_an_error() -> None:
    message = large_listener()
    message.api_listener.api_listener.value = message.api_listener.api_listener.value[:-3]
    assert "error:cannot be decoded as envoy.extensions" in decode_listener(message).error


def test_large_connection_manager_with_too_many_elements_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merging, "FIELDS_MAX", 900)
    assert "error:has more than 900 elements]" in decode_listener(large_listener()).error
