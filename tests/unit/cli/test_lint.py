"""Unit tests of proxyless.cli.lint: a whole run over files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxyless.base import ValidationErrors
from proxyless.cli import main, resource_files
from proxyless.controlplane import CLUSTER, simple_mesh
from proxyless.controlplane.short_form.schema import SchemaChecker
from proxyless.observe.findings import RULES
from tests.mesh_files import write_resources

BROKEN = Path("tests/fixtures/lint").absolute()
SARIF = json.loads(Path("tests/fixtures/sarif_subset.schema.json").read_text())
# Files without the endpoints of their cluster.
PARTIAL = {"ignored-field"}

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
        "rule": "missing",
        "for": "proxyless",
        "place": f"{file}:4:1",
        "file": str(file),
        "line": 4,
        "column": 1,
        "resource": "cluster 'cart'",
        "field": "eds_cluster_config.service_name",
        "what": "there are no endpoints 'cart'",
    }
    assert main(["lint", str(file), "--partial"]) == 0
    assert capsys.readouterr().out == "1 resource: 0 errors, 0 warnings, 0 notes\n"


def test_file_errors_have_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"{CART}nam: b\n---\n{CART}---\n{CART}")
    assert main(["lint", str(file), str(tmp_path / "none.json"), "--partial"]) == 1
    out = capsys.readouterr().out
    assert "a.yaml:5:1 " in out
    assert "[0].nam" in out
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
    [_, line, _] = capsys.readouterr().out.splitlines()
    assert line.split() == [str(tmp_path), "error", "proxyless", "has", "no", "resources"]


# Formats and exit codes


def test_warning_is_a_failure_only_if_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"{CART}lb_subset_config: {{}}\n")
    arguments = ["lint", str(file), "--partial"]
    assert main(arguments) == 0
    assert main([*arguments, "--strict"]) == 1
    assert "0 errors, 1 warning" in capsys.readouterr().out


def test_standard_input_is_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "piped"
    file.write_text(f"{CART}nam: 1\n")
    monkeypatch.setattr(resource_files, "STDIN", file)
    assert main(["lint", "-", "--format", "json"]) == 1
    [found] = json.loads(capsys.readouterr().out)
    assert (found["file"], found["line"], found["column"]) == ("-", 5, 1)


def test_output_for_github_has_one_command_per_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"{CART}nam: 1\n")
    assert main(["lint", str(file), "--format", "github"]) == 1
    line = f"::error file={file},line=5,col=1,title=proxyless file::[0].nam: there is no such field"
    assert capsys.readouterr().out == f"{line}\n"


def test_output_in_sarif_names_the_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(CART)
    assert main(["lint", str(file), "-o", "sarif"]) == 1
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert [each["id"] for each in run["tool"]["driver"]["rules"]] == ["missing"]
    assert [each["ruleId"] for each in run["results"]] == ["missing"]


def test_findings_are_in_the_order_of_the_files_and_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("b.yaml", "a.yaml"):
        text = "clusters:\n  NAME1: {eds: x}\n  NAME2: {aggregate: [NAME3]}\n"
        (tmp_path / name).write_text(text.replace("NAME", name[0]))
    files = [str(tmp_path / name) for name in ("b.yaml", "a.yaml")]
    assert main(["lint", *files, "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    places = [(each["file"], each["line"]) for each in found]
    assert places == [(file, line) for file in files for line in (2, 3)]


# Broken meshes


@pytest.mark.parametrize("name", sorted(path.stem for path in BROKEN.glob("*.yaml")))
def test_broken_mesh_is_reported_as_in_its_golden_file(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(BROKEN)
    partial = ["--partial"] if name in PARTIAL else []
    code = main(["lint", f"{name}.yaml", *partial])
    golden = Path(f"{name}.txt").read_text()
    assert f"{capsys.readouterr().out}exit code {code}\n" == golden
    assert "proxyless" in golden, "the mesh is broken"


def test_broken_meshes_in_sarif_fit_its_schema_and_have_every_rule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rules: set[str] = set()
    for path in sorted(BROKEN.glob("*.yaml")):
        main(["lint", str(path), "-o", "sarif", "--for", "grpcio", "--for", "envoy"])
        log = json.loads(capsys.readouterr().out)
        errors = ValidationErrors()
        SchemaChecker(SARIF, errors).check(log)
        assert errors.ok, f"{path}: {errors}"
        rules |= {result["ruleId"] for result in log["runs"][0]["results"]}
    assert rules == RULES.keys()


def test_there_are_thirty_broken_meshes_for_most_rules() -> None:
    assert len(list(BROKEN.glob("*.yaml"))) >= 30
    assert len(list(BROKEN.glob("*.yaml"))) == len(list(BROKEN.glob("*.txt")))
