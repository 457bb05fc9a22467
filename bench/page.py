"""Page of all results: writes docs/performance.md and its plots from one file of results.

    python -m bench.page [--check] [--results FILE]

What is written by hand is in docs/performance-notes.md: a section `## P9 ...` follows the tables of
row P9, sections before the first of a row come before the rows, the others after them. `--check`
changes nothing, and fails if the page or a plot is not what the results give.

Exit codes: 0 written, or with --check all are current; 1 not current; 2 wrong usage.
"""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.all import RESULTS
from bench.all_rows import ROWS
from bench.page_tables import format_figures, format_judgements, format_summary
from bench.plots import Plot, format_svg
from bench.results import MISSED, RowResult, load

PAGE: Final = Path("docs/performance.md")
NOTES: Final = Path("docs/performance-notes.md")
IMAGES: Final = Path("docs/images")
_HEADING: Final = re.compile(r"^## (?P<title>.*)$", re.MULTILINE)
_ROW_TITLE: Final = re.compile(r"(P\d+|picks|churn)\b")

# By file: title, axes, and the figures: row, workload or row of the mesh, measure.
_LOADS: Final = {1: "unary-16B-1", 16: "unary-16B-16", 100: "unary-16B-100"}
_SIZED: Final = {
    "performance-endpoints.svg": (
        "CPU until all endpoints are connected",
        "endpoints",
        "seconds of CPU",
        ("P9", "many_endpoints", "cpu_s"),
    ),
    "performance-clusters.svg": (
        "Time to the first RPC",
        "clusters",
        "seconds",
        ("P12", "many_clusters", "first_rpc_s"),
    ),
    "performance-routes.svg": (
        "CPU per RPC if only the last route matches, by path",
        "routes",
        "µs of CPU per RPC",
        ("P8", "routes_by_path", "cpu_us"),
    ),
}
NAMES: Final = {
    "grpc_aio_xds": "grpcio",
    "xds_asyncio": "ours, asyncio",
    "xds_uvloop": "ours, uvloop",
    "connectrpc": "connectrpc",
    "envoy_sidecar": "grpcio and Envoy",
}


def make_plots(rows: Mapping[str, RowResult]) -> dict[str, Plot]:
    """Plots by file name; one without figures is left out."""
    plots = {
        "performance-cpu.svg": Plot(
            "Client CPU per unary RPC of 16 B in a mesh",
            "in flight",
            "µs of CPU per RPC",
            _by_load(rows, "cpu_us", 1.0),
        ),
        "performance-latency.svg": Plot(
            "Median latency of a unary RPC of 16 B in a mesh",
            "in flight",
            "milliseconds",
            _by_load(rows, "p50_us", 1e-3),
        ),
    }
    for name, (title, x_text, y_text, (number, what, measure)) in _SIZED.items():
        lines = {}
        if number in rows:
            for client, by_size in rows[number].find(what, measure).items():
                points = {float(size): each.median for size, each in by_size.items()}
                lines[NAMES.get(client, client)] = points
        plots[name] = Plot(title, x_text, y_text, lines)
    return {name: plot for name, plot in plots.items() if plot.lines}


def _by_load(
    rows: Mapping[str, RowResult], measure: str, factor: float
) -> dict[str, dict[float, float]]:
    lines: dict[str, dict[float, float]] = {}
    for load_, what in _LOADS.items():
        for row in rows.values():
            if row.number not in ("P1", "P2", "P3"):
                continue
            for client, by_size in row.find(what, measure).items():
                line = lines.setdefault(NAMES.get(client, client), {})
                line[float(load_)] = by_size[1].median * factor
    return lines


def split_notes(text: str) -> tuple[str, dict[str, str], str]:
    """Text before the rows, by row, and after them. The title of the file is left out."""
    parts = _HEADING.split(text)
    before: list[str] = []
    after: list[str] = []
    by_row: dict[str, str] = {}
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        found = _ROW_TITLE.match(title)
        if found:
            earlier = by_row.get(found[1])
            by_row[found[1]] = f"{earlier}\n\n{body.strip()}" if earlier else body.strip()
        else:
            (after if by_row else before).append(f"## {title}\n\n{body.strip()}")
    return "\n\n".join(before), by_row, "\n\n".join(after)


def make_page(rows: Sequence[RowResult], notes: str, plots: Mapping[str, Plot]) -> str:
    before, by_row, after = split_notes(notes)
    measured = {row.number for row in rows}
    others = [row for row in ROWS if row.number in by_row.keys() - measured]
    images = [f"![{plot.title}](images/{name})" for name, plot in plots.items()]
    # Misses first.
    sorted_rows = sorted(rows, key=lambda row: row.outcome != MISSED)
    parts = [
        "# Performance",
        (
            "<!-- Made by `python -m bench.page` from bench/results/latest.json and"
            " docs/performance-notes.md: change those. -->"
        ),
        before,
        "## Summary",
        format_summary(rows),
        *images,
        *(_format_row(row, by_row.get(row.number, "")) for row in sorted_rows),
        *(
            f"## {row.number}: {row.title}\n\nNot in the last run.\n\n{by_row[row.number]}"
            for row in others
        ),
        after,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _format_row(row: RowResult, note: str) -> str:
    environment = row.environment
    when = row.date.partition("T")[0]
    load_average = f"load average {environment.get('load_average', 0):.1f} at the start"
    rounds = "1 round" if row.rounds == 1 else f"{row.rounds} rounds"
    facts = f"{rounds} on {when}, commit {environment.get('commit')}, {load_average}"
    parts = [
        f"## {row.number}: {row.title}",
        f"{row.outcome.capitalize()}. {facts}.",
        format_judgements(row),
        format_figures(row),
        *(f"Not measured: {client}: {why}." for client, why in row.unavailable.items()),
        *(f"Failed: {what}: {why}" for what, why in row.failures.items()),
        note,
    ]
    return "\n\n".join(part for part in parts if part)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("bench/page.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, only compare")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"default {RESULTS}")
    arguments = parser.parse_args(argv)
    rows = load(arguments.results)
    if not rows:
        parser.error(f"no results in {arguments.results}: run `make bench-all`")
    plots = make_plots({row.number: row for row in rows})
    files = {IMAGES / name: format_svg(plot) for name, plot in plots.items()}
    files[PAGE] = make_page(rows, NOTES.read_text(), plots)
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if arguments.check:
        for path in stale:
            print(f"{path} is not current: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(files[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
