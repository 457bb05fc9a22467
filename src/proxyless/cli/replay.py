"""`proxyless replay FILE`: shows a flight recording, and re-runs it in virtual time.

The timeline has the events of the recording, without the RPCs that succeeded. If the recording has
the resources of an xDS target, the re-run serves them at the same times to a real channel, whose
backends come and go as recorded; its decisions are compared with the recorded ones.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import quote
from proxyless.base.texts import count, one_line
from proxyless.cli.arguments import refuse_options
from proxyless.cli.output import (
    JSON,
    add_output_option,
    check_rich,
    describe_error,
    fail,
    print_json,
    print_lines,
    print_table,
    print_verdict,
)
from proxyless.controlplane.resource import type_name
from proxyless.observe.flight import RecordingError, read_lines
from proxyless.observe.flight.recording import RESOURCE_EVENT, RPC_EVENT
from proxyless.sim.replay import ReplayReport, UnsuitableRecordingError, replay

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from proxyless.observe.flight import Entry, Recording
    from proxyless.sim.replay import Decision

FILE_BYTES_MAX: Final = 256 * 1024 * 1024
# Limit of the table of decisions: the last ones of each subject are shown.
DECISIONS_SHOWN_MAX: Final = 8
PICKS_SHOWN_MAX: Final = 10

EXIT_CODES: Final = {
    0: "the re-run made the same decisions, or there was none",
    1: "it made others, or the file is not a recording",
    2: "usage error, or a missing extra",
}

_STYLES: Final = {"same": "green", "different": "bold red"}
_COLUMNS: Final = ("decision", "recorded", "re-run", "result")


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show a flight recording, and compare it with a re-run in virtual time."
    parser.add_argument("file", metavar="FILE", type=Path, help="the recording")
    parser.add_argument("--rpcs", action="store_true", help="show RPCs that succeeded, too")
    parser.add_argument("--no-timeline", action="store_true", help="compare only")
    parser.add_argument("--no-rerun", action="store_true", help="show the timeline only")
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="random seed; the same seed gives the same run (default: %(default)s)",
    )
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print timeline and comparison; returns 1 if they differ, or the file is bad."""
    _check(parsed)
    check_rich(parsed)
    try:
        recording = read_recording(parsed.file)
    except OSError as error:
        return fail("replay", [describe_error(error)])
    except RecordingError as error:
        return fail("replay", [f"{parsed.file}: {error}"])
    report, reason = None, "--no-rerun was given"
    if not parsed.no_rerun:
        try:
            report = replay(recording, parsed.seed)
        except UnsuitableRecordingError as error:
            reason = str(error)
    if parsed.output == JSON:
        print_json(_to_json(recording, report, "" if report else reason))
    else:
        if not parsed.no_timeline:
            for line in show_timeline(recording, has_rpcs=parsed.rpcs):
                print_lines(line)
        _print(recording, report, "" if parsed.no_rerun else reason)
    return 0 if report is None or report.is_same else 1


def _check(parsed: argparse.Namespace) -> None:
    """Refuse options that have no effect."""
    if parsed.output == JSON:
        refuse_options(parsed, ["rpcs", "no_timeline"], "with -o json, which has all entries")
    if parsed.no_timeline:
        refuse_options(parsed, ["rpcs", "no_rerun"], "with --no-timeline")
    if parsed.no_rerun:
        refuse_options(parsed, ["seed"], "with --no-rerun")


def read_recording(path: Path) -> Recording:
    """Read a file of bounded size. Raises OSError or RecordingError."""
    with path.open("rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise RecordingError(f"has more than {FILE_BYTES_MAX} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise RecordingError(f"is not UTF-8 at byte {error.start}") from None
    return read_lines(text.split("\n"))


# Timeline


def show_timeline(recording: Recording, *, has_rpcs: bool) -> Iterator[str]:
    """One line per entry, with the seconds since the first."""
    start_s = min((entry.time for entry in recording.entries), default=0.0)
    for entry in recording.entries:
        is_hidden = entry.event == RPC_EVENT and not has_rpcs and _is_ok(entry)
        if not is_hidden:
            yield f"{entry.time - start_s:+12.3f} s  {_describe(entry)}"


def _is_ok(entry: Entry) -> bool:
    status = entry.fields.get("status")
    return isinstance(status, dict) and status.get("code") == "OK"


def _describe(entry: Entry) -> str:
    fields = entry.fields
    if entry.event == RESOURCE_EVENT:
        kind = type_name(str(fields.get("type_url", "")))
        what = f"{kind} {quote(str(fields.get('name', '')))}"
        if fields.get("is_removed"):
            return f"resource {one_line(what)} is not held any more"
        return f"resource {one_line(what)}, version {quote(str(fields.get('version', '')))}"
    shown = " ".join(f"{key}={_show(value)}" for key, value in fields.items() if value != "")
    return one_line(f"{entry.event} {shown}")


def _show(value: Any) -> str:  # noqa: ANN401 - a JSON value
    match value:
        case {"code": code, "details": details}:
            return f"{code} {quote(str(details))}" if details else str(code)
        case [*items]:
            return f"[{', '.join(map(_show, items))}]"
        case _:
            return str(value)


# Comparison


def _print(recording: Recording, report: ReplayReport | None, reason: str) -> None:
    dropped = f", {recording.left_out} older ones displaced" if recording.left_out else ""
    print_lines(f"{count(len(recording.entries), 'entry', 'entries')}{dropped}")
    if report is None:
        if reason:
            print_lines(f"not re-run: {reason}")
        return
    rows = [
        (
            one_line(each.subject),
            _show_sequence(each.recorded),
            _show_sequence(each.replayed),
            _verdict(is_same=each.is_same),
        )
        for each in report.decisions
    ]
    print_table(_COLUMNS, rows, styles=_STYLES)
    for note in report.notes:
        print_lines(f"note: {note}")
    strays = [each for each in report.picks if not each.is_same]
    for each in strays[:PICKS_SHOWN_MAX]:
        where = each.address or each.code
        possible = ", ".join(each.possible) or "none"
        text = (
            f"{each.at_s:+.3f} s {each.path}: recorded {where}, possible in the re-run: {possible}"
        )
        print_lines(one_line(text))
    same = len(report.picks) - len(strays)
    sampled = f"{same} of {count(len(report.picks), 'sampled RPC')} would go the same way"
    outcome = "the same decisions" if report.is_same else "different decisions"
    print_verdict(f"{outcome}; {sampled}", is_good=report.is_same)


def _verdict(*, is_same: bool) -> str:
    return "same" if is_same else "different"


def _show_sequence(decisions: tuple[Decision, ...]) -> str:
    shown = [f"{one_line(each.value)} at {each.at_s:.3f} s" for each in decisions]
    more = len(shown) - DECISIONS_SHOWN_MAX
    return ", ".join([f"({more} more)", *shown[more:]] if more > 0 else shown)


def _to_json(
    recording: Recording, report: ReplayReport | None, reason: str
) -> Mapping[str, object]:
    document: dict[str, object] = {
        "header": dict(recording.header),
        "entries": [asdict(entry) for entry in recording.entries],
        "left_out": recording.left_out,
        "is_cut": recording.is_cut,
    }
    if report is None:
        return {**document, "not_replayed": reason}
    document["replay"] = {
        "is_same": report.is_same,
        "decisions": [asdict(each) for each in report.decisions],
        "picks": [{**asdict(each), "is_same": each.is_same} for each in report.picks],
        "notes": list(report.notes),
    }
    return document
