"""Unit tests of the pool of xDS clients."""

import pytest

from proxyless.xds.bootstrap import Bootstrap, Node
from proxyless.xds.client import XdsClients
from proxyless.xds.client.pool import is_agent
from tests.worlds.xds_clients import WatchRecorder, XdsClientWorld, server_config


def bootstrap(uri: str = "a") -> Bootstrap:
    return Bootstrap(servers=(server_config(uri),), node=Node("me"))


def new_clients() -> XdsClients:
    world = XdsClientWorld()
    return XdsClients(world.transports, world.tools)


def test_client_is_closed_by_its_last_release() -> None:
    clients = new_clients()
    client = clients.acquire(bootstrap(), "t")
    # Equal bootstraps have one client.
    assert clients.acquire(bootstrap(), "t") is client
    clients.release(client)
    client.watch(XdsClientWorld().listeners, "x", WatchRecorder())
    clients.release(client)
    with pytest.raises(ValueError, match="closed"):
        client.watch(XdsClientWorld().listeners, "x", WatchRecorder())
    with pytest.raises(ValueError, match="more often"):
        clients.release(client)
    assert clients.acquire(bootstrap(), "t") is not client


def test_client_is_not_shared_between_bootstraps() -> None:
    clients = new_clients()
    one = clients.acquire(bootstrap("a"), "t", shared=True)
    two = clients.acquire(bootstrap("b"), "t", shared=True)
    assert one is not two
    own = clients.acquire(bootstrap("a"), "t")
    assert clients.by_scope == {"": [one, two], "t": [own]}
    clients.close()
    clients.close()
    assert clients.by_scope == {}


def test_user_with_own_registries_has_its_own_client_unless_shared() -> None:
    clients = new_clients()
    usual = clients.acquire(bootstrap(), "t")
    custom = clients.acquire(bootstrap(), "t", registries="policies of mine")
    assert custom is not usual
    assert clients.acquire(bootstrap(), "t", registries="policies of mine") is custom
    assert clients.by_scope == {"t": [usual, custom]}
    shared = clients.acquire(bootstrap(), "t", shared=True, registries="policies of mine")
    assert clients.acquire(bootstrap(), "t", shared=True) is shared
    clients.close()


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("unix:///var/run/xds", True),
        ("unix:xds.sock", True),
        ("unix-abstract:xds", True),
        ("dns:///unix:80", False),
        ("127.0.0.1:15010", False),
    ],
)
def test_server_is_an_agent_when_it_has_a_unix_socket(uri: str, expected: bool) -> None:
    assert is_agent(bootstrap(uri)) is expected
