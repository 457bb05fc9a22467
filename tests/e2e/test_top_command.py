"""`proxyless top` on a terminal, in a pipe and once, for channels of this package and of grpcio."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from contextlib import AsyncExitStack

from tests.worlds.admin_servers import admin_port
from tests.worlds.command_lines import run_command
from tests.worlds.csds_processes import grpcio_admin
from tests.worlds.csds_processes import mesh as mesh_of_grpcio
from tests.worlds.screens import Screen, on_terminal
from tests.worlds.transports import PATIENCE_S
from tests.worlds.watched_meshes import CLUSTER, TARGET, watched_mesh

# Each command is a process that takes seconds to start on a busy machine.

INTERVAL = ("--interval", "100ms")


def rate_of(line: str) -> float:
    """The first number after the state of a row."""
    found = re.search(r"(?:READY|CONNECTING|IDLE|FAILURE) +([\d,.]+|-)", line)
    return 0.0 if found is None or found[1] == "-" else float(found[1].replace(",", ""))


def modes(screen: Screen) -> tuple[bool, bool]:
    return screen.is_alternate, screen.is_cursor_shown


async def test_keys_open_channels_clusters_endpoints_and_trees() -> None:
    async with watched_mesh() as mesh, on_terminal("top", mesh.admin, *INTERVAL) as top:
        await top.wait_for(lambda screen: rate_of(screen.line_with(TARGET)) > 0, "the rate")
        assert modes(top.screen) == (True, False)
        assert top.attributes() != top.attributes_before, "keys are read without a line break"
        top.press(b"\r")
        await top.wait_for(lambda screen: f"clusters of {TARGET}" in screen.text, "clusters")
        await top.wait_for(
            lambda screen: "2 of 2" in screen.line_with(f" {CLUSTER} "), "ready endpoints"
        )
        top.press(b"\x1b[C")
        await top.wait_for(lambda screen: f"endpoints of {CLUSTER}" in screen.text, "endpoints")
        first, second = (backend.address for backend in mesh.backends)
        await top.wait_for(
            lambda screen: min(rate_of(screen.line_with(each)) for each in (first, second)) > 0,
            "both endpoints with RPCs",
        )
        await mesh.backends[1].leave()
        await top.wait_for(lambda screen: "READY" not in screen.line_with(second), "the loss of b")
        top.press(b"sss")
        # rich before 15 leaves less of the title.
        await top.wait_for(lambda screen: "▼ RP" in screen.text, "the order by rate")
        top.press(b"t")
        await top.wait_for(lambda screen: f"LB tree of {TARGET}" in screen.text, "the LB tree")
        await top.wait_for(lambda screen: "round_robin" in screen.text, "its policies")
        # Back from the tree, the cluster and the channel.
        top.press(b"\x1b[D\x1b[D\x1b[D")
        await top.wait_for(lambda screen: "channels" in screen.text, "channels")
        top.press(b"q")
        assert await top.end() == 0
        await top.wait_for(lambda screen: modes(screen) == (False, True), "the end")
        assert top.attributes() == top.attributes_before


async def test_ejected_endpoint_and_its_failures_are_shown() -> None:
    async with (
        watched_mesh(is_one_bad=True) as mesh,
        on_terminal("top", mesh.admin, *INTERVAL) as top,
    ):
        good, bad = (backend.address for backend in mesh.backends)
        await top.wait_for(lambda screen: "UNAVAILABLE: out" in screen.text, "the last failure")
        top.press(b"\r\r")
        await top.wait_for(lambda screen: "eject" in screen.line_with(bad), "the ejection")
        await top.wait_for(
            lambda screen: rate_of(screen.line_with(good)) > 0 == rate_of(screen.line_with(bad)),
            "all RPCs at the good one",
        )
        found = await run_command("top", mesh.admin, "--once", "-o", "json", "--target", TARGET)
        top.press(b"q")
        assert await top.end() == 0
    (channel,) = json.loads(found.out)["channels"]
    assert channel["failures"]["UNAVAILABLE"] == channel["failed"] > 0
    (cluster,) = channel["clusters"]
    assert cluster["endpoints_ejected"] == 1
    assert {each["address"]: each["is_ejected"] for each in cluster["endpoints"]} == {
        good: False,
        bad: True,
    }


async def test_screen_stays_and_has_the_error_when_the_process_is_gone() -> None:
    async with AsyncExitStack() as admin:
        address = await admin.enter_async_context(admin_port())
        async with on_terminal("top", address, *INTERVAL) as top:
            await top.wait_for(lambda screen: "channels" in screen.text, "the table")
            await admin.aclose()
            await top.wait_for(lambda screen: "no answer, trying again" in screen.text, "the error")
            top.process.send_signal(signal.SIGINT)
            assert await top.end() == 0
            await top.wait_for(lambda screen: not screen.is_alternate, "the end")


async def test_dumb_terminal_gets_one_table_per_interval() -> None:
    dumb = {"TERM": "dumb"}
    async with (
        watched_mesh() as mesh,
        on_terminal("top", mesh.admin, *INTERVAL, environ=dumb) as top,
    ):
        await top.wait_for(lambda screen: screen.text.count("TARGET") > 1, "two tables")
        assert modes(top.screen) == (False, True)
        top.process.send_signal(signal.SIGINT)
        assert await top.end() == 0


async def test_table_of_one_interval_is_printed_once() -> None:
    async with watched_mesh() as mesh:
        found = await run_command("top", mesh.admin, "--once", "--target", TARGET)
    assert (found.code, found.err) == (0, "")
    title, *rows = found.out.splitlines()
    assert title.split()[:4] == ["TARGET", "CLUSTER", "ENDPOINT", "STATE"]
    assert {row.split()[2] for row in rows} == {each.address for each in mesh.backends}
    assert all(rate_of(row) > 0 for row in rows)


async def test_json_has_all_figures() -> None:
    async with watched_mesh() as mesh:
        found = await run_command("top", mesh.admin, "--once", "-o", "json", "--target", TARGET)
    document = json.loads(found.out)
    assert document["source"] == "live service"
    (channel,) = document["channels"]
    assert (channel["target"], channel["state"]) == (TARGET, "READY")
    assert channel["rate"] > 0
    assert channel["failed"] == 0
    (cluster,) = channel["clusters"]
    assert (cluster["endpoints_ready"], cluster["priority_in_use"]) == (2, 0)
    assert sum(each["started"] for each in cluster["endpoints"]) <= channel["started"]


async def test_pipe_gets_one_document_per_interval() -> None:
    async with watched_mesh() as mesh:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxyless", "top", mesh.admin, "-o", "json", *INTERVAL),
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            documents = [json.loads(await process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        await process.communicate()
        assert process.returncode == 0
    times = [each["time"] for each in documents]
    assert times == sorted(set(times))


async def test_process_of_grpcio_is_shown_as_far_as_csds_goes() -> None:
    async with (
        mesh_of_grpcio() as control_plane,
        grpcio_admin(control_plane.bootstrap("me")) as address,
    ):
        found = await run_command("top", address, "--once")
        explained = await run_command("explain", "a.B/C", "--live", address)
    assert found.code == 0
    row = found.out.splitlines()[1].split()
    assert (row[0], row[1], row[3], row[4]) == ("xds:/api", "pool", "HEALTHY", "-")
    assert "no live service: RPCs, connections" in found.err
    assert explained.code == 0
    assert explained.out.startswith('/a.B/C goes to cluster "pool"')
    assert "has no live service, so this is from its CSDS" in explained.err


async def test_top_exits_with_1_if_the_process_does_not_answer() -> None:
    found = await run_command("top", "127.0.0.1:1")
    assert (found.code, found.out) == (1, "")
    assert "UNAVAILABLE" in found.err


async def test_process_without_channels_is_shown_as_such() -> None:
    # Not this process, where channels of other tests may not be garbage-collected yet.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.worlds.admin_servers"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    address = (await process.stdout.readline()).decode().strip()
    found = await run_command("top", address, "--once", *INTERVAL)
    await process.communicate(b"\n")
    assert (found.code, found.out) == (0, "no channel is there\n")
