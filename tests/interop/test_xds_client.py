"""Our xDS client and a control plane on grpcio's server: streams, credentials, restarts."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from proxyless.assembly import default_policies, default_resolvers
from proxyless.base import OK, Status, StatusCode
from proxyless.channel import LoopStack, SubchannelPool
from proxyless.runtime import AsyncioNetwork, LoopClock, seeded_random
from proxyless.transport import Connector
from proxyless.xds.bootstrap import (
    Bootstrap,
    CallCreds,
    ChannelCreds,
    Node,
    ServerConfig,
    TlsConfig,
)
from proxyless.xds.client import Tools, XdsClient
from proxyless.xds.client.codec import ADS_PATH
from proxyless.xds.client.lrs_codec import LRS_PATH
from proxyless.xds.grpc_transport import GrpcTransports
from tests.certificates import CertificateAuthority
from tests.worlds.ports import free_port
from tests.worlds.transports import until
from tests.worlds.xds_clients import (
    DiscoveryRequest,
    DiscoveryResponse,
    LoadStatsRequest,
    LoadStatsResponse,
    TextType,
    WatchRecorder,
    grpcio_tasks,
    text,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from proxyless.protos import Proto

ON_BOTH_LOOPS = True


class ControlPlane(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers each new subscription with its resources, and records the requests."""

    def __init__(self, port: int, credentials: Any = None) -> None:  # noqa: ANN401 - grpc's
        self.port = port
        self._credentials = credentials
        self._server: grpc.aio.Server | None = None
        self.values: dict[str, str] = {}
        self.requests: list[Proto] = []
        self.reports: list[Proto] = []
        self.metadata: list[dict[str, str]] = []
        self.streams = 0

    async def start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self,))
        address = f"127.0.0.1:{self.port}"
        if self._credentials is None:
            self._server.add_insecure_port(address)
        else:
            self._server.add_secure_port(address, self._credentials)
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
            await until(lambda: not grpcio_tasks(), "grpcio's tasks to end")

    def service(self, details: Any) -> Any:  # noqa: ANN401
        method = {ADS_PATH: self._ads, LRS_PATH: self._lrs}[details.method]
        return grpc.stream_stream_rpc_method_handler(method)

    async def _ads(self, requests: Any, context: Any) -> None:  # noqa: ANN401
        self.streams += 1
        self.metadata.append({key: str(value) for key, value in context.invocation_metadata()})
        answered: list[str] = []
        async for serialized in requests:
            request = DiscoveryRequest.FromString(serialized)
            self.requests.append(request)
            if (names := list(request.resource_names)) != answered:
                answered = names
                await context.write(self._response(request.type_url, names))

    def _response(self, type_url: str, names: list[str]) -> bytes:
        response = DiscoveryResponse(type_url=type_url, version_info="1", nonce="n")
        for name in names:
            if name in self.values:
                response.resources.add(type_url=type_url, value=text(name, self.values[name]))
        serialized: bytes = response.SerializeToString()
        return serialized

    async def _lrs(self, requests: Any, context: Any) -> None:  # noqa: ANN401
        response = LoadStatsResponse(send_all_clusters=True)
        response.load_reporting_interval.seconds = 1
        await context.write(response.SerializeToString())
        async for serialized in requests:
            self.reports.append(LoadStatsRequest.FromString(serialized))


@asynccontextmanager
async def serving(credentials: Any = None) -> AsyncIterator[ControlPlane]:  # noqa: ANN401
    control_plane = ControlPlane(free_port(), credentials)
    await control_plane.start()
    try:
        yield control_plane
    finally:
        await control_plane.stop()


@asynccontextmanager
async def client_of(server: ServerConfig) -> AsyncIterator[XdsClient]:
    clock, random = LoopClock(asyncio.get_running_loop()), seeded_random(1)
    connector = Connector(clock=clock)
    async with SubchannelPool(connector, clock=clock, random=random) as pool:
        stack = LoopStack(clock, random, AsyncioNetwork(), connector.deadlines, pool)
        transports = GrpcTransports(
            stack, policies=default_policies(), resolvers=default_resolvers()
        )
        bootstrap = Bootstrap(servers=(server,), node=Node("edge-7"))
        client = XdsClient(bootstrap, transports, Tools(clock, random))
        try:
            yield client
        finally:
            client.close()


def insecure(port: int) -> ServerConfig:
    return ServerConfig(f"dns:///localhost:{port}", ChannelCreds("insecure"))


async def test_resources_come_and_survive_a_restart_of_the_control_plane() -> None:
    listeners, watcher = TextType("Listener", is_full_state=True), WatchRecorder()
    async with serving() as control_plane, client_of(insecure(control_plane.port)) as client:
        control_plane.values["x"] = "v1"
        client.watch(listeners, "x", watcher)
        await until(lambda: watcher.received == ["v1"], "the first version")
        await until(lambda: len(control_plane.requests) == 2, "the ACK")
        assert control_plane.requests[0].node.id == "edge-7"
        assert control_plane.requests[1].response_nonce == "n"
        await control_plane.stop()
        control_plane.values["x"] = "v2"
        await control_plane.start()
        await until(lambda: "v2" in watcher.received, "the second version")
        # No watcher was notified of a loss meanwhile.
        assert not any(isinstance(each, Status) for each in watcher.received)


