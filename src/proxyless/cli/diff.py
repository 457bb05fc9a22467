"""`proxyless diff OLD NEW`: shows what a change of a mesh means for RPCs.

It compares routes, weights, timeouts, endpoints and policies. Then it runs both meshes in virtual
time, with the change in the middle, and reports the RPCs that failed and where RPCs went before and
after it. The exit code is 1 if one failed, or if a client rejected the new mesh.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import ValidationErrors, one_line
from proxyless.base.texts import count
from proxyless.cli.arguments import parse_method
from proxyless.cli.output import JSON, add_output_option, fail, print_json, print_lines
from proxyless.cli.resource_files import describe_errors, read_resources
from proxyless.controlplane.resource import LISTENER
from proxyless.observe.mesh_diff import diff_meshes
from proxyless.observe.methods import sample_methods
from proxyless.sim.rehearsal import Mesh, parse_script, rehearse

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from proxyless.controlplane import Resource
    from proxyless.observe.mesh_diff import Change
    from proxyless.sim.rehearsal import Report
    from proxyless.sim.rehearsal.report import Phase

EXIT_CODES: Final = {
    0: "all simulated RPCs succeeded",
    1: "an RPC failed, or a client rejected the new mesh, or a file is bad",
    2: "usage error, or a missing extra",
}

DURATION_S: Final = 60.0
RATE: Final = 20.0


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show what the change from OLD to NEW means for RPCs."
    parser.add_argument("old", metavar="OLD", type=Path, help="a file, or a directory of files")
    parser.add_argument("new", metavar="NEW", type=Path, help="a file, or a directory of files")
    parser.add_argument(
        "--method",
        dest="methods",
        metavar="METHOD",
        action="append",
        type=parse_method,
        default=[],
        help="method of simulated RPCs; may be repeated (default: one for each route of OLD)",
    )
    parser.add_argument(
        "--no-simulate",
        dest="is_simulated",
        action="store_false",
        help="do not run the change in virtual time",
    )
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the changes and the result of the run; returns 1 if an RPC failed."""
    if parsed.methods and not parsed.is_simulated:
        parsed.parser.error("argument --method: has no effect with --no-simulate")
    errors = ValidationErrors()
    old, new = (
        [resource for _, resource in read_resources([path], errors)]
        for path in (parsed.old, parsed.new)
    )
    if not errors.ok:
        return fail("diff", describe_errors(errors))
    changes = diff_meshes(_messages(old), _messages(new))
    report, problems = None, ValidationErrors()
    if parsed.is_simulated and changes and _has_listener(old):
        report = _simulate(old, new, parsed.methods, problems)
    if parsed.output == JSON:
        print_json(_to_json(changes, report))
    else:
        _print(changes, report)
    if not problems.ok:  # The meshes cannot be simulated.
        return fail("diff", describe_errors(problems))
    return 0 if report is None or report.is_good else 1


def _messages(resources: Sequence[Resource]) -> list[Any]:
    return [resource.message() for resource in resources]


def _has_listener(resources: Sequence[Resource]) -> bool:
    return any(resource.type_url == LISTENER for resource in resources)


def _simulate(
    old: Sequence[Resource],
    new: Sequence[Resource],
    methods: Sequence[str],
    errors: ValidationErrors,
) -> Report | None:
    """The report of a run with the change in the middle; None adds errors."""
    given = list(methods) or sample_methods(_messages(old))
    document = {
        "duration": DURATION_S,
        "rate": RATE,
        "method": given,
        "events": [{"at": DURATION_S / 2, "push": "the new mesh"}],
        "expect": [{"failed": 0, "refused_configs": 0}],
    }
    script = parse_script(document, errors)
    if not errors.ok:
        return None
    return rehearse(script, [Mesh.of(old), Mesh.of(new)], errors)


# Output


def _to_json(changes: Sequence[Change], report: Report | None) -> dict[str, Any]:
    return {
        "changes": [
            {
                "kind": each.kind.value,
                "subject": each.subject,
                "aspect": each.aspect or None,
                "before": each.before,
                "after": each.after,
                "what": str(each),
            }
            for each in changes
        ],
        "simulation": None if report is None else report.to_json(),
    }


def _print(changes: Sequence[Change], report: Report | None) -> None:
    for change in changes:
        _print_line(str(change))
    print_lines(count(len(changes), "change"))
    if report is None:
        return
    print_lines("")
    for note in report.notes:
        _print_line(f"note: {note}")
    for words, phase in zip(("before", "after"), report.phases, strict=True):
        _print_line(f"simulated {words}: {_describe(phase)}")
        for each in phase.failures:
            _print_line(f"  {count(each.times, 'RPC')} failed with {each.code}: {each.details}")
    for verdict in report.verdicts:
        if not verdict.is_held:
            _print_line(f"missed: {verdict.what}: {verdict.found}")


def _print_line(text: str) -> None:
    """Print one line: names of resources may have line ends."""
    indent = text[: len(text) - len(text.lstrip(" "))]
    print_lines(indent + one_line(text))


def _describe(phase: Phase) -> str:
    clusters: Counter[str] = Counter()
    for share in phase.shares:
        clusters[f"{share.cluster} in zone {share.zone or '(none)'}"] += share.rpcs
    total = clusters.total()
    shown = [f"{100 * rpcs / total:.0f} % to {name}" for name, rpcs in sorted(clusters.items())]
    ended = f"{count(phase.rpcs, 'RPC')}, {phase.failed} failed"
    return f"{ended}; {', '.join(shown)}" if shown else ended
