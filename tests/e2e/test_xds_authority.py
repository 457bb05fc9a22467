"""Does a server see the authority that its control plane wants it to see (A81)?

grpcio's servers on real sockets, which tell the authority of each call. That other routes and other
endpoints are left alone is in tests/spec/test_a81_authority.py.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

import proxyless
from proxyless.controlplane import ENDPOINTS, ControlPlane, Snapshot
from proxyless.xds.parsing.route import AUTHORITY_REWRITE_GUARD
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
from tests.mtls_world import Files, secured
from tests.transport_world import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

pytestmark = pytest.mark.spec("A78-01")

ON_BOTH_LOOPS = True

AUTHORITY = CertificateAuthority()


@asynccontextmanager
async def calling(
    snapshot: Snapshot,
    *,
    is_trusted: bool = True,
    credentials: grpc.ChannelCredentials | None = None,
    options: Sequence[tuple[str, Any]] = (),
    **bootstrap: Any,  # noqa: ANN401 - more of its fields
) -> AsyncIterator[Callable[[], Any]]:
    """A call in this mesh, whose answer is the authority that the server saw."""
    async with ControlPlane(snapshot) as plane:
        document = {**bootstrap_of(plane, is_trusted=is_trusted), **bootstrap}
        if credentials is None:
            channel = proxyless.aio.insecure_channel(TARGET, options, bootstrap=document)
        else:
            channel = proxyless.aio.secure_channel(TARGET, credentials, options, bootstrap=document)
        async with channel:
            call = channel.unary_unary(SEEN)

            async def seen() -> str:
                return bytes(await call(b"", timeout=PATIENCE_S)).decode()

            yield seen


@pytest.mark.parametrize(("is_trusted", "wanted"), [(True, "a.test:8443"), (False, NAME)])
async def test_the_hostname_of_the_endpoint_if_the_server_is_trusted(
    is_trusted: bool, wanted: str
) -> None:
    async with telling() as server:
        snapshot = rewriting(*found_by_eds(server, "a.test:8443"))
        async with calling(snapshot, is_trusted=is_trusted) as seen:
            assert [await seen(), await seen()] == [wanted] * 2


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_the_name_of_a_logical_dns_cluster(is_trusted: bool) -> None:
    async with telling() as server:
        snapshot = rewriting(*found_by_dns(server))
        async with calling(snapshot, is_trusted=is_trusted) as seen:
            assert await seen() == (f"localhost:{server.port}" if is_trusted else NAME)


async def test_the_guard_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AUTHORITY_REWRITE_GUARD, "false")
    async with telling() as server, calling(rewriting(*found_by_eds(server, "a.test"))) as seen:
        assert await seen() == NAME


@pytest.mark.parametrize(("hostname", "wanted"), [("a.test", "a.test"), ("", "option.test")])
async def test_the_channels_option_is_for_endpoints_without_a_hostname(
    hostname: str, wanted: str
) -> None:
    options = [("grpc.default_authority", "option.test")]
    async with telling() as server:
        snapshot = rewriting(*found_by_eds(server, hostname))
        async with calling(snapshot, options=options) as seen:
            assert await seen() == wanted


# TLS


async def refusal(seen: Callable[[], Any]) -> str:
    """Why a call is not sent."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await seen()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    return str(caught.value.details())


def trusting() -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(AUTHORITY.certificate_pem)


@pytest.mark.parametrize("hostname", ["a.test", "b.wild.test:443", "192.0.2.1:80"])
async def test_a_certificate_that_is_for_both_names_is_good(hostname: str) -> None:
    names = [NAME, "a.test", "*.wild.test", "192.0.2.1"]
    async with telling(AUTHORITY.issue(names)) as server:
        snapshot = rewriting(*found_by_eds(server, hostname))
        async with calling(snapshot, credentials=trusting()) as seen:
            assert [await seen(), await seen()] == [hostname] * 2


@pytest.mark.parametrize("hostname", ["other.test", "192.0.2.2"])
async def test_an_authority_that_the_certificate_is_not_for_is_never_sent(hostname: str) -> None:
    async with telling(AUTHORITY.issue([NAME, "a.test", "192.0.2.1"])) as server:
        snapshot = rewriting(*found_by_eds(server, hostname))
        async with calling(snapshot, credentials=trusting()) as seen:
            wanted = f"authority '{hostname}': TLS: certificate has other names than '{hostname}'"
            assert [await refusal(seen), await refusal(seen)] == [wanted] * 2
        async with calling(snapshot, is_trusted=False, credentials=trusting()) as seen:
            assert await seen() == NAME


async def test_a_target_name_override_is_not_for_the_rewritten_name() -> None:
    options = [("grpc.ssl_target_name_override", "a.test")]
    async with telling(AUTHORITY.issue(["a.test"])) as server:
        for hostname, is_good in (("a.test", True), ("other.test", False)):
            snapshot = rewriting(*found_by_eds(server, hostname))
            async with calling(snapshot, credentials=trusting(), options=options) as seen:
                if is_good:
                    assert await seen() == hostname
                else:
                    assert "certificate has other names" in await refusal(seen)


async def test_with_xds_credentials_the_clusters_matchers_decide_alone(tmp_path: Path) -> None:
    files = Files(tmp_path / "mesh")
    files.write_roots(AUTHORITY)
    files.write_identity(AUTHORITY)
    async with telling(AUTHORITY.issue(["spiffe://mesh.test/orders"])) as server:
        cluster, found = found_by_eds(server, "a.test")
        cluster = secured(cluster, {"exact": "spiffe://mesh.test/orders"})
        async with calling(
            rewriting(cluster, found),
            credentials=proxyless.xds_channel_credentials(proxyless.local_channel_credentials()),
            certificate_providers={"mesh": files.provider},
        ) as seen:
            assert await seen() == "a.test"


@pytest.mark.parametrize(
    "fields", [None, {}, {"auto_host_sni": True, "auto_sni_san_validation": True}]
)
async def test_with_xds_credentials_another_hostname_is_seen_soon(
    tmp_path: Path, fields: dict[str, Any] | None
) -> None:
    """Without TLS, with it, and where another hostname takes another connection."""
    files = Files(tmp_path / "mesh")
    files.write_roots(AUTHORITY)
    names = ["a.test", "b.test"]
    async with telling(None if fields is None else AUTHORITY.issue(names)) as server:

        def snapshot(hostname: str) -> Snapshot:
            cluster, found = found_by_eds(server, hostname)
            if fields is not None:
                cluster = secured(cluster, has_identity=False, **fields)
            return rewriting(cluster, found)

        async with ControlPlane(snapshot("a.test")) as plane:
            document = bootstrap_of(plane, is_trusted=True)
            document["certificate_providers"] = {"mesh": files.provider}
            credentials = proxyless.xds_channel_credentials(proxyless.local_channel_credentials())
            channel = proxyless.aio.secure_channel(TARGET, credentials, bootstrap=document)
            async with channel, asyncio.timeout(PATIENCE_S):
                call = channel.unary_unary(SEEN)
                assert await call(b"") == b"a.test"
                plane.set_snapshot(snapshot("b.test"))
                await plane.wait_for_ack(ENDPOINTS)
                while (seen := await call(b"")) != b"b.test":
                    assert seen == b"a.test"
