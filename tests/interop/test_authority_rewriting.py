"""Authority rewriting (A81) of our client beside grpcio's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

import proxyless
from proxyless.controlplane import ControlPlane
from tests.certificates import CertificateAuthority
from tests.worlds.authorities import (
    AUTHORITY_METHOD,
    NAME,
    TARGET,
    authority_echo_server,
    bootstrap_of,
    dns_resources,
    eds_resources,
    rewriting_snapshot,
)
from tests.worlds.grpcio_peers import exchange, grpcio_client
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.spec("A81-01", "A81-04", "A81-05")
@pytest.mark.parametrize("is_trusted", [True, False])
@pytest.mark.parametrize("kind", ["eds", "eds without a hostname", "dns"])
async def test_proxyless_and_grpcio_send_the_same_authority(kind: str, is_trusted: bool) -> None:
    async with authority_echo_server() as server:
        hostname = "a.test:8443" if kind == "eds" else ""
        found = dns_resources(server) if kind == "dns" else eds_resources(server, hostname)
        async with ControlPlane(rewriting_snapshot(*found)) as plane:
            bootstrap = bootstrap_of(plane, is_trusted=is_trusted)
            async with grpcio_client(bootstrap, TARGET) as client:
                [theirs] = await client.call(AUTHORITY_METHOD)
            async with proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
                answer = await channel.unary_unary(AUTHORITY_METHOD)(b"", timeout=PATIENCE_S)
            ours = bytes(answer).decode()
    rewritten = {"eds": hostname, "dns": f"localhost:{server.port}"}
    assert ours == (rewritten.get(kind, NAME) if is_trusted else NAME)
    assert theirs == ours


@pytest.mark.spec("A81-09")
@pytest.mark.parametrize("hostname", ["a.test:443", "other.test"])
async def test_proxyless_and_grpcio_reject_the_same_authority(
    hostname: str, tmp_path: Path
) -> None:
    vouching = CertificateAuthority()
    roots = tmp_path / "roots.pem"
    roots.write_bytes(vouching.certificate_pem)
    async with authority_echo_server(vouching.issue([NAME, "a.test"])) as server:
        snapshot = rewriting_snapshot(*eds_resources(server, hostname))
        async with ControlPlane(snapshot) as plane:
            bootstrap = bootstrap_of(plane, is_trusted=True)
            credentials = f"ssl:{roots}"
            async with grpcio_client(bootstrap, TARGET, credentials=credentials) as client:
                theirs = (await client.exchange(AUTHORITY_METHOD)).answer
            async with proxyless.aio.secure_channel(
                TARGET, grpc.ssl_channel_credentials(roots.read_bytes()), bootstrap=bootstrap
            ) as channel:
                ours = (await exchange(channel, AUTHORITY_METHOD)).answer
    if hostname == "other.test":
        assert theirs == "UNAUTHENTICATED: call host does not match SSL server name"
        assert ours.startswith("UNAUTHENTICATED: authority 'other.test': TLS: certificate has")
    else:
        assert (theirs, ours) == (hostname, hostname)
