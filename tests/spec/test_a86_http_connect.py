"""A86: validation of HTTP proxies in cluster and endpoint resources.

tests/e2e/test_xds_http_connect.py covers the connections through proxies.
"""

from typing import Any

import pytest

from proxyless.base import IpAddress
from proxyless.protos import Proto
from proxyless.xds.client.api import Decoded
from proxyless.xds.parsing.endpoint import EndpointType
from proxyless.xds.resources import EndpointResource
from tests.worlds.xds_messages import (
    CONTEXT,
    any_of,
    any_with,
    assignment,
    cluster,
    lb_endpoint,
    locality,
    parsed_cluster,
    parsed_endpoints,
    proto,
    refused_cluster,
    refused_endpoints,
    struct,
)

PROXIED = "envoy.extensions.transport_sockets.http_11_proxy.v3.Http11ProxyUpstreamTransport"
TLS = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
ADDRESS = "envoy.config.core.v3.Address"
KEY = "envoy.http11_proxy_transport_socket.proxy_address"
GUARD = "GRPC_EXPERIMENTAL_XDS_HTTP_CONNECT"

INSIDE = f'transport_socket.typed_config["{PROXIED}"].transport_socket.typed_config'


def tls_context(instance: str = "roots") -> Proto:
    validation = {"ca_certificate_provider_instance": {"instance_name": instance}}
    return proto(TLS, common_tls_context={"validation_context": validation})


def socket(config: Proto | None) -> dict[str, Any]:
    return {"name": "socket", "typed_config": config}


def proxied(inner: dict[str, Any] | None = None) -> Proto:
    """A cluster whose transport socket wraps another one, or none."""
    wrapper = any_of(proto(PROXIED, transport_socket=inner))
    return cluster(transport_socket=socket(wrapper))


# Clusters


def test_cluster_with_a_proxy_transport_socket_has_http_proxies() -> None:
    assert not parsed_cluster(cluster()).has_http_proxies
    direct = parsed_cluster(cluster(transport_socket=socket(any_of(tls_context()))))
    assert not direct.has_http_proxies
    plain = parsed_cluster(proxied())
    assert plain.has_http_proxies
    assert plain.tls is None


@pytest.mark.spec("A86-02")
def test_tls_config_is_the_same_inside_the_proxy_transport_socket() -> None:
    wrapped = parsed_cluster(proxied(socket(any_of(tls_context()))))
    assert wrapped.has_http_proxies
    direct = parsed_cluster(cluster(transport_socket=socket(any_of(tls_context()))))
    assert wrapped.tls is not None
    assert wrapped.tls == direct.tls


@pytest.mark.spec("A86-03")
@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ({}, f"field:{INSIDE}.type_url error:is '', wanted one such as 'host/package.Type'"),
        (
            socket(any_of(proto(ADDRESS))),
            f"field:{INSIDE} error:is {ADDRESS}, wanted {TLS}",
        ),
        (
            # A wrapper may not contain a wrapper.
            socket(any_of(proto(PROXIED))),
            f"field:{INSIDE} error:is {PROXIED}, wanted {TLS}",
        ),
    ],
    ids=["nothing", "another type", "twice"],
)
def test_other_socket_inside_the_proxy_transport_socket_is_refused(
    inner: dict[str, Any], expected: str
) -> None:
    assert refused_cluster(proxied(inner)) == expected


@pytest.mark.spec("A86-04")
def test_error_of_the_inner_tls_config_has_its_path() -> None:
    refused = refused_cluster(proxied(socket(any_of(tls_context("unknown")))))
    assert refused.startswith(f'field:{INSIDE}["{TLS}"].common_tls_context.')


@pytest.mark.spec("A86-05")
def test_malformed_proxy_transport_socket_is_refused() -> None:
    broken = cluster(transport_socket=socket(any_with(PROXIED, b"\xff")))
    assert refused_cluster(broken) == (
        f'field:transport_socket.typed_config["{PROXIED}"] error:cannot be decoded as {PROXIED}'
    )


@pytest.mark.spec("A86-13")
def test_proxy_transport_socket_is_refused_when_the_guard_is_false() -> None:
    assert refused_cluster(proxied(), {GUARD: "false"}) == (
        f"field:transport_socket.typed_config error:is {PROXIED}, wanted {TLS}"
    )
    for value in ("", "true", "1"):
        assert parsed_cluster(proxied(), {GUARD: value}).has_http_proxies


