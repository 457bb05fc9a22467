"""HTTP proxies of a mesh, with random bytes. The rules: tests/spec/test_a86_http_connect.py."""

from hypothesis import given
from hypothesis import strategies as st

from proxyless.xds.parsing.http_proxy import (
    ADDRESS,
    HTTP_11_PROXY,
    HTTP_CONNECT_GUARD,
    PROXY_ADDRESS,
    has_http_proxies,
    is_http_connect_enabled,
)
from tests.worlds.xds_messages import (
    any_of,
    any_with,
    assignment,
    cluster,
    decode_cluster,
    decode_endpoints,
    lb_endpoint,
    locality,
    proto,
)


def test_http_connect_is_enabled_unless_the_guard_is_false() -> None:
    assert is_http_connect_enabled({})
    assert is_http_connect_enabled({HTTP_CONNECT_GUARD: "true"})
    assert not is_http_connect_enabled({HTTP_CONNECT_GUARD: "False"})


def test_socket_type_is_the_name_after_the_last_slash() -> None:
    socket = proto("envoy.config.core.v3.TransportSocket", name="x")
    for url, expected in [
        (f"type.googleapis.com/{HTTP_11_PROXY}", True),
        (f"any.host/{HTTP_11_PROXY}", True),
        (HTTP_11_PROXY, False),
        (f"type.googleapis.com/not.{HTTP_11_PROXY}", False),
    ]:
        socket.typed_config.type_url = url
        assert has_http_proxies(socket, {}) is expected


@given(st.binary(max_size=40))
def test_random_bytes_in_the_socket_give_a_cluster_or_an_error(value: bytes) -> None:
    socket = {"name": "x", "typed_config": any_with(HTTP_11_PROXY, value)}
    decoded = decode_cluster(cluster(transport_socket=socket))
    assert (decoded.resource is None) == bool(decoded.error)


@given(st.binary(max_size=40))
def test_random_bytes_in_the_address_give_endpoints_or_an_error(value: bytes) -> None:
    metadata = {"typed_filter_metadata": {PROXY_ADDRESS: any_with(ADDRESS, value)}}
    decoded = decode_endpoints(assignment(locality(lb_endpoint(metadata=metadata))))
    assert (decoded.resource is None) == bool(decoded.error)


def test_proxy_of_an_endpoint_changes_with_the_next_version() -> None:
    def proxy_of(port: int) -> str:
        address = proto(ADDRESS, socket_address={"address": "192.0.2.9", "port_value": port})
        metadata = {"typed_filter_metadata": {PROXY_ADDRESS: any_of(address)}}
        resource = decode_endpoints(assignment(locality(lb_endpoint(metadata=metadata)))).resource
        assert resource is not None
        [[only]] = resource.priorities
        return str(only.endpoints[0].http_proxy)

    assert proxy_of(1) == "192.0.2.9:1"
    assert proxy_of(2) == "192.0.2.9:2"
