"""Mesh with authority rewriting, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from proxyless.base import Locality, parse_address
from proxyless.wire.headers import parse_request
from proxyless.wire.hpack import decode_fields
from proxyless.xds.bootstrap import TRUSTED_XDS_SERVER
from proxyless.xds.resources import EndpointInfo, LocalityEndpoints
from tests.worlds.meshes import PATH, MeshWorld
from tests.worlds.xds_messages import BOOTSTRAP, SERVER
from tests.worlds.xds_resources import host, hosts, prioritized, route

if TYPE_CHECKING:
    from proxyless.base import Metadata
    from proxyless.xds.resources import EndpointResource, RouteConfiguration
    from tests.worlds.channels import FakeStream

ADDRESSES = {"a": "10.0.0.1:80", "b": "10.0.0.2:80"}
TRUSTED = replace(SERVER, features=frozenset({TRUSTED_XDS_SERVER}))


class AuthorityWorld(MeshWorld):
    """Mesh whose control plane is trusted."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - those of a channel
        super().__init__(**options)
        self.bootstrap = replace(BOOTSTRAP, servers=(TRUSTED,))

    def send_authority(self, path: str = PATH, metadata: Metadata = ()) -> str:
        """Send an RPC that must succeed; return its authority."""
        rpc = self.start_rpc(path, metadata)
        self.complete(rpc)
        return authority_of(rpc.stream)


def authority_of(stream: FakeStream) -> str:
    return parse_request(decode_fields(stream.block, 1 << 16)).authority


def rewriting(to: str = "a", **settings: Any) -> RouteConfiguration:  # noqa: ANN401
    return hosts(host(route(to, auto_host_rewrite=True, **settings)))


def named(cluster_name: str, **hostnames: str) -> EndpointResource:
    """Return endpoints "a" and "b" of `ADDRESSES` with these hostnames."""
    infos = tuple(
        EndpointInfo((parse_address(ADDRESSES[key]),), hostname=hostname)
        for key, hostname in hostnames.items()
    )
    return prioritized(cluster_name, [LocalityEndpoints(Locality(zone="z"), 1, infos)])
