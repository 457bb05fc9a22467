"""Unit tests of the pool of xDS clients."""

import pytest

from proxyless.xds.bootstrap import Bootstrap, Node
from proxyless.xds.client import XdsClients
from proxyless.xds.client.pool import is_agent
from tests.xds_client_world import ClientWorld, Recorder, server_config


def bootstrap(uri: str = "a") -> Bootstrap:
    return Bootstrap(servers=(server_config(uri),), node=Node("me"))


def new_clients() -> XdsClients:
    world = ClientWorld()
    return XdsClients(world.transports, world.tools)


def test_the_last_release_closes_the_client() -> None:
    clients = new_clients()
    client = clients.acquire(bootstrap(), "t")
    # An equal bootstrap is the same one, whoever has read it.
    assert clients.acquire(bootstrap(), "t") is client
    clients.release(client)
    client.watch(ClientWorld().listeners, "x", Recorder())
    clients.release(client)
    with pytest.raises(ValueError, match="closed"):
        client.watch(ClientWorld().listeners, "x", Recorder())
    with pytest.raises(ValueError, match="more often"):
        clients.release(client)
    assert clients.acquire(bootstrap(), "t") is not client


def test_another_bootstrap_is_another_client_even_if_shared() -> None:
    clients = new_clients()
    one = clients.acquire(bootstrap("a"), "t", shared=True)
    two = clients.acquire(bootstrap("b"), "t", shared=True)
    assert one is not two
    own = clients.acquire(bootstrap("a"), "t")
    assert clients.by_scope == {"": [one, two], "t": [own]}
    clients.close()
    clients.close()
    assert clients.by_scope == {}


def test_who_knows_other_policies_or_filters_has_a_client_of_its_own_unless_shared() -> None:
    clients = new_clients()
    usual = clients.acquire(bootstrap(), "t")
    custom = clients.acquire(bootstrap(), "t", vocabulary="policies of mine")
    assert custom is not usual
    assert clients.acquire(bootstrap(), "t", vocabulary="policies of mine") is custom
    assert clients.by_scope == {"t": [usual, custom]}
    shared = clients.acquire(bootstrap(), "t", shared=True, vocabulary="policies of mine")
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
def test_agents_are_known_by_their_socket(uri: str, expected: bool) -> None:
    assert is_agent(bootstrap(uri)) is expected
