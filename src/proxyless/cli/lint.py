"""`proxyless lint FILE…`: checks resources in files as clients do, and whether they fit together.

It reports what this client rejects and ignores, references to missing resources, resources and
routes without a use, and, with `--for`, what grpcio or Envoy would do differently, or which of
Istio's settings are ignored. The exit code is 1 if there is an error, or with `--strict` a warning.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from proxyless.assembly import Registries
from proxyless.base import Status, ValidationErrors
from proxyless.base.texts import count
from proxyless.cli.file_positions import FilePlace, FilePositions
from proxyless.cli.lint_formats import LocatedFinding, to_github, to_json, to_sarif
from proxyless.cli.output import (
    JSON,
    TABLE,
    add_color_option,
    fail,
    print_json,
    print_lines,
    print_table,
)
from proxyless.cli.resource_files import add_files_argument, find_dangling, read_resources
from proxyless.controlplane.positions import split_position
from proxyless.observe import (
    Audience,
    Finding,
    LintContext,
    LintedResource,
    Severity,
    lint_mesh,
    lint_message,
)
from proxyless.xds.bootstrap import load_bootstrap

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from proxyless.cli.resource_files import Located

TEXT: Final = "text"
SARIF: Final = "sarif"
GITHUB: Final = "github"

EXIT_CODES: Final = {
    0: "no errors; with --strict, no warnings either",
    1: "an error; with --strict, a warning",
    2: "usage error, or a missing extra",
}

_COLUMNS: Final = ("place", "severity", "for", "resource", "field", "what")
_STYLES: Final = {"error": "bold red", "warning": "yellow", "note": "dim"}


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Check the resources in FILE…, YAML or JSON, as this client does."
    add_files_argument(parser)
    parser.add_argument(
        "--for",
        dest="audiences",
        action="append",
        choices=(Audience.GRPCIO.value, Audience.ENVOY.value, Audience.ISTIO.value),
        default=[],
        help="also report what grpcio or Envoy would do differently, or the settings of Istio that"
        " ignored fields come from; may be repeated",
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="the files are a part of the mesh: allow missing and unused resources",
    )
    parser.add_argument(
        "--strict", action="store_true", help="warnings make the exit code 1 as well"
    )
    parser.add_argument(
        "--bootstrap",
        metavar="FILE",
        help="bootstrap with the certificate providers that clusters may name (default: any name)",
    )
    parser.add_argument(
        "-o",
        "--output",
        "--format",
        choices=(TEXT, TABLE, JSON, SARIF, GITHUB),
        default=TEXT,
        help="output format; table is the same as text (default: %(default)s)",
    )
    add_color_option(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print all findings; returns 1 if one is an error, or a warning with `--strict`."""
    context = _context(parsed.bootstrap)
    if isinstance(context, Status):
        return fail("lint", [context.details])
    errors, texts = ValidationErrors(), dict[str, str]()
    located = read_resources(parsed.files, errors, texts=texts)
    positions = FilePositions(texts)
    audiences = frozenset(map(Audience, parsed.audiences))
    found = [
        *_find_file_errors(errors, positions),
        *_lint_resources(located, positions, context, audiences),
        *(
            ()
            if parsed.partial
            else _lint_together(located, positions, audiences, is_complete=errors.ok)
        ),
    ]
    files = list(texts)
    found.sort(key=lambda each: _order(each.place, files))
    _print(found, len(located), parsed.output)
    failing = {Severity.ERROR, Severity.WARNING} if parsed.strict else {Severity.ERROR}
    return int(any(each.finding.severity in failing for each in found))


def _order(place: FilePlace, files: Sequence[str]) -> tuple[int, int, int]:
    """Position of a place among all files, which are in their order."""
    number = files.index(place.file) if place.file in files else -1
    return (number, *(place.position or (0, 0)))


def _context(bootstrap_path: str | None) -> LintContext | Status:
    known = Registries()
    bootstrap = None if bootstrap_path is None else load_bootstrap(bootstrap_path, {})
    if isinstance(bootstrap, Status):
        return bootstrap
    return LintContext(known.policies, known.filters, bootstrap)


def _find_file_errors(
    errors: ValidationErrors, positions: FilePositions
) -> Iterator[LocatedFinding]:
    for path, text in errors.items():
        position, rest = split_position(text)
        place = positions.find(path)
        if position is not None:
            place = FilePlace(place.file, position)
        # The path in the file.
        field = path.removeprefix(place.file)
        yield LocatedFinding(place, "", Finding(Severity.ERROR, field, rest, rule="file"))


def _lint_resources(
    located: Sequence[Located],
    positions: FilePositions,
    context: LintContext,
    audiences: frozenset[Audience],
) -> Iterator[LocatedFinding]:
    """Findings about each resource on its own."""
    for place, resource in located:
        is_short = positions.is_short_form(place)
        for finding in lint_message(resource.message(), context, audiences):
            # The document does not have this field: it is there for other clients.
            if not (is_short and finding.rule == "ignored"):
                where = positions.find(place, finding.path)
                yield LocatedFinding(where, str(resource), finding)


def _lint_together(
    located: Sequence[Located],
    positions: FilePositions,
    audiences: frozenset[Audience],
    *,
    is_complete: bool,
) -> Iterator[LocatedFinding]:
    """Findings about all resources together.

    Unless all files could be read, none are about missing and unused resources: what they lack may
    be in the rest.
    """
    for place, resource, field, text in find_dangling(located) if is_complete else ():
        finding = Finding(Severity.ERROR, field, text, rule="missing")
        yield LocatedFinding(positions.find(place, field), str(resource), finding)
    resources = [
        LintedResource(
            (_type_name(resource.type_url), resource.name),
            resource.message(),
            tuple((_type_name(each.type_url), each.name) for each in resource.references),
        )
        for _, resource in located
    ]
    for number, finding in lint_mesh(resources, audiences):
        if finding.rule == "unused" and not is_complete:
            continue
        place, resource = located[number]
        yield LocatedFinding(positions.find(place, finding.path), str(resource), finding)


def _type_name(type_url: str) -> str:
    return type_url.rpartition("/")[2]


def _print(found: Sequence[LocatedFinding], resources: int, output: str) -> None:
    match output:
        case "json":
            print_json(to_json(found))
        case "sarif":
            print_json(to_sarif(found))
        case "github":
            for line in to_github(found):
                print_lines(line)
        case _:
            _print_text(found, resources)


def _print_text(found: Sequence[LocatedFinding], resources: int) -> None:
    rows = [
        (
            str(each.place),
            each.finding.severity.value,
            each.finding.audience.value,
            each.resource,
            each.field,
            each.finding.text,
        )
        for each in found
    ]
    if rows:
        print_table(_COLUMNS, rows, styles=_STYLES)
    counts = Counter(each.finding.severity for each in found)
    summary = ", ".join(count(counts[each], each.value) for each in Severity)
    print_lines(f"{count(resources, 'resource')}: {summary}")
