"""CSDS (A40): what an xDS client holds, as a ClientStatusResponse says it."""

from __future__ import annotations

from typing import Any

import pytest

from proxyless.base import Locality
from proxyless.observe import ClientView, encode_status
from proxyless.protos import Proto, message_class
from proxyless.xds.bootstrap import Node
from proxyless.xds.client import ResourceStatus
from tests.xds_client_world import GONE, ClientWorld, text

NODE = Node("edge-7", "edge", Locality("r", "z", "s"), {"K": "v"})


def told(world: ClientWorld, **settings: Any) -> Proto:  # noqa: ANN401
    """The one ClientConfig, as a reader of the wire has it."""
    view = ClientView("xds:///orders", NODE, world.client.dump(), epoch_offset_s=500.0)
    serialized = encode_status([view], **settings).SerializeToString()
    response = message_class("envoy.service.status.v3.ClientStatusResponse").FromString(serialized)
    (config,) = response.config
    return config


def entries(world: ClientWorld) -> dict[str, Proto]:
    return {entry.name: entry for entry in told(world).generic_xds_configs}


@pytest.mark.spec("A40-01")
def test_each_client_has_its_node_and_its_target() -> None:
    world = ClientWorld()
    config = told(world)
    assert config.client_scope == "xds:///orders"
    node = config.node
    assert (node.id, node.cluster, node.locality.zone) == ("edge-7", "edge", "z")
    assert dict(node.metadata) == {"K": "v"}
    assert node.user_agent_name == "proxyless"
    world.close()


@pytest.mark.spec("A40-01")
def test_a_resource_is_requested_and_then_acked_with_version_time_and_bytes() -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    entry = entries(world)["x"]
    assert entry.client_status == ResourceStatus.REQUESTED.value
    assert entry.type_url == world.listeners.type_url
    assert not entry.version_info
    assert not entry.HasField("xds_config")
    assert not entry.HasField("last_updated")
    assert not entry.HasField("error_state")

    world.server().respond(world.listeners, text("x"), version="7")
    entry = entries(world)["x"]
    assert entry.client_status == ResourceStatus.ACKED.value
    assert entry.version_info == "7"
    assert entry.xds_config.type_url == world.listeners.type_url
    assert entry.xds_config.value == text("x")
    # The client's clock stands at 1000 s.
    assert entry.last_updated.ToSeconds() == 1500
    world.close()


@pytest.mark.spec("A40-01")
def test_a_refused_resource_shows_what_is_in_use_and_what_was_refused() -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"), version="1")
    world.clock.advance(7)
    world.server().respond(world.listeners, text("x", "bad"), version="2")
    entry = entries(world)["x"]
    assert entry.client_status == ResourceStatus.NACKED.value
    assert (entry.version_info, entry.xds_config.value) == ("1", text("x"))
    assert entry.error_state.version_info == "2"
    assert entry.error_state.last_update_attempt.ToSeconds() == 1507
    assert entry.error_state.details == 'listener "x": value is bad (node id "edge-7")'
    world.close()


@pytest.mark.spec("A40-01")
def test_a_resource_that_does_not_come_does_not_exist() -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    world.clock.advance(16)
    entry = entries(world)["x"]
    assert entry.client_status == ResourceStatus.DOES_NOT_EXIST.value
    assert not entry.HasField("xds_config")
    world.close()


def test_contents_are_left_out_when_they_are_not_wanted() -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"), version="7")
    (entry,) = told(world, has_contents=False).generic_xds_configs
    assert entry.version_info == "7"
    assert not entry.HasField("xds_config")
    world.close()


def test_an_outage_is_the_error_of_what_stays_in_use() -> None:
    world = ClientWorld()
    world.watch(world.listeners, "x")
    world.server().respond(world.listeners, text("x"), version="7")
    world.server().fail(GONE)
    world.settle()
    entry = entries(world)["x"]
    assert entry.client_status == ResourceStatus.ACKED.value
    assert "connection refused" in entry.error_state.details
    world.close()
