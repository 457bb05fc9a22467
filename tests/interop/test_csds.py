"""CSDS of our clients beside grpcio's, and `proxyless status` with both."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from concurrent import futures
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

import proxyless
from proxyless import admin
from proxyless.controlplane import (
    CLUSTER,
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
)
from proxyless.observe import CSDS_SERVICE
from proxyless.protos import Proto, message_class
from tests.worlds.admin_servers import admin_port
from tests.worlds.csds_processes import TARGET, grpcio_admin, mesh
from tests.worlds.grpcio_peers import WHERE
from tests.worlds.transports import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

REQUEST = message_class("envoy.service.status.v3.ClientStatusRequest")
RESPONSE = message_class("envoy.service.status.v3.ClientStatusResponse")


def bad(snapshot: Snapshot) -> Snapshot:
    """The same mesh with a cluster that every gRPC client refuses."""
    return snapshot.with_(eds_cluster("pool", lb_policy="MAGLEV"), endpoints("pool", []))


async def fetch(address: str, request: Proto = REQUEST()) -> Proto:  # noqa: B008
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(
            f"/{CSDS_SERVICE}/FetchClientStatus",
            request_serializer=REQUEST.SerializeToString,
            response_deserializer=RESPONSE.FromString,
        )
        return await call(request, timeout=PATIENCE_S)


def shape(response: Proto) -> dict[str, tuple[int, str, frozenset[str]]]:
    """Status, version and the fields that are set, by type and name: what has to be alike."""
    (config,) = response.config
    return {
        f"{entry.type_url} {entry.name}": (
            entry.client_status,
            entry.version_info,
            frozenset(field.name for field, _ in entry.ListFields()),
        )
        for entry in config.generic_xds_configs
    }


async def our_answer(control_plane: ControlPlane, address: str) -> Proto:
    bootstrap = control_plane.bootstrap("me")
    async with proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
        assert await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S) == b"a"
        return await fetch(address)


# The tests


@pytest.mark.spec("A40-04", "A40-07")
async def test_status_of_proxyless_has_the_fields_of_grpcios() -> None:
    async with admin_port() as our_port, mesh() as control_plane:
        ours = await our_answer(control_plane, our_port)
        async with grpcio_admin(control_plane.bootstrap("me")) as address:
            theirs = await fetch(address)
    assert len(shape(ours)) == 4
    assert shape(ours) == shape(theirs)
    # Both are the target; grpcio spells it as a URI without an authority.
    assert ours.config[0].client_scope == TARGET
    assert theirs.config[0].client_scope == "xds:/api"
    assert ours.config[0].node.id == theirs.config[0].node.id == "me"
    for mine, other in zip(
        sorted(ours.config[0].generic_xds_configs, key=lambda entry: str(entry.type_url)),
        sorted(theirs.config[0].generic_xds_configs, key=lambda entry: str(entry.type_url)),
        strict=True,
    ):
        assert mine.xds_config == other.xds_config
        assert abs(mine.last_updated.ToSeconds() - other.last_updated.ToSeconds()) < PATIENCE_S


@pytest.mark.spec("A40-05")
async def test_a_refused_cluster_has_the_shape_of_grpcios() -> None:
    async with admin_port() as our_port, mesh() as control_plane:
        ours, theirs = control_plane.bootstrap("ours"), control_plane.bootstrap("theirs")
        async with (
            proxyless.aio.insecure_channel(TARGET, bootstrap=ours) as channel,
            grpcio_admin(theirs) as their_port,
        ):
            await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
            control_plane.set_snapshot(bad(control_plane.snapshot))
            await until(
                lambda: {nack.node_id for nack in control_plane.nacks} == {"ours", "theirs"},
                "both to refuse",
            )
            answers = [await fetch(our_port), await fetch(their_port)]
    assert shape(answers[0]) == shape(answers[1])
    mine, other = (
        next(
            entry.error_state
            for entry in answer.config[0].generic_xds_configs
            if entry.type_url == CLUSTER
        )
        for answer in answers
    )
    assert {field.name for field, _ in mine.ListFields()} == {
        field.name for field, _ in other.ListFields()
    }
    assert mine.version_info == other.version_info == "2"


@pytest.mark.spec("A40-08", "A40-11", "A40-12")
async def test_clients_of_other_loops_are_shown_and_a_stream_is_answered_each_time() -> None:
    async with admin_port() as address, mesh() as control_plane:
        bootstrap = control_plane.bootstrap("me")

        def call_blocking(channel: Any) -> bytes:  # noqa: ANN401
            reply: bytes = channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
            return reply

        with proxyless.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
            assert await asyncio.to_thread(call_blocking, channel) == b"a"
            async with grpc.aio.insecure_channel(address) as asking:
                stream = asking.stream_stream(
                    f"/{CSDS_SERVICE}/StreamClientStatus",
                    request_serializer=REQUEST.SerializeToString,
                    response_deserializer=RESPONSE.FromString,
                )
                requests = [REQUEST(), REQUEST(exclude_resource_contents=True)]
                full, brief = [each async for each in stream(iter(requests), timeout=PATIENCE_S)]
    assert len(shape(full)) == len(shape(brief)) == 4
    assert all("xds_config" in fields for _, _, fields in shape(full).values())
    assert not any("xds_config" in fields for _, _, fields in shape(brief).values())


async def test_blocking_server_serves_csds() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    admin.add_servicers(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        async with mesh() as control_plane:
            bootstrap = control_plane.bootstrap("me")
            async with proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
                assert await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S) == b"a"
                response = await fetch(f"127.0.0.1:{port}")
                assert len(shape(response)) == 4
    finally:
        await asyncio.to_thread(server.stop(None).wait)


@pytest.mark.spec("A40-09")
async def test_matchers_of_nodes_are_refused() -> None:
    request = REQUEST()
    request.node_matchers.add()
    async with admin_port() as address:
        with pytest.raises(grpc.aio.AioRpcError, match="node_matchers") as caught:
            await fetch(address, request)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


# `proxyless status`


async def status(*arguments: str) -> tuple[int | None, str, str]:
    """Exit code, output and errors of the command."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxyless", "status", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def words(table: str) -> Iterator[list[str]]:
    return (line.split(maxsplit=6) for line in table.splitlines())


