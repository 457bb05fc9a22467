"""`proxyless simulate FILE… --script FILE`: what will clients see, if this and that happens?

The mesh of the files runs in virtual time, with real channels as its clients and a simulated
backend at each endpoint. The answer is a timeline, what clients saw between one event and the next,
and a verdict on each expectation of the script; the exit code is 1 if one was missed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import ValidationErrors
from proxyless.cli.output import JSON, add_output_option, print_json, print_table
from proxyless.cli.resource_files import describe_errors, read_resources
from proxyless.controlplane import Snapshot
from proxyless.controlplane.documents import load_documents
from proxyless.controlplane.files import read_bounded
from proxyless.sim.rehearsal import Mesh, parse_script, parse_seconds, rehearse, show_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxyless.sim.rehearsal import Phase, Report, Script

# A run of so many RPCs and connections takes longer than anyone likes to wait without a word.
LONG_WORK: Final = 5_000
# With more endpoints than that, the table is by zone.
ROWS_MAX: Final = 40

_DIGEST_CHARS: Final = 16
_STYLES: Final = {"held": "green", "missed": "bold red"}
# Options that stand for keys of the script, and win over them.
_KEYS: Final = ("target", "method", "clients", "rate", "duration", "seed")


def fill_parser(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.description = "Say what clients of the mesh in FILE… see while a script breaks things."
    parser.add_argument(
        "files", metavar="FILE", nargs="+", type=Path, help="a file, or a directory of files"
    )
    parser.add_argument(
        "--script", metavar="FILE", type=Path, help="what happens when, and what is expected"
    )
    parser.add_argument(
        "--target",
        action="append",
        help="what clients dial: xds:///name; may be given again (default: every listener)",
    )
    parser.add_argument("--method", help="what clients call: /package.Service/Method")
    parser.add_argument("--clients", type=int, metavar="N", help="how many (default: 1)")
    parser.add_argument(
        "--rate", type=float, metavar="N", help="RPCs per second, of all clients (default: 10)"
    )
    parser.add_argument(
        "--duration", type=_parse_duration, metavar="TIME", help="such as 90s (default: 60s)"
    )
    parser.add_argument("--seed", type=int, help="another one, another run (default: 0)")
    parser.add_argument(
        "--partial", action="store_true", help="let the files name what is not there"
    )
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Show what came of it; 1 if an expectation was missed, or if files or script are bad."""
    problems: list[str] = []
    script = _read_script(parsed, problems)
    base = Path() if parsed.script is None else parsed.script.parent
    pushes = [[base / path for path in push.paths] for push in script.pushes]
    meshes = [
        _read_mesh(paths, problems, is_partial=parsed.partial) for paths in [parsed.files, *pushes]
    ]
    report = None
    if not problems:
        errors = ValidationErrors()
        try:
            report = rehearse(script, meshes, errors, _progress(script, meshes))
        except KeyboardInterrupt:
            problems.append("interrupted")
        _collect(errors, problems, parsed.script)
    if report is None:
        for problem in problems:
            print(f"proxyless simulate: {problem}", file=sys.stderr)
        return 1
    if parsed.output == JSON:
        print_json(report.to_json())
    else:
        _print(report)
    return 0 if report.is_good else 1


# What comes in


def _parse_duration(text: str) -> float:
    seconds = parse_seconds(text)
    if seconds is None:
        seconds = parse_seconds(f"{text}s")
    if seconds is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time, wanted such as 90s or 1m30s")
    return seconds


def _read_script(parsed: argparse.Namespace, problems: list[str]) -> Script:
    """The script with what the command line says on top of it."""
    errors = ValidationErrors()
    document: Any = {}
    if parsed.script is not None:
        text = read_bounded(parsed.script, errors)
        is_json = parsed.script.suffix == ".json"
        documents = load_documents(text, errors, is_json=is_json)
        if len(documents) > 1:
            errors.add(f"has {len(documents)} documents, wanted one")
        document = documents[0] if documents else {}
    given = {key: getattr(parsed, key) for key in _KEYS if getattr(parsed, key) is not None}
    if given and isinstance(document, dict | None):
        document = {**(document or {}), **given}
    script = parse_script(document, errors)
    _collect(errors, problems, parsed.script)
    return script


