"""`proxyless lint FILE…`: what would clients make of the resources in these files?

What this client refuses, what it ignores, names that lead nowhere; and, if asked, what grpcio or
Envoy do in another way. The exit code is 1 if there is an error.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxyless.assembly import Registries
from proxyless.base import Status, ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.cli.output import JSON, add_output_option, print_json, print_table
from proxyless.cli.resource_files import read_resources
from proxyless.controlplane import Snapshot
from proxyless.observe import Audience, Finding, LintContext, Severity, lint_message
from proxyless.xds.bootstrap import load_bootstrap

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from proxyless.controlplane import Resource

_COLUMNS: Final = ("severity", "for", "resource", "field", "what")
_STYLES: Final = {"error": "bold red", "warning": "yellow", "note": "dim"}
_OTHERS: Final = (Audience.GRPCIO.value, Audience.ENVOY.value)


@frozen
class _Line:
    """A finding, and where the resource is."""

    # Empty if the file could not be read so far.
    resource: str
    place: str
    finding: Finding


def fill_parser(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.description = (
        "Check the resources in FILE…, YAML or JSON, as this client would take them."
    )
    parser.add_argument(
        "files", metavar="FILE", nargs="+", type=Path, help="a file, or a directory of files"
    )
    parser.add_argument(
        "--for",
        dest="audiences",
        action="append",
        choices=_OTHERS,
        default=[],
        help="also what this client does in another way; may be given twice",
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="the files are not the whole mesh: let them name what is not there",
    )
    parser.add_argument(
        "--bootstrap", metavar="FILE", help="whose certificate providers clusters may name"
    )
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Show what there is to say; 1 if something of it is an error."""
    context = _context(parsed.bootstrap)
    if isinstance(context, Status):
        print(f"proxyless lint: {context.details}", file=sys.stderr)
        return 1
    errors = ValidationErrors()
    located = read_resources(parsed.files, errors)
    if not located and errors.ok:
        # A path that was mistyped must not pass for a mesh without a fault.
        with errors.field(", ".join(map(str, parsed.files))):
            errors.add("has no resources")
    lines = [_Line("", path, Finding(Severity.ERROR, "", text)) for path, text in errors.items()]
    audiences = frozenset(map(Audience, parsed.audiences))
    for place, resource in located:
        found = lint_message(resource.message(), context, audiences)
        lines += [_Line(str(resource), place, finding) for finding in found]
    if not parsed.partial:
        lines += _dangling(located)
    if parsed.output == JSON:
        print_json([_to_json(line) for line in lines])
    else:
        _print(lines, len(located))
    return int(any(line.finding.severity is Severity.ERROR for line in lines))


def _context(bootstrap_path: str | None) -> LintContext | Status:
    known = Registries()
    if bootstrap_path is None:
        return LintContext(known.policies, known.filters)
    bootstrap = load_bootstrap(bootstrap_path, {})
    if isinstance(bootstrap, Status):
        return bootstrap
    return LintContext(known.policies, known.filters, bootstrap)


def _dangling(located: Sequence[tuple[str, Resource]]) -> Iterator[_Line]:
    """References to what is not there."""
    snapshot = Snapshot.of([resource for _, resource in located], partial=True)
    for place, resource in located:
        for path, text in snapshot.check([resource]).items():
            # The check says the resource, too; we have said it.
            field = path.partition('"].')[2]
            yield _Line(str(resource), place, Finding(Severity.ERROR, field, text))


def _print(lines: Sequence[_Line], resources: int) -> None:
    rows = [
        (
            line.finding.severity.value,
            line.finding.audience.value,
            line.resource or line.place,
            line.finding.path,
            line.finding.text,
        )
        for line in lines
    ]
    if rows:
        print_table(_COLUMNS, rows, styles=_STYLES)
    counts = Counter(line.finding.severity for line in lines)
    said = ", ".join(_count(counts[each], each.value) for each in Severity)
    print(f"{_count(resources, 'resource')}: {said}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _to_json(line: _Line) -> dict[str, str]:
    return {
        "severity": line.finding.severity.value,
        "for": line.finding.audience.value,
        "place": line.place,
        "resource": line.resource,
        "field": line.finding.path,
        "what": line.finding.text,
    }
