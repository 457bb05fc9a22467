"""Unit tests of the objects that the xDS channels of a loop share."""

from typing import cast

from proxyless.assembly import Registries
from proxyless.channel import LoopStack, SubchannelPool
from proxyless.runtime import AsyncioNetwork, DeadlineQueue, VirtualClock, seeded_random
from proxyless.xds.bootstrap import Bootstrap, ChannelCreds, ServerConfig
from proxyless.xds.resolver import XdsTools
from proxyless.xds.stack import XdsStack
from tests.worlds.xds_dependencies import FakeDns

BOOTSTRAP = Bootstrap(servers=(ServerConfig("control-plane:443", ChannelCreds("insecure")),))


def stack_of(registries: Registries) -> XdsStack:
    clock = VirtualClock()
    stack = LoopStack(
        clock,
        seeded_random(1),
        AsyncioNetwork(),
        DeadlineQueue(clock),
        cast("SubchannelPool", None),
    )
    return XdsStack(stack, policies=registries.policies, resolvers=registries.resolvers)


def tools_of(registries: Registries, dns: FakeDns) -> XdsTools:
    return stack_of(registries).tools(registries.policies, registries.filters, dns)


def test_tools_have_the_four_resource_types_of_v3() -> None:
    registries, dns = Registries(), FakeDns()
    tools = tools_of(registries, dns)
    types = tools.types
    found = [types.listener, types.route_config, types.cluster, types.endpoint]
    assert [each.type_url.rpartition(".")[2] for each in found] == [
        "Listener",
        "RouteConfiguration",
        "Cluster",
        "ClusterLoadAssignment",
    ]
    assert tools.filters is registries.filters
    assert tools.dns is dns


def test_each_target_has_its_own_client_unless_shared() -> None:
    tools = tools_of(Registries(), FakeDns())
    own, other = (tools.acquire(BOOTSTRAP, target, False) for target in ("xds:///a", "xds:///b"))
    assert own is not other
    same = tools.acquire(BOOTSTRAP, "xds:///a", False)
    assert same is own
    one, two = (tools.acquire(BOOTSTRAP, target, True) for target in ("xds:///a", "xds:///b"))
    assert one is two
    for client in (own, other, same, one, two):
        tools.release(client)


def test_channels_with_own_registries_have_their_own_client() -> None:
    registries, dns = Registries(), FakeDns()
    xds = stack_of(registries)
    usual, other = (
        xds.tools(registries.policies, registries.filters, dns, has_own_registries=is_own)
        for is_own in (False, True)
    )
    one, two = (tools.acquire(BOOTSTRAP, "xds:///a", False) for tools in (usual, other))
    assert one is not two
    # Another channel with the same registries shares it.
    again = xds.tools(registries.policies, registries.filters, dns, has_own_registries=True)
    assert again.acquire(BOOTSTRAP, "xds:///a", False) is two
    xds.clients.close()
