"""Unit tests of proxyless.protos.redaction."""

from __future__ import annotations

from typing import Any

import pytest

from proxyless.controlplane import eds_cluster, lb_endpoint, listener, route, route_config
from proxyless.controlplane.builders import http_filter, pack
from proxyless.protos import message_class
from proxyless.protos.redaction import DEPTH_MAX, redact, without_secrets
from proxyless.xds.client.codec import encode_members
from proxyless.xds.parsing.lb_policy import LEVELS_MAX

SECRET = "6f1c-secret"  # noqa: S105, RUF100 - not a real one


def redacted(message: Any) -> Any:  # noqa: ANN401 - messages
    type_url = f"type.googleapis.com/{message.DESCRIPTOR.full_name}"
    found = redact(type_url, message.SerializeToString())
    assert SECRET.encode() not in found
    return type(message).FromString(found)


def test_values_of_headers_are_removed_from_routes() -> None:
    one = route(cluster="web")
    one.request_headers_to_add.add().header.value = SECRET
    matcher = one.match.headers.add(name="x-token")
    matcher.string_match.exact = SECRET
    pseudo = one.match.headers.add(name=":path")
    pseudo.string_match.prefix = "/shop"
    found = redacted(route_config("r", one)).virtual_hosts[0].routes[0]
    assert [each.string_match.exact for each in found.match.headers] == ["redacted", ""]
    assert found.match.headers[1].string_match.prefix == "/shop"
    assert found.route.cluster == "web"


def test_inline_data_and_metadata_are_removed_from_clusters() -> None:
    cluster = eds_cluster("web")
    cluster.metadata.filter_metadata["a"]["token"] = SECRET
    tls = message_class("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext")()
    tls.common_tls_context.tls_certificates.add().private_key.inline_string = SECRET
    pack(tls, cluster.transport_socket.typed_config)
    found = redacted(cluster)
    assert found.name == "web"
    assert found.transport_socket.typed_config.type_url.endswith("UpstreamTlsContext")


def test_config_of_an_unknown_filter_is_removed_and_that_of_known_ones_remains() -> None:
    unknown = http_filter("own", message_class("google.protobuf.Struct")())
    unknown.typed_config.type_url = "type.googleapis.com/acme.Filter"
    unknown.typed_config.value = SECRET.encode()
    message = listener("api", [route(cluster="web")], filters=[unknown])
    found = redacted(message)
    manager = message_class(found.api_listener.api_listener.type_url.rpartition("/")[2])
    filters = manager.FromString(found.api_listener.api_listener.value).http_filters
    assert [each.typed_config.type_url.rpartition(".")[2] for each in filters] == [
        "Filter",
        "Router",
    ]


def test_resource_of_an_unknown_type_is_empty() -> None:
    assert redact("type.googleapis.com/acme.Unknown", SECRET.encode()) == b""


def test_bytes_that_are_no_message_are_empty() -> None:
    assert redact("type.googleapis.com/envoy.config.cluster.v3.Cluster", b"\xff\xff") == b""


def saved(message: Any) -> Any:  # noqa: ANN401 - messages
    type_url = f"type.googleapis.com/{message.DESCRIPTOR.full_name}"
    found = without_secrets(type_url, message.SerializeToString())
    assert SECRET.encode() not in found
    return type(message).FromString(found)


def tls_context(kind: str) -> Any:  # noqa: ANN401 - messages
    return message_class(f"envoy.extensions.transport_sockets.tls.v3.{kind}TlsContext")()


@pytest.mark.spec("CACHE-05")
def test_inline_keys_and_passwords_are_removed_from_saved_listeners() -> None:
    tls = tls_context("Downstream")
    certificate = tls.common_tls_context.tls_certificates.add()
    certificate.certificate_chain.filename = "/certs/chain.pem"
    certificate.private_key.inline_bytes = SECRET.encode()
    certificate.password.inline_string = SECRET
    certificate.pkcs12.inline_bytes = SECRET.encode()
    certificate.private_key_provider.typed_config.type_url = "type.googleapis.com/acme.Provider"
    certificate.private_key_provider.typed_config.value = SECRET.encode()
    tls.session_ticket_keys.keys.add().inline_bytes = SECRET.encode()
    message = listener("api", [route(cluster="web")])
    pack(tls, message.filter_chains.add().transport_socket.typed_config)
    found = saved(message)
    assert found.api_listener == message.api_listener
    kept = type(tls).FromString(found.filter_chains[0].transport_socket.typed_config.value)
    [left] = kept.common_tls_context.tls_certificates
    assert left.certificate_chain == certificate.certificate_chain


