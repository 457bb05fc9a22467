"""Is the authority of RPCs rewritten where grpcio's own xDS client rewrites it (A81)?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

import proxyless
from proxyless.controlplane import ControlPlane
from tests.authority_world import (
    NAME,
    SEEN,
    TARGET,
    bootstrap_of,
    found_by_dns,
    found_by_eds,
    rewriting,
    telling,
)
from tests.certificates import CertificateAuthority
from tests.interop.mesh_world import exchange, grpcio_client
from tests.transport_world import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.spec("A78-01")
@pytest.mark.parametrize("is_trusted", [True, False])
@pytest.mark.parametrize("kind", ["eds", "eds without a hostname", "dns"])
async def test_grpcio_and_we_send_the_same_authority(kind: str, is_trusted: bool) -> None:
    async with telling() as server:
        hostname = "a.test:8443" if kind == "eds" else ""
        found = found_by_dns(server) if kind == "dns" else found_by_eds(server, hostname)
        async with ControlPlane(rewriting(*found)) as plane:
            bootstrap = bootstrap_of(plane, is_trusted=is_trusted)
            async with grpcio_client(bootstrap, TARGET) as client:
                [theirs] = await client.call(SEEN)
            async with proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
                answer = await channel.unary_unary(SEEN)(b"", timeout=PATIENCE_S)
            ours = bytes(answer).decode()
    rewritten = {"eds": hostname, "dns": f"localhost:{server.port}"}
    assert ours == (rewritten.get(kind, NAME) if is_trusted else NAME)
    assert theirs == ours


@pytest.mark.spec("A78-01")
@pytest.mark.parametrize("hostname", ["a.test:443", "other.test"])
async def test_grpcio_and_we_refuse_the_same_authority(hostname: str, tmp_path: Path) -> None:
    vouching = CertificateAuthority()
    roots = tmp_path / "roots.pem"
    roots.write_bytes(vouching.certificate_pem)
    async with telling(vouching.issue([NAME, "a.test"])) as server:
        snapshot = rewriting(*found_by_eds(server, hostname))
        async with ControlPlane(snapshot) as plane:
            bootstrap = bootstrap_of(plane, is_trusted=True)
            credentials = f"ssl:{roots}"
            async with grpcio_client(bootstrap, TARGET, credentials=credentials) as client:
                theirs = (await client.exchange(SEEN)).answer
            async with proxyless.aio.secure_channel(
                TARGET, grpc.ssl_channel_credentials(roots.read_bytes()), bootstrap=bootstrap
            ) as channel:
                ours = (await exchange(channel, SEEN)).answer
    if hostname == "other.test":
        assert theirs == "UNAUTHENTICATED: call host does not match SSL server name"
        assert ours.startswith("UNAUTHENTICATED: authority 'other.test': TLS: certificate has")
    else:
        assert (theirs, ours) == (hostname, hostname)