async def test_an_unreachable_control_plane_is_named_with_the_cause() -> None:
    port, watcher = free_port(), WatchRecorder()
    async with client_of(insecure(port)) as client:
        client.watch(TextType(), "x", watcher)
        await until(lambda: watcher.received, "the outage")
        status = watcher.received[0]
        assert status.code is StatusCode.UNAVAILABLE
        assert f'xds server "dns:///localhost:{port}"' in status.details
        assert "refused" in status.details
        assert status.details.endswith('(node id "edge-7")')


async def test_load_is_reported_while_a_counter_is_held() -> None:
    async with serving() as control_plane, client_of(insecure(control_plane.port)) as client:
        load = client.load_stats(client.bootstrap.servers[0], "c", "e")
        load.locality(("r", "z", "s")).on_start()
        await until(lambda: len(control_plane.reports) == 2, "a report")
        assert control_plane.reports[0].node.id == "edge-7"
        (stats,) = control_plane.reports[1].cluster_stats
        assert stats.upstream_locality_stats[0].total_issued_requests == 1
        load.release()


def write_files(folder: Path, authority: CertificateAuthority) -> TlsConfig:
    certificate, key = authority.issue(["client"], client=True)
    (folder / "ca.pem").write_bytes(authority.certificate_pem)
    (folder / "cert.pem").write_bytes(certificate)
    (folder / "key.pem").write_bytes(key)
    return tls_config(folder)


def tls_config(folder: Path) -> TlsConfig:
    ca, certificate, key = (str(folder / f"{name}.pem") for name in ("ca", "cert", "key"))
    return TlsConfig(ca, certificate, key, refresh_interval_s=1.0)


def server_credentials(authority: CertificateAuthority) -> Any:  # noqa: ANN401
    certificate, key = authority.issue(["localhost"])
    return grpc.ssl_server_credentials(
        [(key, certificate)], authority.certificate_pem, require_client_auth=True
    )


async def test_certificates_and_tokens_are_read_from_files(tmp_path: Path) -> None:
    authority, watcher = CertificateAuthority(), WatchRecorder()
    tls = write_files(tmp_path, authority)
    (tmp_path / "token").write_text("ey.one\n")
    tokens = (CallCreds("jwt_token_file", str(tmp_path / "token")),)
    async with serving(server_credentials(authority)) as control_plane:
        control_plane.values["x"] = "v1"
        uri = f"dns:///localhost:{control_plane.port}"
        server = ServerConfig(uri, ChannelCreds("tls", tls), tokens)
        async with client_of(server) as client:
            client.watch(TextType(), "x", watcher)
            await until(lambda: watcher.received == ["v1"], "the resource")
            assert control_plane.metadata[0]["authorization"] == "Bearer ey.one"
            # The next stream uses the renewed certificates.
            (tmp_path / "token").write_text("ey.two")
            await control_plane.stop()
            await control_plane.start()
            await until(lambda: len(control_plane.metadata) == 2, "another stream")
            assert control_plane.metadata[1]["authorization"] == "Bearer ey.two"


async def test_certificates_that_come_late_or_are_replaced_are_used(tmp_path: Path) -> None:
    wrong, right, watcher = CertificateAuthority(), CertificateAuthority(), WatchRecorder()
    async with serving(server_credentials(right)) as control_plane:
        control_plane.values["x"] = "v1"
        tls = tls_config(tmp_path)
        server = ServerConfig(f"dns:///localhost:{control_plane.port}", ChannelCreds("tls", tls))
        async with client_of(server) as client:
            client.watch(TextType(), "x", watcher)
            await until(lambda: watcher.received, "the error")
            assert "ca.pem' cannot be read: No such file" in watcher.received[0].details
            write_files(tmp_path, wrong)
            await until(lambda: "certificate refused" in str(watcher.received[-1]), "the refusal")
            write_files(tmp_path, right)
            await until(lambda: watcher.received[-1] == "v1", "the resource")


async def test_a_token_is_never_shown_on_a_plaintext_channel(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("ey.one")
    tokens, watcher = (CallCreds("jwt_token_file", str(tmp_path / "token")),), WatchRecorder()
    async with serving() as control_plane:
        uri = f"dns:///localhost:{control_plane.port}"
        async with client_of(ServerConfig(uri, ChannelCreds("insecure"), tokens)) as client:
            client.watch(TextType(), "x", watcher)
            await until(lambda: watcher.received, "the refusal")
            assert "UNAUTHENTICATED" in watcher.received[0].details
            assert control_plane.streams == 0


def is_above(control_plane: ControlPlane, streams: int) -> bool:
    return control_plane.streams > streams


def has_requests(control_plane: ControlPlane, count: int) -> bool:
    return len(control_plane.requests) >= count


async def test_watcher_is_not_notified_when_streams_break() -> None:
    listeners, watcher = TextType("Listener", is_full_state=True), WatchRecorder()
    async with serving() as control_plane, client_of(insecure(control_plane.port)) as client:
        control_plane.values["x"] = "v1"
        client.watch(listeners, "x", watcher)
        await until(lambda: watcher.received == ["v1"], "the resource")
        await until(lambda: len(control_plane.requests) >= 2, "the ACK")
        for restarts in range(1, 4):
            streams, requests = control_plane.streams, len(control_plane.requests)
            await control_plane.stop()
            await control_plane.start()
            await until(partial(is_above, control_plane, streams), f"stream {restarts}")
            # The request for it and the ACK, before the next restart.
            await until(
                partial(has_requests, control_plane, requests + 2), f"the ACK on stream {restarts}"
            )
        resources = [each for each in watcher.received if not isinstance(each, tuple)]
        assert resources == ["v1"]
        assert not watcher.received[1:] or watcher.received[-1] == ("ambient", OK)