@pytest.mark.spec("CACHE-05")
def test_credentials_and_values_of_added_headers_are_removed_from_saved_resources() -> None:
    one = route(cluster="web")
    one.request_headers_to_add.add().header.value = SECRET
    one.match.headers.add(name="x-canary").string_match.exact = "yes"
    one.metadata.filter_metadata["own"]["weight"] = 3
    message = route_config("r", one)
    [found] = saved(message).virtual_hosts[0].routes
    assert found.match == one.match
    assert found.metadata == one.metadata
    assert found.route == one.route
    grpc = message_class("envoy.config.core.v3.GrpcService")()
    grpc.google_grpc.target_uri = "auth:1"
    grpc.google_grpc.call_credentials.add().access_token = SECRET
    assert saved(grpc).google_grpc.target_uri == "auth:1"


@pytest.mark.spec("CACHE-05")
def test_extensions_that_a_client_does_not_use_are_removed_from_saved_resources() -> None:
    def fill(extension: Any) -> None:  # noqa: ANN401 - messages
        extension.type_url = "type.googleapis.com/acme.Unknown"
        extension.value = SECRET.encode()

    manager = message_class(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    )()
    fill(manager.access_log.add().typed_config)
    fill(manager.tracing.provider.typed_config)
    message = listener("api", manager)
    fill(message.access_log.add().typed_config)
    fill(message.filter_chains.add().filters.add().typed_config)
    fill(message.listener_filters.add().typed_config)
    saved(message)
    cluster = eds_cluster("web")
    cluster.health_checks.add().http_health_check.send.text = SECRET
    fill(cluster.filters.add().typed_config)
    assert saved(cluster).eds_cluster_config == cluster.eds_cluster_config
    grpc = message_class("envoy.config.core.v3.GrpcService")()
    fill(grpc.google_grpc.call_credentials_plugin.add())
    saved(grpc)


@pytest.mark.spec("CACHE-05")
def test_fields_of_a_newer_version_are_removed_from_saved_resources() -> None:
    message = eds_cluster("web")
    # Field 9,999, of 11 bytes.
    field = bytes([0xFA, 0xF0, 0x04, len(SECRET)]) + SECRET.encode()
    type_url = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    found = without_secrets(type_url, message.SerializeToString() + field)
    assert found == message.SerializeToString(deterministic=True)


def test_config_of_an_extension_of_the_application_is_saved() -> None:
    own = http_filter("own", message_class("google.protobuf.Struct")())
    own.typed_config.type_url = "type.googleapis.com/acme.Filter"
    own.typed_config.value = b"\x00\xff"
    message = listener("api", [route(cluster="web")], filters=[own])
    assert saved(message) == message


@pytest.mark.spec("CACHE-01")
def test_collection_of_endpoints_is_saved_with_its_members() -> None:
    # It has the name of its members' type, and is a message of another one.
    endpoint = lb_endpoint("10.0.0.1:80").SerializeToString()
    collection = encode_members(
        [("xdstp://m/envoy.config.endpoint.v3.LbEndpoint/w/1", "1", endpoint)]
    )
    type_url = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint"
    assert without_secrets(type_url, collection) == collection


@pytest.mark.spec("CACHE-01")
def test_policies_of_all_levels_are_saved() -> None:
    child = message_class("envoy.config.cluster.v3.LoadBalancingPolicy")()
    for _ in range(LEVELS_MAX):
        wrapper = message_class(
            "envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality"
        )(endpoint_picking_policy=child)
        child = type(child)()
        pack(wrapper, child.policies.add().typed_extension_config.typed_config)
    message = eds_cluster("web")
    message.load_balancing_policy.CopyFrom(child)
    assert saved(message) == message


@pytest.mark.parametrize("name", ["acme.Unknown", "envoy.config.cluster.v3.Cluster"])
def test_resource_that_cannot_be_parsed_is_saved_as_it_is(name: str) -> None:
    assert without_secrets(f"type.googleapis.com/{name}", b"\xff\xff") == b"\xff\xff"


def test_messages_that_are_nested_too_deep_are_removed() -> None:
    inner = message_class("google.protobuf.StringValue")(value=SECRET)
    for _ in range(DEPTH_MAX + 1):
        outer = message_class("google.protobuf.Any")()
        outer.Pack(inner)
        inner = outer
    saved(inner)
