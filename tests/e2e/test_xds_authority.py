"""Authority rewriting (A81) with grpcio's servers, on real sockets.

The servers record the authority of each call. tests/spec/test_a81_authority.py has the cases in
which it is not rewritten.
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
from tests.worlds.mtls import ProviderFiles, secured
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

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
            call = channel.unary_unary(AUTHORITY_METHOD)

            async def seen() -> str:
                return bytes(await call(b"", timeout=PATIENCE_S)).decode()

            yield seen


@pytest.mark.spec("A81-01", "A81-03")
@pytest.mark.parametrize(("is_trusted", "wanted"), [(True, "a.test:8443"), (False, NAME)])
async def test_the_hostname_of_the_endpoint_if_the_server_is_trusted(
    is_trusted: bool, wanted: str
) -> None:
    async with authority_echo_server() as server:
        snapshot = rewriting_snapshot(*eds_resources(server, "a.test:8443"))
        async with calling(snapshot, is_trusted=is_trusted) as seen:
            assert [await seen(), await seen()] == [wanted] * 2


@pytest.mark.spec("A81-05")
@pytest.mark.parametrize("is_trusted", [True, False])
async def test_the_name_of_a_logical_dns_cluster(is_trusted: bool) -> None:
    async with authority_echo_server() as server:
        snapshot = rewriting_snapshot(*dns_resources(server))
        async with calling(snapshot, is_trusted=is_trusted) as seen:
            assert await seen() == (f"localhost:{server.port}" if is_trusted else NAME)


@pytest.mark.spec("A81-02")
async def test_authority_is_not_rewritten_when_the_guard_is_false(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(AUTHORITY_REWRITE_GUARD, "false")
    async with (
        authority_echo_server() as server,
        calling(rewriting_snapshot(*eds_resources(server, "a.test"))) as seen,
    ):
        assert await seen() == NAME


@pytest.mark.spec("A81-04", "A81-07")
@pytest.mark.parametrize(("hostname", "wanted"), [("a.test", "a.test"), ("", "option.test")])
async def test_the_channels_option_is_for_endpoints_without_a_hostname(
    hostname: str, wanted: str
) -> None:
    options = [("grpc.default_authority", "option.test")]
    async with authority_echo_server() as server:
        snapshot = rewriting_snapshot(*eds_resources(server, hostname))
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
async def test_certificate_for_both_names_is_accepted(hostname: str) -> None:
    names = [NAME, "a.test", "*.wild.test", "192.0.2.1"]
    async with authority_echo_server(AUTHORITY.issue(names)) as server:
        snapshot = rewriting_snapshot(*eds_resources(server, hostname))
        async with calling(snapshot, credentials=trusting()) as seen:
            assert [await seen(), await seen()] == [hostname] * 2


@pytest.mark.spec("A81-09")
@pytest.mark.parametrize("hostname", ["other.test", "192.0.2.2"])
async def test_an_authority_that_the_certificate_is_not_for_is_never_sent(hostname: str) -> None:
    async with authority_echo_server(AUTHORITY.issue([NAME, "a.test", "192.0.2.1"])) as server:
        snapshot = rewriting_snapshot(*eds_resources(server, hostname))
        async with calling(snapshot, credentials=trusting()) as seen:
            wanted = f"authority '{hostname}': TLS: certificate has other names than '{hostname}'"
            assert [await refusal(seen), await refusal(seen)] == [wanted] * 2
        async with calling(snapshot, is_trusted=False, credentials=trusting()) as seen:
            assert await seen() == NAME


@pytest.mark.spec("A81-15")
async def test_a_target_name_override_is_not_for_the_rewritten_name() -> None:
    options = [("grpc.ssl_target_name_override", "a.test")]
    async with authority_echo_server(AUTHORITY.issue(["a.test"])) as server:
        for hostname, is_good in (("a.test", True), ("other.test", False)):
            snapshot = rewriting_snapshot(*eds_resources(server, hostname))
            async with calling(snapshot, credentials=trusting(), options=options) as seen:
                if is_good:
                    assert await seen() == hostname
                else:
                    assert "certificate has other names" in await refusal(seen)


@pytest.mark.spec("A81-10")
async def test_only_san_matchers_are_checked_with_xds_credentials(tmp_path: Path) -> None:
    files = ProviderFiles(tmp_path / "mesh")
    files.write_roots(AUTHORITY)
    files.write_identity(AUTHORITY)
    async with authority_echo_server(AUTHORITY.issue(["spiffe://mesh.test/orders"])) as server:
        cluster, found = eds_resources(server, "a.test")
        cluster = secured(cluster, {"exact": "spiffe://mesh.test/orders"})
        async with calling(
            rewriting_snapshot(cluster, found),
            credentials=proxyless.xds_channel_credentials(proxyless.local_channel_credentials()),
            certificate_providers={"mesh": files.provider},
        ) as seen:
            assert await seen() == "a.test"


@pytest.mark.parametrize(
    "fields", [None, {}, {"auto_host_sni": True, "auto_sni_san_validation": True}]
)
async def test_changed_hostname_is_sent_with_xds_credentials(
    tmp_path: Path, fields: dict[str, Any] | None
) -> None:
    """Without TLS, with it, and where a changed hostname needs a new connection."""
    files = ProviderFiles(tmp_path / "mesh")
    files.write_roots(AUTHORITY)
    names = ["a.test", "b.test"]
    async with authority_echo_server(None if fields is None else AUTHORITY.issue(names)) as server:

        def snapshot(hostname: str) -> Snapshot:
            cluster, found = eds_resources(server, hostname)
            if fields is not None:
                cluster = secured(cluster, has_identity=False, **fields)
            return rewriting_snapshot(cluster, found)

        async with ControlPlane(snapshot("a.test")) as plane:
            document = bootstrap_of(plane, is_trusted=True)
            document["certificate_providers"] = {"mesh": files.provider}
            credentials = proxyless.xds_channel_credentials(proxyless.local_channel_credentials())
            channel = proxyless.aio.secure_channel(TARGET, credentials, bootstrap=document)
            async with channel, asyncio.timeout(PATIENCE_S):
                call = channel.unary_unary(AUTHORITY_METHOD)
                assert await call(b"") == b"a.test"
                plane.set_snapshot(snapshot("b.test"))
                await plane.wait_for_ack(ENDPOINTS)
                while (seen := await call(b"")) != b"b.test":
                    assert seen == b"a.test"