async def test_status_shows_a_rejected_cluster() -> None:
    async with admin_port() as address, mesh() as control_plane:
        bootstrap = control_plane.bootstrap("me")
        async with proxyless.aio.insecure_channel(TARGET, bootstrap=bootstrap) as channel:
            await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S)
            snapshot = control_plane.snapshot
            control_plane.set_snapshot(bad(snapshot))
            await control_plane.wait_for_nack(CLUSTER)
            code, table, _ = await status(address)
            assert code == 0
            assert ["TARGET", "TYPE", "NAME", "STATUS", "VERSION", "AGE", "ERROR"] in words(table)
            (cluster,) = [line for line in words(table) if "Cluster" in line]
            assert cluster[:5] == [TARGET, "Cluster", "pool", "NACKED", "1"]
            assert re.fullmatch(r"\d+s", cluster[5])
            assert "lb_policy" in cluster[6]
            code, document, _ = await status(address, "-o", "json", "--contents")
    assert code == 0
    (client,) = json.loads(document)
    assert (client["target"], client["node"]) == (TARGET, "me")
    found = {row["type"].rpartition(".")[2]: row for row in client["resources"]}
    assert found["Cluster"]["failed_version"] == "2"
    assert found["Listener"]["resource"]["name"] == "api"


async def test_explanation_of_grpcios_process_has_no_default_timeout() -> None:
    async with mesh() as control_plane, grpcio_admin(control_plane.bootstrap("me")) as address:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxyless", "explain", WHERE),
            *("--status", address, "--target", TARGET),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
    text = out.decode()
    assert process.returncode == 0
    assert 'its client is "gRPC C-core' in text
    assert "timeout: no time limit, because neither the route nor" in text


async def test_status_reads_grpcios_process() -> None:
    async with mesh() as control_plane, grpcio_admin(control_plane.bootstrap("me")) as address:
        code, table, _ = await status(address)
    assert code == 0
    kinds = {line[1] for line in words(table) if "ACKED" in line}
    assert kinds == {"Listener", "RouteConfiguration", "Cluster", "ClusterLoadAssignment"}


async def test_status_reports_why_there_is_no_answer() -> None:
    code, out, err = await status("127.0.0.1:1", "--timeout", "2")
    assert (code, out) == (1, "")
    assert "127.0.0.1:1" in err
    assert "UNAVAILABLE" in err


async def test_status_is_a_note_when_the_process_has_no_xds_client() -> None:
    async with admin_port() as address:
        assert await status(address) == (0, "no xDS client is running there\n", "")