# Endpoints


def address(host: str = "192.0.2.9", **port: object) -> Proto:
    fields = {"address": host, **(port or {"port_value": 3128})}
    return any_of(proto(ADDRESS, socket_address=fields))


def metadata(value: Proto, key: str = KEY) -> dict[str, Any]:
    return {"typed_filter_metadata": {key: value}}


def proxies(endpoint: dict[str, Any], of_locality: dict[str, Any] | None = None) -> list[str]:
    """Proxies of the endpoint and of its locality."""
    [[only]] = parsed_endpoints(locality(lb_endpoint(**endpoint), metadata=of_locality)).priorities
    return [str(each) for each in (only.endpoints[0].http_proxy, only.http_proxy)]


@pytest.mark.spec("A86-06")
def test_proxies_are_read_from_the_metadata_of_endpoints_and_localities() -> None:
    own, of_locality = metadata(address()), metadata(address("2001:db8::9", port_value=80))
    assert proxies({}) == ["None", "None"]
    assert proxies({"metadata": own}) == ["192.0.2.9:3128", "None"]
    assert proxies({}, of_locality) == ["None", "[2001:db8::9]:80"]
    assert proxies({"metadata": own}, of_locality) == ["192.0.2.9:3128", "[2001:db8::9]:80"]


@pytest.mark.spec("A86-08")
@pytest.mark.parametrize(
    "ignored",
    [
        metadata(address(), key="another"),
        metadata(any_of(proto(TLS))),
        metadata(any_with("unknown.Type", b"\xff")),
        {"filter_metadata": {KEY: struct({})}},
    ],
    ids=["another key", "another type", "unknown type", "untyped"],
)
def test_other_metadata_is_ignored(ignored: dict[str, Any]) -> None:
    assert proxies({"metadata": ignored}, ignored) == ["None", "None"]


PROXY_PATH = f'metadata.typed_filter_metadata["{KEY}"]["{ADDRESS}"]'


@pytest.mark.spec("A86-09")
@pytest.mark.parametrize(
    ("value", "path", "text"),
    [
        (any_of(proto(ADDRESS)), "socket_address", "is missing"),
        (any_of(proto(ADDRESS, pipe={"path": "/x"})), "socket_address", "is missing"),
        (
            address("proxy.example"),
            "socket_address.address",
            "is 'proxy.example', wanted a literal IP address",
        ),
        (address(port_value=65536), "socket_address.port_value", "is 65536, wanted at most 65535"),
        (address(named_port="http"), "socket_address.port_value", "is missing"),
    ],
)
def test_proxy_is_refused_unless_it_is_a_literal_address_with_a_port(
    value: Proto, path: str, text: str
) -> None:
    bad = metadata(value)
    expected = f"field:endpoints[0].{{}}{PROXY_PATH}.{path} error:{text}"
    of_endpoint = refused_endpoints(locality(lb_endpoint(metadata=bad)))
    assert of_endpoint == expected.format("lb_endpoints[0].")
    assert refused_endpoints(locality(lb_endpoint(), metadata=bad)) == expected.format("")


def test_all_errors_of_a_proxy_are_reported() -> None:
    bad = metadata(address("x", port_value=99999))
    refused = refused_endpoints(locality(lb_endpoint(metadata=bad)))
    assert refused.count("error:") == 2


def decode_with(guard: str, message: Proto) -> Decoded[EndpointResource]:
    return EndpointType({GUARD: guard}).decode(message.SerializeToString(), CONTEXT)


@pytest.mark.spec("A86-14")
def test_proxies_in_metadata_are_ignored_when_the_guard_is_false() -> None:
    bad = metadata(address("x"))
    message = assignment(locality(lb_endpoint(metadata=bad), metadata=bad))
    assert decode_with("true", message).resource is None
    found = decode_with("false", message).resource
    assert found is not None
    [[only]] = found.priorities
    assert only.http_proxy is None
    assert only.endpoints[0].addresses == (IpAddress("10.0.0.1", 80),)
    assert only.endpoints[0].http_proxy is None
