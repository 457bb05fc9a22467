"""`proxyless explain` with a new client of a control plane, and for the channels of a process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from proxyless.controlplane import ControlPlane, endpoints, simple_mesh
from tests.worlds.command_lines import run_command
from tests.worlds.grpcio_peers import WHERE, backends
from tests.worlds.screens import on_terminal
from tests.worlds.watched_meshes import CLUSTER, TARGET, watched_mesh

if TYPE_CHECKING:
    from pathlib import Path

# Each command is a process that takes seconds to start on a busy machine.


def write(bootstrap: dict[str, Any], directory: Path) -> tuple[str, str]:
    path = directory / "bootstrap.json"
    path.write_text(json.dumps(bootstrap))
    return "--bootstrap", str(path)


async def test_new_client_explains_what_it_gets_from_the_control_plane(tmp_path: Path) -> None:
    async with backends("a") as (backend,):
        snapshot = simple_mesh("api", {CLUSTER: [backend.address]})
        async with ControlPlane(snapshot) as control_plane:
            options = ("--target", TARGET, *write(control_plane.bootstrap(), tmp_path))
            good = await run_command("explain", WHERE, *options)
            document = await run_command("explain", WHERE, *options, "-o", "json")
            by_variable = await run_command(
                *("explain", WHERE, "--target", TARGET),
                environ={"GRPC_XDS_BOOTSTRAP": options[-1]},
            )
            control_plane.set_snapshot(snapshot.with_(endpoints(CLUSTER, [])))
            bad = await run_command("explain", WHERE, *options)
    assert good.code == by_variable.code == 0
    assert good.out.startswith(f'{WHERE} goes to cluster "{CLUSTER}"\n')
    assert f"now: goes to {backend.address}" in good.out
    assert by_variable.out.splitlines()[0] == good.out.splitlines()[0]
    assert json.loads(document.out)["kind"] == "rpc"
    assert bad.code == 1
    assert bad.out.startswith(f"{WHERE} fails: ")


async def test_new_client_waits_for_a_bounded_time_and_shows_progress(tmp_path: Path) -> None:
    async with ControlPlane(simple_mesh("api", {CLUSTER: []})) as control_plane:
        bootstrap = write(control_plane.bootstrap(), tmp_path)
        words = ("explain", WHERE, "--target", "xds:///elsewhere", "--timeout", "500ms")
        found = await run_command(*words, *bootstrap)
        async with on_terminal(*words, *bootstrap) as terminal:
            assert await terminal.end() == 1
            await terminal.wait_for(lambda screen: "target xds:///elsewhere" in screen.text, "end")
    assert found.code == 1
    assert found.out.startswith(f'{WHERE} waits: listener "elsewhere": not here yet')
    *progress, last = found.err.splitlines()
    assert progress
    assert all(f'{WHERE} waits: listener "elsewhere"' in line for line in progress)
    assert last == "proxyless explain: not settled after 0.5 s"
    # The line of progress is removed.
    lines = terminal.screen.text.splitlines()
    assert lines[0].startswith("proxyless explain: not settled")


async def test_new_client_reports_a_control_plane_that_is_not_there(tmp_path: Path) -> None:
    server = {"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}
    bootstrap = {"xds_servers": [{**server, "server_features": ["xds_v3"]}]}
    options = ("--target", TARGET, *write(bootstrap, tmp_path))
    found = await run_command("explain", WHERE, *options)
    assert found.code == 1
    assert 'xds server "127.0.0.1:1"' in found.out
    assert "refused" in found.out
    missing = await run_command(
        *("explain", WHERE, "--target", TARGET, "--bootstrap", str(tmp_path / "none"))
    )
    assert missing.code == 1
    assert "none" in missing.out


@pytest.mark.parametrize("target", [(), ("--target", TARGET)])
async def test_channels_of_a_process_explain_themselves(target: tuple[str, ...]) -> None:
    async with watched_mesh() as mesh:
        text = await run_command("explain", WHERE, "--live", mesh.admin, *target, "-H", "a: b")
        document = await run_command(
            *("explain", WHERE, "--live", mesh.admin, *target, "-o", "json")
        )
        other = await run_command("explain", WHERE, "--live", mesh.admin, "--target", "xds:///b")
    assert text.code == 0
    assert f'{WHERE} goes to cluster "{CLUSTER}"' in text.out
    assert "round_robin" in text.out
    explanations = json.loads(document.out)
    targets = {each["target"] for each in explanations}
    # The channel to the control plane is one of them.
    expected = {TARGET} if target else {TARGET, mesh.control_plane.address}
    assert targets & {TARGET, mesh.control_plane.address} == expected
    assert other.code == 1
    assert "NOT_FOUND" in other.err
