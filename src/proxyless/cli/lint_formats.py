"""Formats of the findings of `lint` for other programs: JSON, SARIF 2.1.0, GitHub's commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote as quote_uri

from proxyless.base.frozen import frozen
from proxyless.base.texts import one_line
from proxyless.observe import Severity
from proxyless.observe.findings import RULES
from proxyless.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxyless.cli.file_positions import FilePlace
    from proxyless.observe import Finding

_SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_GITHUB_LEVELS: Final = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.NOTE: "notice",
}


@frozen
class LocatedFinding:
    """A finding, its place in the files, and its resource; empty for an error of the file."""

    place: FilePlace
    resource: str
    finding: Finding

    @property
    def field(self) -> str:
        """Path of the field in its resource, or of the key in a document in the short form."""
        return self.place.short_path or self.finding.path

    @property
    def message(self) -> str:
        """One line: resource, field and text."""
        return one_line(": ".join(filter(None, (self.resource, self.field, self.finding.text))))


def to_json(found: Sequence[LocatedFinding]) -> list[dict[str, Any]]:
    return [
        {
            "severity": each.finding.severity.value,
            "rule": each.finding.rule,
            "for": each.finding.audience.value,
            "place": str(each.place),
            "file": each.place.file,
            "line": None if each.place.position is None else each.place.position.line,
            "column": None if each.place.position is None else each.place.position.column,
            "resource": each.resource,
            "field": each.field,
            "what": each.finding.text,
        }
        for each in found
    ]


def to_sarif(found: Sequence[LocatedFinding]) -> dict[str, Any]:
    """A log of one run. Code scanning services read it."""
    used = sorted({each.finding.rule for each in found})
    driver = {
        "name": "proxyless lint",
        "version": __version__,
        "rules": [{"id": rule, "shortDescription": {"text": RULES[rule]}} for rule in used],
    }
    results = [_to_result(each, used.index(each.finding.rule)) for each in found]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _to_result(found: LocatedFinding, rule_index: int) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": quote_uri(found.place.file)}}
    if found.place.position is not None:
        line, column = found.place.position
        location["region"] = {"startLine": line, "startColumn": column}
    return {
        "ruleId": found.finding.rule,
        "ruleIndex": rule_index,
        "level": found.finding.severity.value,
        "message": {"text": found.message},
        "locations": [{"physicalLocation": location}],
        "properties": {"client": found.finding.audience.value},
    }


def to_github(found: Sequence[LocatedFinding]) -> Iterator[str]:
    """Commands that GitHub Actions shows as annotations of the lines."""
    for each in found:
        fields = {"file": each.place.file}
        if each.place.position is not None:
            fields["line"] = str(each.place.position.line)
            fields["col"] = str(each.place.position.column)
        fields["title"] = f"proxyless {each.finding.rule}"
        shown = ",".join(f"{name}={_escape_field(value)}" for name, value in fields.items())
        yield f"::{_GITHUB_LEVELS[each.finding.severity]} {shown}::{_escape(each.message)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_field(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
