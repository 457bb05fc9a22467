"""Unit tests of proxyless.xds.view.targets. Views of running targets are in tests/e2e."""

from __future__ import annotations

from proxyless.xds.bootstrap import Node
from proxyless.xds.client import XdsClients
from proxyless.xds.client.codec import ADS_FEATURES
from proxyless.xds.view import dump_clients, encode_node, view_target
from tests.worlds.xds_clients import XdsClientWorld


def test_each_client_is_dumped_with_its_scope_and_node() -> None:
    world = XdsClientWorld()
    clients = XdsClients(world.transports, world.tools)
    for target in ("xds:///a", "xds:///b"):
        clients.acquire(world.bootstrap, target)
    node = world.bootstrap.node
    dumps = [(scope, its_node, list(found)) for scope, its_node, found in dump_clients(clients)]
    assert dumps == [("xds:///a", node, []), ("xds:///b", node, [])]
    clients.close()


def test_node_has_the_features_of_ads_requests() -> None:
    assert list(encode_node(Node("edge-7")).client_features) == list(ADS_FEATURES)


def test_target_of_another_resolver_has_no_view() -> None:
    assert view_target(object()) is None
