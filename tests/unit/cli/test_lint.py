"""Unit tests of proxyless.cli.lint: a whole run over files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from proxyless.cli import main
from proxyless.controlplane import CLUSTER, simple_mesh
from tests.mesh_files import write_resources

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

CART = f"""\
"@type": {CLUSTER}
name: cart
type: EDS
eds_cluster_config: {{eds_config: {{ads: {{}}}}}}
"""


def test_good_mesh_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_resources(tmp_path / "mesh.json", simple_mesh("api", {"a": ["127.0.0.1:1"]}))
    assert main(["lint", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("4 resources: 0 errors, 0 warnings")


def test_dangling_reference_is_an_error_unless_partial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(CART)
    assert main(["lint", str(file), "-o", "json"]) == 1
    (line,) = json.loads(capsys.readouterr().out)
    assert line == {
        "severity": "error",
        "for": "proxyless",
        "place": f"{file}[0]",
        "resource": "cluster 'cart'",
        "field": "eds_cluster_config.service_name",
        "what": "there is no endpoints 'cart'",
    }
    assert main(["lint", str(file), "--partial"]) == 0
    assert capsys.readouterr().out == "1 resource: 0 errors, 0 warnings, 0 notes\n"


def test_file_errors_have_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"{CART}nam: b\n---\n{CART}---\n{CART}")
    assert main(["lint", str(file), str(tmp_path / "none.json"), "--partial"]) == 1
    out = capsys.readouterr().out
    assert "a.yaml[0].nam" in out
    assert "there is no such field" in out
    assert "cluster 'cart' is there already" in out
    assert "cannot be read" in out


def test_findings_for_other_clients_are_opt_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"{CART}lb_policy: LEAST_REQUEST\n")
    arguments = ["lint", str(file), "--partial"]
    assert main(arguments) == 0
    assert main([*arguments, "--for", "grpcio", "--for", "envoy"]) == 1
    out = capsys.readouterr().out
    assert "is LEAST_REQUEST, for which the cluster is refused" in out
    assert "HTTP/1.1" in out


def test_unreadable_bootstrap_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(CART)
    assert main(["lint", str(file), "--bootstrap", str(tmp_path / "none")]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_path_without_resources_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that checks a mesh must not pass because its path was mistyped."""
    assert main(["lint", str(tmp_path)]) == 1
    assert f"{tmp_path}         has no resources" in capsys.readouterr().out
