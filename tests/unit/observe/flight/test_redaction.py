"""Unit tests of proxyless.observe.flight.redaction."""

from __future__ import annotations

from typing import Any

from proxyless.controlplane import eds_cluster, listener, route, route_config
from proxyless.controlplane.builders import http_filter, pack
from proxyless.observe.flight.redaction import redact
from proxyless.protos import message_class

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
