"""Unit tests of proxyless.cli.simulate: whole command lines over files."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from proxyless.cli import main, simulate
from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    Locality,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
)
from tests.mesh_files import write_resources

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Simulated = Callable[..., tuple[int, str, str]]

A1, A2, B1 = "10.1.0.1:80", "10.1.0.2:80", "10.2.0.1:80"


def two_zones(near: list[str], far: list[str]) -> Snapshot:
    where: Any = {Locality("a"): near, Locality("b", priority=1): far}
    return Snapshot.of(
        [
            listener("shop", [route("/shop.Cart/", cluster="cart")]),
            eds_cluster("cart"),
            endpoints("cart", where),
        ]
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a mesh in `mesh`, and another one in `next`."""
    for name, snapshot in (("mesh", two_zones([A1, A2], [B1])), ("next", two_zones([B1], [A1]))):
        (tmp_path / name).mkdir()
        write_resources(tmp_path / name / "all.json", snapshot)
    return tmp_path


@pytest.fixture
def simulated(directory: Path, capsys: pytest.CaptureFixture[str]) -> Simulated:
    """Run a script with options; returns exit code, output and errors."""

    def run(script: str = "", *more: str) -> tuple[int, str, str]:
        command = ["simulate", str(directory / "mesh")]
        if script:
            (directory / "script.yaml").write_text(script)
            command += ["--script", str(directory / "script.yaml")]
        code = main([*command, *more])
        captured = capsys.readouterr()
        return code, captured.out, captured.err.replace(f"{directory}/", "")

    return run


CART = "method: /shop.Cart/Add\n"


def test_run_without_a_script_is_a_minute_of_traffic(simulated: Simulated) -> None:
    code, out, err = simulated("", "--method", "/shop.Cart/Add")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:2] == [
        "TIME      WHAT",
        "0:00.000  1 client with 10 RPCs per second to xds:///shop; 3 endpoints",
    ]
    assert "1      0:00  1:00  600   0" in out
    assert lines[-1].startswith("seed 0: 600 RPCs, 0 failed, digest ")


def test_run_without_a_script_fails_when_all_rpcs_fail(
    simulated: Simulated,
) -> None:
    code, out, _ = simulated("", "--duration", "5s")
    assert code == 1
    assert 'no route in virtual host "*" matches "/sim.Echo/Unary"' in out
    assert "missed   failed at most 0" in out


def test_pushed_paths_are_relative_to_the_script(simulated: Simulated) -> None:
    script = f"""{CART}
duration: 40s
events: [{{at: 10s, kill: {{zone: a}}}}, {{at: 20s, start: all}}, {{at: 30s, push: next}}]
expect: [{{failover_within: 1s}}, {{only_zones: [b], from: 11s, to: 20s}}]
"""
    code, out, err = simulated(script)
    assert (code, err) == (0, "")
    assert "0:10.000  kill zone a (2 of 3 endpoints)\n" in out
    assert "0:30.000  push next\n" in out
    assert "held     only zones b, from 0:11 to 0:20" in out
    # The endpoints of zone b are in zone a of the other files.
    assert f"cart     a     {B1}  0        0        0        100" in out


def test_missed_expectation_exits_with_1(simulated: Simulated) -> None:
    script = f"{CART}duration: 5s\nexpect: {{only_zones: b}}"
    code, out, _ = simulated(script)
    assert code == 1
    assert "missed   only zones b" in out
    assert "50 went to zone a" in out


def test_failures_are_shown_with_details(simulated: Simulated) -> None:
    script = f"{CART}duration: 10s\nevents: [{{at: 5s, fail: {{all: true, with: DATA_LOSS}}}}]"
    code, out, _ = simulated(script)
    assert code == 0
    assert (
        "PHASE  CODE       TIMES  DETAILS, OF MOST\n2      DATA_LOSS  50     failed on purpose\n"
        in out
    )


def test_json_has_the_whole_report(simulated: Simulated) -> None:
    script = f"{CART}duration: 5s\nexpect: {{only_zones: b}}"
    code, out, _ = simulated(script, "-o", "json", "--seed", "3")
    document = json.loads(out)
    assert code == 1
    assert document["is_good"] is False
    assert document["seed"] == 3
    assert document["phases"][0]["rpcs"] == 50
    assert {each["zone"] for each in document["phases"][0]["shares"]} == {"a"}
    assert len(document["digest"]) == 64


def test_options_override_the_script(simulated: Simulated) -> None:
    options = ("--duration", "90", "--rate", "2", "--clients", "2", "--target", "xds:///shop")
    _, out, _ = simulated(f"{CART}duration: 5s\nrate: 1\ntarget: xds:///x", *options)
    assert "0:00.000  2 clients with 2 RPCs per second to xds:///shop" in out
    assert "1:30.000  the end" in out


