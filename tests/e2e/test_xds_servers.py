"""Connections to control planes: authorities, names, TLS, tokens, on real sockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

import proxyless
from proxyless.controlplane import (
    ControlPlane,
    ServiceOptions,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
    simple_mesh,
)
from tests.certificates import CertificateAuthority
from tests.worlds.grpcio_peers import NamedBackend, backends

if TYPE_CHECKING:
    from pathlib import Path

WHERE = "/test.Mesh/Where"
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"


async def ask(target: str, bootstrap: dict[str, Any]) -> str:
    """The name of the backend, or the error."""
    async with proxyless.aio.insecure_channel(target, bootstrap=bootstrap) as channel:
        try:
            return bytes(await channel.unary_unary(WHERE)(b"", timeout=20.0)).decode()
        except grpc.aio.AioRpcError as error:
            state = channel.get_state()
            return f"{error.code().name} {state.name} {error.details()}"


def mesh(name: str, backend: NamedBackend, cluster: str, service: str) -> Snapshot:
    return Snapshot.of(
        [
            listener(name, [route(cluster=cluster)]),
            eds_cluster(cluster, eds_service_name=service),
            endpoints(service, [backend.address]),
        ]
    )


@pytest.mark.spec(
    "A47-01",
    "A47-03",
    "A47-04",
    "A47-05",
    "A47-07",
    reason="one mesh with two control planes: each name leads to its server only if all rules hold",
)
async def test_authorities_have_servers_and_names_of_their_own() -> None:
    ours_prefix = "xdstp://mesh.example/envoy.config.listener.v3.Listener/local"
    theirs_prefix = "xdstp://far.example/envoy.config"
    async with (
        backends("near", "far") as (near, far),
        # Percent-encoded, because the template makes an xdstp name.
        ControlPlane(mesh(f"{ours_prefix}/api%5B1%5D", near, "near", "near-service")) as ours,
        ControlPlane(
            mesh(
                f"{theirs_prefix}.listener.v3.Listener/api?env=prod",
                far,
                f"{theirs_prefix}.cluster.v3.Cluster/far",
                f"{theirs_prefix}.endpoint.v3.ClusterLoadAssignment/far",
            )
        ) as theirs,
    ):
        bootstrap = ours.bootstrap()
        bootstrap["client_default_listener_resource_name_template"] = f"{ours_prefix}/%s"
        template = f"{theirs_prefix}.listener.v3.Listener/%s?env=prod"
        bootstrap["authorities"] = {
            # Without servers of its own, those of the top level.
            "mesh.example": {},
            "far.example": {
                "xds_servers": theirs.bootstrap()["xds_servers"],
                "client_listener_resource_name_template": template,
            },
        }
        assert await ask("xds:///api%5B1%5D", bootstrap) == "near"
        assert await ask("xds://far.example/api", bootstrap) == "far"
        unknown = await ask("xds://unknown.example/api", bootstrap)
        assert unknown.startswith("UNAVAILABLE TRANSIENT_FAILURE")
        assert "unknown.example" in unknown


def write(directory: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (directory / name).write_bytes(content)


@pytest.mark.spec("A65-01", "A65-02")
async def test_tls_to_the_control_plane_with_files_that_change_and_a_token(
    tmp_path: Path,
) -> None:
    authority = CertificateAuthority()
    chain, key = authority.issue(["127.0.0.1"])
    client_chain, client_key = authority.issue(["client.example"], client=True)
    stranger = CertificateAuthority("a stranger")
    credentials = grpc.ssl_server_credentials(
        [(key, chain)], root_certificates=authority.certificate_pem, require_client_auth=True
    )
    config = {
        "ca_certificate_file": str(tmp_path / "ca.pem"),
        "certificate_file": str(tmp_path / "cert.pem"),
        "private_key_file": str(tmp_path / "key.pem"),
        "refresh_interval": "1s",
    }
    async with backends("a") as (backend,):
        snapshot = simple_mesh("api", {"a": [backend.address]})
        options = ServiceOptions(credentials=credentials)
        async with ControlPlane(snapshot, options=options) as control_plane:
            bootstrap = control_plane.bootstrap()
            [server] = bootstrap["xds_servers"]
            server["channel_creds"] = [{"type": "tls", "config": config}]
            # The client's roots do not match the server: it cannot be reached.
            write(tmp_path, {"ca.pem": authority.certificate_pem})
            wrong_chain, wrong_key = stranger.issue(["client.example"], client=True)
            write(tmp_path, {"cert.pem": wrong_chain, "key.pem": wrong_key})
            refused = await ask("xds:///api", bootstrap)
            assert refused.startswith("UNAVAILABLE TRANSIENT_FAILURE")
            # A channel that waits uses the right ones without being created again.
            async with proxyless.aio.insecure_channel("xds:///api", bootstrap=bootstrap) as channel:
                call = channel.unary_unary(WHERE)(b"", timeout=40.0, wait_for_ready=True)
                waiting = asyncio.ensure_future(call)
                await asyncio.sleep(0.1)
                write(tmp_path, {"cert.pem": client_chain, "key.pem": client_key})
                assert bytes(await waiting) == b"a"


@pytest.mark.spec("A97-01", "A97-02")
async def test_token_goes_to_a_control_plane_over_tls_only(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    chain, key = authority.issue(["127.0.0.1"])
    write(tmp_path, {"ca.pem": authority.certificate_pem, "token": _token()})
    seen: list[dict[str, str]] = []
    arrived = asyncio.Event()

    async def on_stream(requests: Any, context: Any) -> Any:  # noqa: ANN401
        seen.append(dict(context.invocation_metadata()))
        arrived.set()
        async for _ in requests:
            yield b""

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:  # noqa: ANN401
            return (
                grpc.stream_stream_rpc_method_handler(on_stream) if details.method == ADS else None
            )

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    secure = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    plain = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    tls = {"type": "tls", "config": {"ca_certificate_file": str(tmp_path / "ca.pem")}}
    token = {"type": "jwt_token_file", "config": {"jwt_token_file": str(tmp_path / "token")}}

    def bootstrap(port: int, creds: dict[str, Any]) -> dict[str, Any]:
        entry = {
            "server_uri": f"127.0.0.1:{port}",
            "channel_creds": [creds],
            "call_creds": [token],
            "server_features": ["xds_v3"],
        }
        return {"xds_servers": [entry], "node": {"id": "n"}}

    for port, creds in ((secure, tls), (plain, {"type": "insecure"})):
        target = bootstrap(port, creds)
        async with proxyless.aio.insecure_channel("xds:///api", bootstrap=target) as channel:
            call = channel.unary_unary(WHERE)(b"", timeout=2.0)
            if port == secure:
                await asyncio.wait_for(arrived.wait(), 20.0)
                call.cancel()
            else:
                with pytest.raises(grpc.aio.AioRpcError):
                    await call
    await server.stop(None)
    assert [metadata.get("authorization") for metadata in seen] == [f"Bearer {_token().decode()}"]


def _token() -> bytes:
    """A token without signature that expires in 2100: {"exp": 4102444800}."""
    return b"eyJhbGciOiJub25lIn0.eyJleHAiOjQxMDI0NDQ4MDB9.x"
