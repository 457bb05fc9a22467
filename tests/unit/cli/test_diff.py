"""Unit tests of proxyless.cli.diff."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

import pytest

from proxyless.cli import main

if TYPE_CHECKING:
    from pathlib import Path

MESH = """\
service: shop
routes:
- match: /shop.Cart/
  to: {cart: 95, canary: 5}
  timeout: 1s
clusters:
  cart: {endpoints: [{zone: a, addresses: [10.0.0.1:80]}]}
  canary: {endpoints: [{zone: b, addresses: [10.0.0.2:80]}]}
"""


class Diff(Protocol):
    """Runs the command with two meshes; returns its exit code and its outputs."""

    def __call__(self, after: str, *arguments: str, before: str = MESH) -> tuple[int, str, str]: ...


@pytest.fixture
def diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Diff:
    def run(after: str, *arguments: str, before: str = MESH) -> tuple[int, str, str]:
        files = [tmp_path / "old.yaml", tmp_path / "new.yaml"]
        for file, text in zip(files, (before, after), strict=True):
            file.write_text(text)
        code = main(["diff", *map(str, files), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_equal_meshes_have_no_changes(diff: Diff) -> None:
    assert diff(MESH) == (0, "0 changes\n", "")


def test_change_is_shown_in_words_and_under_load(diff: Diff) -> None:
    code, out, _ = diff(MESH.replace("95, canary: 5", "50, canary: 50"))
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == (
        "route /shop.Cart/* of 'shop-routes': clusters:"
        " cart 95 %, canary 5 % → cart 50 %, canary 50 %"
    )
    assert lines[1:3] == ["1 change", ""]
    assert lines[3].startswith("simulated before: 600 RPCs, 0 failed; ")
    assert lines[4].startswith("simulated after: 600 RPCs, 0 failed; ")
    assert "to cart in zone a" in lines[4]


def test_change_that_breaks_rpcs_fails(diff: Diff) -> None:
    code, out, _ = diff(MESH.replace("/shop.Cart/", "/shop.Users/"))
    assert code == 1
    assert "RPCs failed with UNAVAILABLE" in out
    assert "missed: failed at most 0" in out


def test_rejected_config_fails(diff: Diff) -> None:
    code, out, _ = diff(MESH.replace("{cart: 95, canary: 5}", "{cart: 0}"))
    assert code == 1
    assert "missed: refused configs at most 0" in out


def test_simulation_may_be_left_out(diff: Diff) -> None:
    code, out, _ = diff(MESH.replace("/shop.Cart/", "/shop.Users/"), "--no-simulate")
    assert code == 0
    assert "simulated" not in out


def test_meshes_without_listeners_are_only_compared(diff: Diff) -> None:
    before = "clusters: {a: {eds: x}}"
    code, out, _ = diff("clusters: {a: {eds: y}}", before=before)
    assert code == 0
    assert out == "cluster 'a': eds_cluster_config.service_name: x → y\n1 change\n"


def test_json_has_changes_and_the_report(diff: Diff) -> None:
    code, out, _ = diff(MESH.replace("timeout: 1s", "timeout: 2s"), "-o", "json")
    document = json.loads(out)
    assert code == 0
    assert document["changes"] == [
        {
            "kind": "changed",
            "subject": "route /shop.Cart/* of 'shop-routes'",
            "aspect": "timeout",
            "before": "1s",
            "after": "2s",
            "what": "route /shop.Cart/* of 'shop-routes': timeout: 1s → 2s",
        }
    ]
    assert len(document["simulation"]["phases"]) == 2


def test_change_is_shown_even_if_the_meshes_cannot_be_simulated(diff: Diff) -> None:
    many = ", ".join(f"10.1.{number // 250}.{number % 250}:80" for number in range(2_500))
    code, out, err = diff(MESH.replace("10.0.0.1:80", many))
    assert code == 1
    assert out.splitlines()[-1].endswith("changes")
    assert "endpoints, wanted at most" in err


def test_bad_file_is_an_error(diff: Diff) -> None:
    code, out, err = diff("clusters: {a: {x: 1}}")
    assert (code, out) == (1, "")
    assert "new.yaml[0].clusters" in err
    assert "line 1, column 16: is not known" in err


def test_method_without_a_simulation_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as info:
        main(["diff", "old", "new", "--no-simulate", "--method", "a/b"])
    assert info.value.code == 2
    assert "argument --method: has no effect with --no-simulate" in capsys.readouterr().err
