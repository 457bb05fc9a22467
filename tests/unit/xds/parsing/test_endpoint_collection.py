"""Collections of endpoints: localities that name them, and their members."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.protos import message_class
from proxyless.xds.bootstrap import DELTA, Authority, Bootstrap, ChannelCreds, ServerConfig
from proxyless.xds.client.api import DecodeContext, is_collection_type
from proxyless.xds.client.codec import encode_members
from proxyless.xds.parsing import EndpointCollectionType, EndpointType
from proxyless.xds.parsing.endpoint import LB_ENDPOINT
from tests.worlds.xds_messages import (
    ADS,
    CONTEXT,
    assignment,
    errors_of,
    lb_endpoint,
    locality,
    mutations_of,
    parsed_endpoints,
    refused_endpoints,
)

NAME = f"xdstp://mesh/{LB_ENDPOINT}/orders/*"
MEMBER = f"xdstp://mesh/{LB_ENDPOINT}/orders/1"


def leds(name: str = NAME, source: dict[str, Any] = ADS, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    config = {"leds_config": source, "leds_collection_name": name}
    return {**locality(), "lb_endpoints": [], "leds_cluster_locality_config": config, **changes}


def serialized(message: dict[str, Any]) -> bytes:
    encoded: bytes = message_class(LB_ENDPOINT)(**message).SerializeToString()
    return encoded


@pytest.mark.spec("LE-01", "A95-02")
def test_locality_has_the_canonical_name_of_its_collection() -> None:
    name = f"xdstp://mesh/{LB_ENDPOINT}/%6Frders/*?b=2&a=1"
    resource = parsed_endpoints(leds(name))
    [[only]] = resource.priorities
    assert only.collection == f"{NAME}?a=1&b=2"
    assert only.endpoints == ()
    assert resource.collections == (only.collection,)


@pytest.mark.spec("LE-02")
@pytest.mark.parametrize(
    ("found", "error"),
    [
        (leds("orders"), "wanted xdstp://authority/envoy.config.endpoint.v3.LbEndpoint/path/*"),
        (leds(MEMBER), "/path/*"),
        (leds(NAME.replace("LbEndpoint", "LbEndpointCollection")), "is a list collection"),
        (leds(NAME.replace("LbEndpoint", "Cluster")), "has type"),
        (leds(source={}), "leds_config error:is unset, wanted ads or self"),
        (leds(lb_endpoints=[lb_endpoint()]), "is set beside lb_endpoints, wanted one of them"),
    ],
)
def test_other_collections_are_refused(found: dict[str, Any], error: str) -> None:
    assert error in refused_endpoints(found)


@pytest.mark.spec("LE-02")
def test_one_collection_for_two_localities_is_refused() -> None:
    error = refused_endpoints(leds(), leds(locality={"zone": "other"}))
    assert "again, wanted one locality for it" in error


@pytest.mark.spec("LE-03")
@pytest.mark.parametrize("features", [(), (DELTA,)])
def test_collection_needs_a_server_with_incremental_xds(features: tuple[str, ...]) -> None:
    """The server of the collection's authority, which need not be that of the EDS resource."""
    server = ServerConfig("a", ChannelCreds("insecure"), features=frozenset({DELTA}))
    other = ServerConfig("b", ChannelCreds("insecure"), features=frozenset(features))
    authorities = {"mesh": Authority((other,), "")}
    context = DecodeContext(server, Bootstrap(servers=(server,), authorities=authorities))
    decoded = EndpointType().decode(assignment(leds()).SerializeToString(), context)
    if features:
        assert decoded.error == ""
        return
    assert errors_of(decoded, "endpoints") == (
        "field:endpoints[0].leds_cluster_locality_config.leds_collection_name error:needs "
        'incremental xDS: bootstrap has server_features of xds server "b" without "delta"'
    )


@pytest.mark.spec("LE-05")
def test_member_is_an_endpoint() -> None:
    kind = EndpointCollectionType()
    assert is_collection_type(kind)
    assert not kind.is_full_state
    decoded = kind.decode_member(MEMBER, serialized(lb_endpoint()), CONTEXT)
    assert decoded.error == ""
    [[only]] = parsed_endpoints(locality(lb_endpoint())).priorities
    assert decoded.resource == only.endpoints[0]


@pytest.mark.spec("LE-05", "A27-23")
def test_unhealthy_member_is_valid_and_not_used() -> None:
    unhealthy = serialized(lb_endpoint(health_status=2))
    decoded = EndpointCollectionType().decode_member(MEMBER, unhealthy, CONTEXT)
    assert (decoded.resource, decoded.error) == (None, "")


@pytest.mark.spec("LE-07")
def test_error_of_a_member_has_its_name() -> None:
    kind = EndpointCollectionType()
    decoded = kind.decode_member(MEMBER, serialized({}), CONTEXT)
    assert decoded.error == f'endpoint "{MEMBER}": [field:endpoint error:is missing]'
    broken = kind.decode_member(MEMBER, b"\xff", CONTEXT)
    assert broken.error == f'endpoint "{MEMBER}": cannot be decoded as {LB_ENDPOINT}'


@pytest.mark.spec("LE-13")
def test_saved_collection_is_decoded_as_a_whole() -> None:
    kind = EndpointCollectionType()
    good, unhealthy = serialized(lb_endpoint()), serialized(lb_endpoint(health_status=2))
    members = [(f"{NAME[:-1]}{number}", "1", good) for number in range(25)]
    decoded = kind.decode(encode_members([*members, ("u", "1", unhealthy)]), CONTEXT)
    assert decoded.resource is not None
    assert list(decoded.resource) == [name for name, _, _ in members]
    assert kind.decode(b"\xff", CONTEXT).error == "endpoint collection: cannot be decoded"
    assert "cannot be decoded" in kind.decode(encode_members([("x", "1", b"\xff")]), CONTEXT).error


@given(st.one_of(st.binary(max_size=60), mutations_of(message_class(LB_ENDPOINT)(**lb_endpoint()))))
def test_member_of_any_bytes_is_a_resource_or_an_error(content: bytes) -> None:
    decoded = EndpointCollectionType().decode_member(MEMBER, content, CONTEXT)
    assert decoded.resource is None or not decoded.error
