"""Unit tests of messages on the wire."""

from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import Locality
from proxyless.protos import Proto, message_class
from proxyless.runtime.work_queue import finish
from proxyless.xds.bootstrap import Node
from proxyless.xds.client import codec
from tests.worlds.xds_clients import WRAPPER_URL, DiscoveryRequest, DiscoveryResponse

TYPE_URL = "type.googleapis.com/test.v3.Text"


def test_request_has_error_detail_when_it_is_a_nack() -> None:
    request = codec.DiscoveryRequest("T", ("x", "y"), "1", "n")
    message = DiscoveryRequest.FromString(codec.encode_request(request))
    assert not message.HasField("error_detail")
    assert not message.HasField("node")
    request = codec.DiscoveryRequest("T", ("x", "y"), "1", "n", "bad")
    message = DiscoveryRequest.FromString(codec.encode_request(request))
    assert message.error_detail.message == "bad"


def test_node_has_no_locality_and_metadata_fields_when_they_are_empty() -> None:
    request = codec.DiscoveryRequest("T", (), node=Node("me"))
    message = DiscoveryRequest.FromString(codec.encode_request(request))
    assert message.node.id == "me"
    assert not message.node.HasField("locality")
    assert not message.node.HasField("metadata")


def test_metadata_is_encoded_with_any_json() -> None:
    metadata = MappingProxyType({"a": {"b": [1, 2.5, None, "x", {"c": False}]}})
    request = codec.DiscoveryRequest("T", (), node=Node("me", metadata=metadata))
    message = DiscoveryRequest.FromString(codec.encode_request(request))
    inner = message.node.metadata["a"]["b"]
    assert [inner[0], inner[1], inner[2], inner[3], inner[4]["c"]] == [1, 2.5, None, "x", False]


def test_lone_surrogates_are_replaced() -> None:
    broken = "a\ud800b"
    node = Node(broken, broken, Locality(broken), {broken: [broken]})
    request = codec.DiscoveryRequest("T", (), error=broken, node=node)
    message = DiscoveryRequest.FromString(codec.encode_request(request))
    assert (message.node.id, message.error_detail.message) == ("a?b", "a?b")
    assert message.node.metadata["a?b"][0] == "a?b"
    whole = codec.DiscoveryRequest("T", (), node=Node("Zürich"))
    assert DiscoveryRequest.FromString(codec.encode_request(whole)).node.id == "Zürich"


def test_wrapped_resource_is_unwrapped() -> None:
    wrapper = message_class("envoy.service.discovery.v3.Resource")(name="x", version="7")
    wrapper.resource.type_url = TYPE_URL
    wrapper.resource.value = b"inner"
    response = DiscoveryResponse(type_url=TYPE_URL, version_info="1", nonce="n")
    response.resources.add(type_url=WRAPPER_URL, value=wrapper.SerializeToString())
    response.resources.add(type_url=TYPE_URL, value=b"plain")
    decoded = codec.decode_response(response.SerializeToString())
    assert decoded == codec.DiscoveryResponse(
        TYPE_URL,
        "1",
        "n",
        [codec.RawResource(TYPE_URL, b"inner", "x"), codec.RawResource(TYPE_URL, b"plain")],
        [],
    )


def test_error_code_is_unknown_when_it_is_out_of_range() -> None:
    response = DiscoveryResponse()
    for code in (0, 5, 16, 17, -1):
        error = response.resource_errors.add()
        error.resource_name.name = "x"
        error.error_detail.code = code
    decoded = codec.decode_response(response.SerializeToString())
    assert decoded is not None
    assert [error.code for error in decoded.errors] == [2, 5, 16, 2, 2]


def large_response() -> Proto:
    response = DiscoveryResponse(type_url=TYPE_URL, version_info="1", nonce="n")
    for number in range(1_200):
        wrapper = message_class("envoy.service.discovery.v3.Resource")(name=f"x{number}")
        wrapper.resource.type_url = TYPE_URL
        # One of them is so large that its wrapper is parsed in steps, too.
        wrapper.resource.value = b"v" * (40_000 if number == 7 else number % 3)
        response.resources.add(type_url=WRAPPER_URL, value=wrapper.SerializeToString())
        error = response.resource_errors.add()
        error.resource_name.name = f"y{number}"
    return response


def test_large_response_is_decoded_in_steps_with_the_same_result() -> None:
    serialized = large_response().SerializeToString()
    assert len(list(codec.decode_response_in_steps(serialized))) > 10
    decoded = finish(codec.decode_response_in_steps(serialized))
    assert decoded == codec.decode_response(serialized)


def test_large_response_with_too_many_resources_has_only_a_rejection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codec, "RESPONSE_RESOURCES_MAX", 2_399)
    decoded = finish(codec.decode_response_in_steps(large_response().SerializeToString()))
    text = "response has 2400 resources, wanted at most 2399"
    assert decoded == codec.DiscoveryResponse(TYPE_URL, "1", "n", (), rejection=text)


def test_large_response_that_is_cut_cannot_be_decoded() -> None:
    serialized = large_response().SerializeToString()
    assert finish(codec.decode_response_in_steps(serialized[:-3])) is None
    broken = DiscoveryResponse(type_url=TYPE_URL)
    broken.resources.add(type_url=WRAPPER_URL, value=b"\xff" * 40_000)
    decoded = finish(codec.decode_response_in_steps(broken.SerializeToString()))
    assert decoded is not None
    # It is not of the requested type, so it is rejected.
    assert [each.type_url for each in decoded.resources] == [WRAPPER_URL]


@given(st.binary(max_size=200))
def test_decoding_raises_nothing_for_any_bytes(serialized: bytes) -> None:
    codec.decode_response(serialized)
    assert finish(codec.decode_response_in_steps(serialized)) == codec.decode_response(serialized)