def test_script_may_be_json_or_empty(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = directory / "script.json"
    path.write_text('{"method": "/shop.Cart/Add", "duration": "3s"}')
    mesh = str(directory / "mesh")
    assert main(["simulate", mesh, "--script", str(path)]) == 0
    empty = directory / "empty.yaml"
    empty.write_text("# nothing\n")
    options = ("--method", "/shop.Cart/Add", "--duration", "3s")
    assert main(["simulate", mesh, "--script", str(empty), *options]) == 0
    assert "30 RPCs" in capsys.readouterr().out


def test_all_errors_are_printed_one_line_each(simulated: Simulated) -> None:
    code, out, err = simulated("rat: 1\nevents: [{at: 5s, push: [none, script.yaml]}]")
    assert (code, out) == (1, "")
    lines = err.splitlines()
    assert lines[0].startswith("proxyless simulate: script.yaml: rat: is not known, wanted one of")
    assert lines[1] == "proxyless simulate: none: cannot be read: No such file or directory"
    assert lines[2].startswith("proxyless simulate: script.yaml[0]: line 1, column 1: is a ")


def test_unknown_names_are_errors(simulated: Simulated) -> None:
    code, _, err = simulated("events: [{at: 5s, kill: {zone: z}}]")
    assert code == 1
    text = "no endpoint fits zone z: there are zones a, b; clusters cart"
    assert err == f"proxyless simulate: script.yaml: events[0].kill: {text}\n"


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("a: b: c", "line 1, column 5"),
        ("a: 1\n---\nb: 2", "has 2 documents, wanted one"),
        ("- a", "is a list, wanted a mapping"),
    ],
)
def test_invalid_script_is_an_error(simulated: Simulated, script: str, text: str) -> None:
    code, _, err = simulated(script, "--seed", "1")
    assert code == 1
    assert err.startswith("proxyless simulate: script.yaml: ")
    assert text in err


def test_missing_script_is_an_error(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulate", str(directory / "mesh"), "--script", str(directory / "none")]
    assert main(command) == 1
    assert "none: cannot be read: No such file" in capsys.readouterr().err


def test_files_without_resources_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"proxyless simulate: {tmp_path}: has no resources\n"


def test_dangling_references_are_errors_unless_partial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mesh.json"
    resources = [listener("shop", [route(cluster="cart")])]
    write_resources(path, Snapshot.of(resources, partial=True))
    assert main(["simulate", str(path)]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"proxyless simulate: {path}[0][0]: listener 'shop': api_listener")
    assert err.endswith(": there is no cluster 'cart'\n")
    assert main(["simulate", str(path), "--partial", "--duration", "30s"]) == 1
    assert 'cluster "cart": does not exist' in capsys.readouterr().out


def test_removed_tls_is_noted(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extra = directory / "mesh" / "extra.yaml"
    cluster = {
        "@type": CLUSTER,
        "name": "safe",
        "type": "EDS",
        "eds_cluster_config": {"eds_config": {"ads": {}}},
        "transport_socket": {"name": "tls"},
    }
    extra.write_text(json.dumps([cluster, {"@type": ENDPOINTS, "cluster_name": "safe"}]))
    command = ["simulate", str(directory / "mesh"), "--method", "/shop.Cart/Add"]
    assert main([*command, "--duration", "2s"]) == 0
    text = "cluster 'safe': transport_socket is left out: simulated connections are without TLS"
    assert capsys.readouterr().out.startswith(f"note: {text}\n")


@pytest.mark.parametrize(
    "arguments", [[], ["x", "--seed", "y"], ["x", "--duration", "soon"], ["x", "--no-such"]]
)
def test_invalid_command_line_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["simulate", *arguments])
    assert caught.value.code == 2


def test_numbers_beyond_the_limits_are_errors(simulated: Simulated) -> None:
    for option, value in (("--rate", "1e9"), ("--clients", "5000"), ("--duration", "9999h")):
        code, _, err = simulated("", option, value)
        assert code == 1
        assert err.startswith(f"proxyless simulate: {option[2:]}: is ")


def test_many_endpoints_are_shown_by_zone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = [f"10.1.0.{n}:80" for n in range(1, simulate.ROWS_MAX + 2)]
    path = tmp_path / "mesh.json"
    write_resources(path, two_zones(many, [B1]))
    command = ["simulate", str(path), "--method", "/shop.Cart/Add", "--rate", "100"]
    assert main([*command, "--duration", "2s"]) == 0
    assert "cart     a     (all)     200\n" in capsys.readouterr().out


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_long_run_shows_its_progress_on_a_terminal(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    simulated(CART, "--duration", "2s")
    assert terminal.getvalue() == ""
    monkeypatch.setattr(simulate, "LONG_WORK", 10)
    simulated(CART, "--duration", "2s")
    assert terminal.getvalue().startswith("\r  5% of 0:02\r 10% of 0:02")
    assert terminal.getvalue().endswith("\r100% of 0:02\n")
