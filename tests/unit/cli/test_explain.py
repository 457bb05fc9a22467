"""Unit tests of proxyless.cli.explain: whole runs over files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from proxyless.cli import main
from proxyless.controlplane import (
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
)
from tests.mesh_files import write_resources

if TYPE_CHECKING:
    from pathlib import Path

SNAPSHOT = Snapshot.of(
    [
        listener("api", "routes"),
        route_config("routes", route(headers={"who": "b"}, cluster="b"), route(cluster="a")),
        eds_cluster("a"),
        eds_cluster("b"),
        endpoints("a", ["127.0.0.1:1"]),
        endpoints("b", []),
    ]
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_resources(tmp_path / "mesh.json", SNAPSHOT)
    return tmp_path


def command(directory: Path, *more: str, target: str = "xds:///api") -> list[str]:
    return ["explain", "pkg.Service/Method", "--config", str(directory), "--target", target, *more]


def test_rpc_that_succeeds_exits_with_0(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(directory)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == '/pkg.Service/Method goes to cluster "a"'
    assert '    route 0: no match: header "who" is absent, wanted exact "b"' in lines
    assert lines[-1].strip() == "127.0.0.1:1: HEALTHY"


def test_rpc_that_fails_exits_with_1_and_headers_are_matched(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(directory, "-H", "Who=b", "-o", "json")) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["problem"] == 'cluster "b": endpoints "b": has no endpoint that may be used'
    kinds = [part["kind"] for part in document["parts"]]
    assert kinds == ["virtual_host", "routes", "route"]


def test_bootstrap_has_the_template_of_listener_names(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = tmp_path / "bootstrap"
    server = {"server_uri": "x", "channel_creds": [{"type": "insecure"}]}
    template = {"client_default_listener_resource_name_template": "prefix/%s"}
    bootstrap.write_text(json.dumps({"xds_servers": [server], **template}))
    assert main(command(directory, "--bootstrap", str(bootstrap))) == 1
    assert 'listener "prefix/api": does not exist' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("xds://other/api", "xds authority 'other'"),
        ("xds:///", "has no name"),
        ("dns:///api", "wanted xds:"),
    ],
)
def test_invalid_target_is_an_error(
    directory: Path, capsys: pytest.CaptureFixture[str], target: str, message: str
) -> None:
    assert main(command(directory, target=target)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def test_unreadable_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text("a: [")
    assert main(command(tmp_path)) == 1
    assert "a.yaml" in capsys.readouterr().err


def test_header_without_a_value_exits_with_2(directory: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        main(command(directory, "-H", "who"))
    assert caught.value.code == 2


def test_file_errors_are_printed_one_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("x: 1")
    assert main([*command(tmp_path), "--config", str(tmp_path / "none.yaml")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert first.startswith(f"proxyless explain: {tmp_path}/a.yaml[0]: ")
    assert second == (
        f"proxyless explain: {tmp_path}/none.yaml: cannot be read: No such file or directory"
    )


def test_directory_without_resources_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tmp_path)) == 1
    assert capsys.readouterr().err == f"proxyless explain: {tmp_path}: has no resources\n"
    # A file may be empty on purpose.
    (tmp_path / "empty.yaml").write_text("")
    assert main(command(tmp_path / "empty.yaml")) == 1
    assert 'listener "api": does not exist' in capsys.readouterr().out


def test_target_is_required_without_live(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explain", "a/b"])
    assert "required: --target" in capsys.readouterr().err


def test_verdict_has_colours_only_on_request(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # `--color` changes them.
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.setenv(name, "")
    assert main(command(directory, "--color", "always")) == 0
    assert capsys.readouterr().out.startswith("\x1b[32m/pkg.Service/Method goes to")
    assert main(command(directory, "-H", "who: b", "--color", "always")) == 1
    assert capsys.readouterr().out.startswith("\x1b[1;31m/pkg.Service/Method fails")
    assert main(command(directory, "--color", "never")) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_config_and_status_are_mutually_exclusive(directory: Path) -> None:
    with pytest.raises(SystemExit):
        main(command(directory, "--status", "127.0.0.1:1"))
