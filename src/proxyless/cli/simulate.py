"""`proxyless simulate FILE… --script FILE`: runs a mesh and a script of faults in virtual time.

The clients are real channels, and each endpoint of the files is a simulated backend. The output is
a timeline, statistics of the RPCs between one event and the next, and a verdict on each expectation
of the script; the exit code is 1 if one was missed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import ValidationErrors
from proxyless.base.texts import count
from proxyless.cli.output import (
    JSON,
    add_output_option,
    check_rich,
    fail,
    is_screen,
    print_json,
    print_lines,
    print_table,
)
from proxyless.cli.resource_files import (
    add_files_argument,
    describe_errors,
    find_dangling,
    read_resources,
)
from proxyless.controlplane.documents import load_documents
from proxyless.controlplane.files import read_bounded
from proxyless.sim.rehearsal import Mesh, parse_script, parse_seconds, rehearse, show_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxyless.sim.rehearsal import Report
    from proxyless.sim.rehearsal.report import Phase
    from proxyless.sim.rehearsal.script import Script

# A run with this many RPCs and connections shows its progress.
LONG_WORK: Final = 5_000
# With more endpoints, the table has one row per zone.
ROWS_MAX: Final = 40

EXIT_CODES: Final = {
    0: "all expectations of the script held",
    1: "one was missed, or files or script are bad",
    2: "usage error, or a missing extra",
}

_DIGEST_CHARS: Final = 16
_STYLES: Final = {"held": "green", "missed": "bold red"}
# Options that override keys of the script.
_KEYS: Final = ("target", "method", "clients", "rate", "duration", "seed")


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Run clients of the mesh in FILE… while a script injects faults."
    add_files_argument(parser)
    parser.add_argument(
        "--script", metavar="FILE", type=Path, help="events with their times, and expectations"
    )
    parser.add_argument(
        "--target",
        action="append",
        help="target of the channels: xds:///name; may be repeated (default: every listener)",
    )
    parser.add_argument("--method", help="method of the RPCs: /package.Service/Method")
    parser.add_argument("--clients", type=int, metavar="N", help="number of clients (default: 1)")
    parser.add_argument(
        "--rate", type=float, metavar="N", help="RPCs per second of all clients (default: 10)"
    )
    parser.add_argument(
        "--duration",
        type=_parse_duration,
        metavar="TIME",
        help="virtual time of the run, such as 90s (default: 60s)",
    )
    parser.add_argument(
        "--seed", type=int, help="random seed; the same seed gives the same run (default: 0)"
    )
    parser.add_argument(
        "--partial", action="store_true", help="allow references to missing resources"
    )
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the report; returns 1 if an expectation was missed, or if files or script are bad."""
    check_rich(parsed)
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
        report = rehearse(script, meshes, errors, _progress(script, meshes))
        problems += describe_errors(errors, str(parsed.script or ""))
    if report is None:
        return fail("simulate", problems)
    if parsed.output == JSON:
        print_json(report.to_json())
    else:
        _print(report)
    return 0 if report.is_good else 1


def _parse_duration(text: str) -> float:
    seconds = parse_seconds(text)
    if seconds is None:
        seconds = parse_seconds(f"{text}s")
    if seconds is None:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a time such as 90s or 1m30s")
    return seconds


def _read_script(parsed: argparse.Namespace, problems: list[str]) -> Script:
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
    problems += describe_errors(errors, str(parsed.script or ""))
    return script


def _read_mesh(paths: Sequence[Path], problems: list[str], *, is_partial: bool) -> Mesh:
    errors = ValidationErrors()
    located = read_resources(paths, errors)
    for place, resource, field, text in () if is_partial else find_dangling(located):
        with errors.field(place):
            errors.add(f"{resource}: {field}: {text}")
    problems += describe_errors(errors)
    return Mesh.of(resource for _, resource in located)


def _progress(script: Script, meshes: Sequence[Mesh]) -> Callable[[float], None]:
    """Callback that prints the share done, if the run is long and stderr is a terminal."""
    rpcs = sum(flow.rate for flow in script.flows) * script.duration_s
    connections = script.clients * sum(len(mesh.endpoints) for mesh in meshes)
    if rpcs + connections < LONG_WORK or not is_screen(sys.stderr):
        return lambda _share: None

    def show(share: float) -> None:
        end = "\n" if share >= 1.0 else ""
        text = f"\r{share:4.0%} of {show_time(script.duration_s)}"
        print(text, end=end, file=sys.stderr, flush=True)

    return show


def _print(report: Report) -> None:
    for note in report.notes:
        print_lines(f"note: {note}")
    print_table(
        ("time", "what"), [(_show_moment(each.at_s), each.what) for each in report.timeline]
    )
    print_lines("")
    _print_phases(report.phases)
    _print_failures(report.phases)
    _print_shares(report.phases)
    print_lines("")
    verdicts = [
        ("held" if each.is_held else "missed", each.what, each.found) for each in report.verdicts
    ]
    print_table(("verdict", "expected", "found"), verdicts, styles=_STYLES)
    rpcs = sum(phase.rpcs for phase in report.phases)
    failed = sum(phase.failed for phase in report.phases)
    digest = report.digest[:_DIGEST_CHARS]
    print_lines(f"seed {report.seed}: {count(rpcs, 'RPC')}, {failed} failed, digest {digest}")


def _show_moment(at_s: float) -> str:
    """Time with milliseconds, so that the column is aligned."""
    text = show_time(at_s)
    return text if "." in text else f"{text}.000"


def _print_phases(phases: Sequence[Phase]) -> None:
    rows = []
    for number, phase in enumerate(phases, start=1):
        zones: Counter[str] = Counter()
        for share in phase.shares:
            zones[share.zone] += share.rpcs
        total = zones.total()
        shown = [
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
                ", ".join(shown),
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
        print_lines("")
        print_table(("phase", "code", "times", "details, of most"), rows)


def _print_shares(phases: Sequence[Phase]) -> None:
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
    print_lines("")
    print_table(("cluster", "zone", "endpoint", *(f"phase {n + 1}" for n in numbers)), rows)
