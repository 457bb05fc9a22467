"""SNI and root certificates of TLS handshakes, with our own server, on real sockets.

The server records the SNI of each handshake, and may choose its certificate by it.
"""

from __future__ import annotations

from base64 import b64encode
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from proxyless.base import IpAddress
from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    ControlPlane,
    Snapshot,
    dns_cluster,
    eds_cluster,
    endpoints,
    keep_sessions,
    lb_endpoint,
    listener,
    route,
    session_filter,
)
from proxyless.transport import Server, ServerCall
from tests.certificates import CertificateAuthority, server_context
from tests.worlds.grpcio_peers import WHERE
from tests.worlds.mtls import ProviderFiles, joined, refusal, secured
from tests.worlds.transports import until

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from proxyless.controlplane import Locality
    from proxyless.protos import Proto

ON_BOTH_LOOPS = True

AUTHORITY = CertificateAuthority()


class NamedServer:
    """A server with a certificate for each name, and one for no SNI or another one."""

    def __init__(self, default: str, *others: str) -> None:
        # The SNI of each handshake; None: without SNI.
        self.snis: list[str | None] = []
        self.port = 0
        self._server = Server({WHERE: self._answer})
        self._context = server_context(*AUTHORITY.issue([default]))
        self._others = {name: server_context(*AUTHORITY.issue([name])) for name in others}
        self._context.sni_callback = self._choose

    def _choose(self, socket: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        self.snis.append(name)
        if name in self._others:
            socket.context = self._others[name]

    async def _answer(self, call: ServerCall) -> None:
        await call.read()
        call.send_head()
        await call.write(b"here")

    async def start(self) -> None:
        address = await self._server.listen(IpAddress("127.0.0.1", 0), tls=self._context)
        assert isinstance(address, IpAddress)
        self.port = address.port

    async def stop(self) -> None:
        await self._server.close()


@asynccontextmanager
async def serving(default: str, *others: str) -> AsyncIterator[NamedServer]:
    server = NamedServer(default, *others)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
def files(tmp_path: Path) -> ProviderFiles:
    made = ProviderFiles(tmp_path / "mesh")
    made.write_roots(AUTHORITY)
    made.write_identity(AUTHORITY)
    return made


def found_by_eds(server: NamedServer, hostname: str = "", **fields: Any) -> Snapshot:  # noqa: ANN401
    endpoint = lb_endpoint(f"127.0.0.1:{server.port}", hostname=hostname)
    return mesh(
        secured(eds_cluster("orders"), has_identity=False, **fields),
        endpoints("orders", [endpoint]),
    )


def mesh(*resources: Proto) -> Snapshot:
    return Snapshot.of([listener("api", [route(cluster="orders")]), *resources])


@pytest.mark.spec(
    "A101-01",
    "A101-03",
    "A101-04",
    "A101-11",
    reason="one table over the fields, with the SNI that the server saw",
)
@pytest.mark.parametrize(
    ("fields", "hostname", "sni"),
    [
        ({}, "host.example", None),
        ({"sni": "sni.example"}, "host.example", "sni.example"),
        ({"sni": "sni.example", "auto_host_sni": True}, "host.example", "host.example"),
        ({"sni": "sni.example", "auto_host_sni": True}, "host.example:443", "host.example"),
        ({"sni": "sni.example", "auto_host_sni": True}, "", "sni.example"),
        ({"auto_host_sni": True}, "", None),
        # Addresses are not names.
        ({"auto_host_sni": True}, "192.0.2.1:443", None),
        ({"sni": "2001:db8::1"}, "", None),
    ],
)
async def test_sni_is_that_of_the_cluster(
    files: ProviderFiles, fields: Mapping[str, Any], hostname: str, sni: str | None
) -> None:
    async with serving("any.example") as server:
        snapshot = found_by_eds(server, hostname, **fields)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            assert await where() == "here"
        assert set(server.snis) == {sni}


@pytest.mark.spec("A101-02")
async def test_sni_of_a_logical_dns_cluster_is_its_name_without_the_port(
    files: ProviderFiles,
) -> None:
    async with serving("localhost") as server:
        cluster = dns_cluster("orders", "localhost", server.port)
        fields: dict[str, Any] = {"auto_host_sni": True, "auto_sni_san_validation": True}
        snapshot = mesh(secured(cluster, has_identity=False, **fields))
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            assert await where() == "here"
        assert set(server.snis) == {"localhost"}


@pytest.mark.spec("A101-05")
@pytest.mark.parametrize(
    ("fields", "hostname"),
    [
        ({"sni": "right.example"}, ""),
        ({"sni": "wrong.example", "auto_host_sni": True}, "right.example:443"),
    ],
)
async def test_server_that_chooses_its_certificate_by_sni_is_accepted(
    files: ProviderFiles, fields: Mapping[str, Any], hostname: str
) -> None:
    async with serving("other.example", "right.example") as server:
        snapshot = found_by_eds(server, hostname, auto_sni_san_validation=True, **fields)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            assert await where() == "here"
        assert set(server.snis) == {"right.example"}


@pytest.mark.spec("A101-05")
async def test_server_without_the_sni_in_its_certificate_is_rejected(
    files: ProviderFiles,
) -> None:
    async with serving("other.example") as server:
        fields = {"auto_host_sni": True, "auto_sni_san_validation": True}
        snapshot = found_by_eds(server, "right.example", **fields)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            assert (
                "certificate check failure: server is DNS 'other.example', "
                "wanted DNS 'right.example'"
            ) in await refusal(where)
        assert set(server.snis) == {"right.example"}


@pytest.mark.spec("A101-06", "A101-07")
@pytest.mark.parametrize(
    ("hostname", "is_accepted"), [("right.example", True), ("192.0.2.1", False), ("", False)]
)
async def test_sni_replaces_the_matchers_only_if_it_was_sent(
    files: ProviderFiles, hostname: str, is_accepted: bool
) -> None:
    async with serving("right.example") as server:
        cluster = secured(
            eds_cluster("orders"),
            {"exact": "matched.example"},
            has_identity=False,
            auto_host_sni=True,
            auto_sni_san_validation=True,
        )
        endpoint = lb_endpoint(f"127.0.0.1:{server.port}", hostname=hostname)
        snapshot = mesh(cluster, endpoints("orders", [endpoint]))
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            if is_accepted:
                assert await where() == "here"
            else:
                assert "wanted exact 'matched.example'" in await refusal(where)


@pytest.mark.spec("A101-10")
async def test_authority_is_the_sni_when_there_is_no_other_and_the_switch_is_set(
    files: ProviderFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPC_USE_CHANNEL_AUTHORITY_IF_NO_SNI_APPLICABLE", "true")
    async with serving("any.example") as server:
        snapshot = found_by_eds(server, auto_sni_san_validation=True)
        async with ControlPlane(snapshot) as plane, joined(plane, mesh=files) as where:
            assert await where() == "here"
        assert set(server.snis) == {"api"}


# The system's roots


@pytest.mark.spec("A101-12")
async def test_changed_hostname_needs_a_new_connection_only_with_auto_host_sni(
    files: ProviderFiles,
) -> None:
    async with (
        serving("other.test", "a.test", "b.test", "c.test") as server,
        ControlPlane(found_by_eds(server, "a.test")) as plane,
        joined(plane, mesh=files) as where,
    ):

        async def change(snapshot: Snapshot, type_url: str) -> None:
            plane.set_snapshot(snapshot)
            await plane.wait_for_ack(type_url)
            assert await where() == "here"

        assert await where() == "here"
        await change(found_by_eds(server, "b.test"), ENDPOINTS)
        assert server.snis == [None]
        checked = {"auto_host_sni": True, "auto_sni_san_validation": True}
        # The hostname counts as it is now, not as it was when the connection was made.
        await change(found_by_eds(server, "b.test", **checked), CLUSTER)
        await until(lambda: server.snis == [None, "b.test"], "a connection by the hostname")
        await change(found_by_eds(server, "c.test", **checked), ENDPOINTS)
        await until(lambda: server.snis == [None, "b.test", "c.test"], "one by the next one")
        assert await where() == "here"


def with_session_host(near: NamedServer, far: NamedServer, hostname: str) -> Snapshot:
    """Sessions may stay on the far server, of this name, in the second priority."""
    places: dict[int | Locality, list[Proto]] = {
        0: [lb_endpoint(f"127.0.0.1:{near.port}", hostname="near.test")],
        1: [lb_endpoint(f"127.0.0.1:{far.port}", hostname=hostname)],
    }
    tls: dict[str, Any] = {"auto_host_sni": True, "auto_sni_san_validation": True}
    return Snapshot.of(
        [
            listener("api", [route(cluster="orders")], filters=[session_filter("session")]),
            secured(keep_sessions(eds_cluster("orders")), has_identity=False, **tls),
            endpoints("orders", places),
        ]
    )


@pytest.mark.spec("A101-12", "A75-66")
async def test_session_host_gets_another_connection_when_its_hostname_changes(
    files: ProviderFiles,
) -> None:
    async with (
        serving("near.test") as near,
        serving("other.test", "old.test", "new.test") as far,
        ControlPlane(with_session_host(near, far, "old.test")) as plane,
        joined(plane, mesh=files) as where,
    ):
        place = f"127.0.0.1:{far.port};orders"
        session = (("cookie", f"session={b64encode(place.encode()).decode()}"),)
        assert await where(metadata=session) == "here"
        assert far.snis == ["old.test"]
        plane.set_snapshot(with_session_host(near, far, "new.test"))
        await plane.wait_for_ack(ENDPOINTS)
        await until(lambda: far.snis == ["old.test", "new.test"], "a connection by the new name")
        assert await where(metadata=session) == "here"
        assert far.snis == ["old.test", "new.test"]


def by_system_roots(server: NamedServer) -> Snapshot:
    """With an identity: each test has its own, so none gets the context of another."""
    fields: dict[str, Any] = {"sni": "right.example", "auto_sni_san_validation": True}
    cluster = secured(eds_cluster("orders"), has_system_roots=True, **fields)
    return mesh(cluster, endpoints("orders", [f"127.0.0.1:{server.port}"]))


@pytest.fixture
def system_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which OpenSSL looks for them; it does not exist yet."""
    monkeypatch.delenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", raising=False)
    file = tmp_path / "system.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    return file


def write_roots(file: Path, authority: CertificateAuthority) -> None:
    file.write_bytes(authority.certificate_pem)


@pytest.mark.spec("A82-01")
@pytest.mark.parametrize("is_found_by_grpc", [False, True])
async def test_system_roots_are_used_if_the_cluster_has_them(
    files: ProviderFiles,
    system_roots: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_found_by_grpc: bool,
) -> None:
    """The roots of the provider differ, and are not used."""
    if is_found_by_grpc:
        monkeypatch.delenv("SSL_CERT_FILE")
        monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(system_roots))
    write_roots(system_roots, AUTHORITY)
    files.write_roots(CertificateAuthority("another"))
    async with (
        serving("right.example") as server,
        ControlPlane(by_system_roots(server)) as plane,
        joined(plane, mesh=files) as where,
    ):
        assert await where() == "here"
        assert not plane.nacks


@pytest.mark.spec("A82-01")
async def test_server_is_rejected_when_the_system_roots_do_not_verify_it(
    files: ProviderFiles, system_roots: Path
) -> None:
    """Not even if those of the provider would."""
    write_roots(system_roots, CertificateAuthority("another"))
    async with (
        serving("right.example") as server,
        ControlPlane(by_system_roots(server)) as plane,
        joined(plane, mesh=files) as where,
    ):
        assert "TLS: certificate refused: unable to get" in await refusal(where)