def _read_mesh(paths: Sequence[Path], problems: list[str], *, is_partial: bool) -> Mesh:
    errors = ValidationErrors()
    located = read_resources(paths, errors)
    if not located and errors.ok:
        errors.add(f"{', '.join(map(str, paths))}: has no resources")
    snapshot = Snapshot.of([resource for _, resource in located], partial=True)
    for place, resource in located if not is_partial else ():
        for path, text in snapshot.check([resource]).items():
            with errors.field(place):
                # The check writes the resource in another way.
                field = path.partition('"].')[2]
                errors.add(f"{resource}: {field}: {text}")
    _collect(errors, problems)
    return Mesh.of(resource for _, resource in located)


def _collect(errors: ValidationErrors, problems: list[str], path: Path | None = None) -> None:
    """One line for each."""
    problems += describe_errors(errors, str(path or ""))


def _progress(script: Script, meshes: Sequence[Mesh]) -> Callable[[float], None]:
    """On a terminal, and only if it takes long."""
    rpcs = sum(flow.rate for flow in script.flows) * script.duration_s
    connections = script.clients * sum(len(mesh.endpoints) for mesh in meshes)
    if rpcs + connections < LONG_WORK or not sys.stderr.isatty():
        return lambda _share: None

    def show(share: float) -> None:
        end = "\n" if share >= 1.0 else ""
        said = f"\r{share:4.0%} of {show_time(script.duration_s)}"
        print(said, end=end, file=sys.stderr, flush=True)

    return show


# What comes out


def _print(report: Report) -> None:
    for note in report.notes:
        print(f"note: {note}")
    print_table(
        ("time", "what"), [(_show_moment(each.at_s), each.what) for each in report.timeline]
    )
    print()
    _print_phases(report.phases)
    _print_failures(report.phases)
    _print_shares(report.phases)
    print()
    verdicts = [
        ("held" if each.is_held else "missed", each.what, each.found) for each in report.verdicts
    ]
    print_table(("verdict", "expected", "found"), verdicts, styles=_STYLES)
    rpcs = sum(phase.rpcs for phase in report.phases)
    failed = sum(phase.failed for phase in report.phases)
    digest = report.digest[:_DIGEST_CHARS]
    print(f"seed {report.seed}: {rpcs} RPCs, {failed} failed, digest {digest}")


def _show_moment(at_s: float) -> str:
    """Always with milliseconds, so that times stand below each other."""
    text = show_time(at_s)
    return text if "." in text else f"{text}.000"


def _print_phases(phases: Sequence[Phase]) -> None:
    rows = []
    for number, phase in enumerate(phases, start=1):
        zones: Counter[str] = Counter()
        for share in phase.shares:
            zones[share.zone] += share.rpcs
        total = zones.total()
        said = [
            f"{zone or '(none)'} {100 * times / total:.0f} %" for zone, times in zones.most_common()
        ]
        rows.append(
            (
                str(number),
                show_time(phase.start_s),
                show_time(phase.end_s),
                str(phase.rpcs),
                str(phase.failed),
                _show_ms(phase.median_s),
                _show_ms(phase.slowest_s),
                ", ".join(said),
            )
        )
    columns = ("phase", "from", "to", "rpcs", "failed", "median", "slowest", "zones")
    print_table(columns, rows)


def _show_ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f} ms"


def _print_failures(phases: Sequence[Phase]) -> None:
    rows = [
        (str(number), each.code, str(each.times), each.details)
        for number, phase in enumerate(phases, start=1)
        for each in phase.failures
    ]
    if rows:
        print()
        print_table(("phase", "code", "times", "details, of most"), rows)


def _print_shares(phases: Sequence[Phase]) -> None:
    """How many RPCs each endpoint had, phase by phase."""
    counts: dict[tuple[str, str, str], Counter[int]] = {}
    endpoints = {share.endpoint for phase in phases for share in phase.shares}
    for number, phase in enumerate(phases):
        for share in phase.shares:
            name = share.endpoint if len(endpoints) <= ROWS_MAX else "(all)"
            key = (share.cluster, share.zone or "(none)", name)
            counts.setdefault(key, Counter())[number] += share.rpcs
    if not counts:
        return
    numbers = range(len(phases))
    rows = [
        (*key, *(str(found[number]) for number in numbers)) for key, found in sorted(counts.items())
    ]
    print()
    print_table(("cluster", "zone", "endpoint", *(f"phase {n + 1}" for n in numbers)), rows)
