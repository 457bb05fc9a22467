"""`proxyless lint FILE…`: checks the resources in files as clients do.

It reports what this client rejects and ignores, references to missing resources and, with `--for`,
what grpcio or Envoy would do differently. The exit code is 1 if there is an error.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from proxyless.assembly import Registries
from proxyless.base import Status, ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.base.texts import count
from proxyless.cli.output import JSON, add_output_option, fail, print_json, print_lines, print_table
from proxyless.cli.resource_files import add_files_argument, find_dangling, read_resources
from proxyless.observe import Audience, Finding, LintContext, Severity, lint_message
from proxyless.xds.bootstrap import load_bootstrap

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_COLUMNS: Final = ("severity", "for", "resource", "field", "what")
_STYLES: Final = {"error": "bold red", "warning": "yellow", "note": "dim"}


@frozen
class _Line:
    """A finding, with its resource and the place of that in the files."""

    # Empty for an error of the file.
    resource: str
    place: str
    finding: Finding


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Check the resources in FILE…, YAML or JSON, as this client does."
    add_files_argument(parser)
    parser.add_argument(
        "--for",
        dest="audiences",
        action="append",
        choices=(Audience.GRPCIO.value, Audience.ENVOY.value),
        default=[],
        help="also report what grpcio or Envoy would do differently; may be given twice",
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="the files are a part of the mesh: allow references to missing resources",
    )
    parser.add_argument(
        "--bootstrap",
        metavar="FILE",
        help="bootstrap with the certificate providers that clusters may name (default: any name)",
    )
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print all findings; returns 1 if one is an error."""
    context = _context(parsed.bootstrap)
    if isinstance(context, Status):
        return fail("lint", [context.details])
    errors = ValidationErrors()
    located = read_resources(parsed.files, errors)
    lines = [_Line("", path, Finding(Severity.ERROR, "", text)) for path, text in errors.items()]
    audiences = frozenset(map(Audience, parsed.audiences))
    for place, resource in located:
        found = lint_message(resource.message(), context, audiences)
        lines += [_Line(str(resource), place, finding) for finding in found]
    for place, resource, field, text in () if parsed.partial else find_dangling(located):
        lines.append(_Line(str(resource), place, Finding(Severity.ERROR, field, text)))
    if parsed.output == JSON:
        print_json([_to_json(line) for line in lines])
    else:
        _print(lines, len(located))
    return int(any(line.finding.severity is Severity.ERROR for line in lines))


def _context(bootstrap_path: str | None) -> LintContext | Status:
    known = Registries()
    bootstrap = None if bootstrap_path is None else load_bootstrap(bootstrap_path, {})
    if isinstance(bootstrap, Status):
        return bootstrap
    return LintContext(known.policies, known.filters, bootstrap)


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
    found = ", ".join(count(counts[each], each.value) for each in Severity)
    print_lines(f"{count(resources, 'resource')}: {found}")


def _to_json(line: _Line) -> dict[str, str]:
    return {
        "severity": line.finding.severity.value,
        "for": line.finding.audience.value,
        "place": line.place,
        "resource": line.resource,
        "field": line.finding.path,
        "what": line.finding.text,
    }
