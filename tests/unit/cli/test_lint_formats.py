"""Unit tests of proxyless.cli.lint_formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxyless.base import ValidationErrors
from proxyless.cli.file_positions import FilePlace
from proxyless.cli.lint_formats import LocatedFinding, to_github, to_json, to_sarif
from proxyless.controlplane.positions import Position
from proxyless.controlplane.short_form.schema import SchemaChecker
from proxyless.observe import Finding, Severity
from proxyless.observe.findings import RULES

# The parts of OASIS' schema for SARIF 2.1.0 that the output uses; other keys are not allowed.
SARIF = json.loads(Path("tests/fixtures/sarif_subset.schema.json").read_text())

FOUND = [
    LocatedFinding(
        FilePlace("mesh dir/a,b.yaml", Position(3, 7)),
        "cluster 'a'",
        Finding(severity, "lb_policy", "is 100%\nwrong", rule=rule),
    )
    for severity, rule in zip([*Severity] * len(RULES), RULES, strict=False)
]
WHOLE_FILE = LocatedFinding(
    FilePlace("gone.yaml"), "", Finding(Severity.ERROR, "", "cannot be read", rule="file")
)


def errors_of(document: object) -> list[tuple[str, str]]:
    errors = ValidationErrors()
    SchemaChecker(SARIF, errors).check(document)
    return list(errors.items())


@pytest.mark.parametrize("found", [[], FOUND, [WHOLE_FILE]])
def test_sarif_fits_its_schema(found: list[LocatedFinding]) -> None:
    log = json.loads(json.dumps(to_sarif(found)))
    assert errors_of(log) == []
    [run] = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [rules[result["ruleIndex"]] for result in run["results"]] == [
        each.finding.rule for each in found
    ]


def test_subset_of_the_schema_rejects_other_logs() -> None:
    log = to_sarif(FOUND)
    log["runs"][0]["results"][0]["level"] = "fatal"
    log["runs"][0]["results"][1]["where"] = 1
    paths = [path for path, _ in errors_of(log)]
    assert paths == ["runs[0].results[0].level", "runs[0].results[1].where"]


def test_sarif_has_uris_and_positions() -> None:
    results = to_sarif([FOUND[0], WHOLE_FILE])["runs"][0]["results"]
    places = [result["locations"][0]["physicalLocation"] for result in results]
    assert places == [
        {
            "artifactLocation": {"uri": "mesh%20dir/a%2Cb.yaml"},
            "region": {"startLine": 3, "startColumn": 7},
        },
        {"artifactLocation": {"uri": "gone.yaml"}},
    ]


def test_github_commands_cannot_be_forged() -> None:
    text = "cluster 'a': lb_policy: is 100%25 wrong"
    assert next(to_github(FOUND)) == (
        f"::error file=mesh dir/a%2Cb.yaml,line=3,col=7,title=proxyless file::{text}"
    )
    assert list(to_github([WHOLE_FILE])) == [
        "::error file=gone.yaml,title=proxyless file::cannot be read"
    ]


def test_json_has_the_position_or_null() -> None:
    placed, whole = to_json([FOUND[0], WHOLE_FILE])
    assert (placed["place"], placed["line"], placed["column"]) == ("mesh dir/a,b.yaml:3:7", 3, 7)
    assert (whole["place"], whole["line"], whole["column"]) == ("gone.yaml", None, None)


def test_field_of_the_short_form_is_its_own_path() -> None:
    place = FilePlace("a.yaml", Position(1, 1), "routes[0].timeout")
    found = LocatedFinding(place, "route config 'a'", Finding(Severity.NOTE, "virtual_hosts", "x"))
    assert found.message == "route config 'a': routes[0].timeout: x"
