"""The data-plane authority of an xDS target (A27), on real sockets with servers of grpcio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import proxyless
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
    virtual_host,
)
from tests.worlds.authorities import AUTHORITY_METHOD, NAME, TARGET, authority_echo_server
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Sequence

ON_BOTH_LOOPS = True

OPTION = "option.test"


async def seen_authority(domain: str, options: Sequence[tuple[str, Any]] = ()) -> str:
    """The authority that the server got; only the virtual host of this domain leads to it."""
    other = ({NAME, OPTION} - {domain}).pop()
    async with authority_echo_server() as server:
        snapshot = Snapshot.of(
            [
                listener(NAME, "routes"),
                route_config(
                    "routes",
                    virtual_host(route(cluster="empty"), domains=[other]),
                    virtual_host(route(cluster="full"), domains=[domain]),
                ),
                *(eds_cluster(name) for name in ("empty", "full")),
                endpoints("empty", []),
                endpoints("full", [f"127.0.0.1:{server.port}"]),
            ]
        )
        async with ControlPlane(snapshot) as plane:
            bootstrap = plane.bootstrap()
            channel = proxyless.aio.insecure_channel(TARGET, options, bootstrap=bootstrap)
            async with channel:
                call = channel.unary_unary(AUTHORITY_METHOD)
                return bytes(await call(b"", timeout=PATIENCE_S)).decode()


@pytest.mark.spec("A27-31")
async def test_name_of_the_target_chooses_the_virtual_host_and_is_the_authority() -> None:
    assert await seen_authority(NAME) == NAME


@pytest.mark.spec("A27-32")
async def test_default_authority_chooses_the_virtual_host_and_is_the_authority() -> None:
    options = [("grpc.default_authority", OPTION)]
    assert await seen_authority(OPTION, options) == OPTION
