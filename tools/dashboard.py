"""Generator of docs/grafana/proxyless.json, a Grafana dashboard, from the list of instruments.

    python -m tools.dashboard            rewrite the file
    python -m tools.dashboard --check    only compare

A few panels are written here: those that join instruments. Every other instrument has a panel
according to its kind, so that a new one needs no change here. The queries are Prometheus's; names
are those that OpenTelemetry's Prometheus exporter makes.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxyless.metrics import Instrument, Kind
from proxyless.metrics.instruments import (
    ATTEMPT_STARTED,
    BACKEND_SERVICE,
    CALL_DURATION,
    CALL_HEDGES,
    CALL_RETRIES,
    CALL_TRANSPARENT_RETRIES,
    DISCONNECT_ERROR,
    INSTRUMENTS,
    METHOD,
    STATUS,
    TARGET,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "grafana" / "proxyless.json"

SCHEMA_VERSION: Final = 39
COLUMNS: Final = 24
PANEL_WIDTH: Final = 8
PANEL_HEIGHT: Final = 8

# The title of each section, and prefixes of its instruments. The first that fits.
SECTIONS: Final = (
    ("RPCs", ("grpc.client.",)),
    ("Connections", ("grpc.subchannel.",)),
    ("Load balancing", ("grpc.lb.", "proxyless.xds_cluster.")),
    ("Control plane", ("grpc.xds_client.", "proxyless.")),
)
# Suffixes of metric names, and Grafana's units, by unit of an instrument.
SUFFIXES: Final = {"s": "_seconds", "By": "_bytes"}
GRAFANA_UNITS: Final = {"s": "s", "By": "bytes"}
QUANTILES: Final = (0.5, 0.9, 0.99)
# Labels that histograms of RPCs are added up over.
OF_RPCS: Final = (METHOD, TARGET, STATUS)
# Histograms of numbers per RPC, whose sum is the number of events.
SUMMED: Final = (CALL_RETRIES, CALL_TRANSPARENT_RETRIES, CALL_HEDGES)
# Optional labels that panels group by. A label that is not enabled is empty.
GROUPED: Final = (BACKEND_SERVICE, DISCONNECT_ERROR)

_SELECTED: Final = '{grpc_target=~"$target"}'
_INTERVAL: Final = "[$__rate_interval]"
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Query:
    """An expression in PromQL, and the legend of its lines."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """A graph."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]


def label_name(label: str) -> str:
    return label.replace(".", "_")


def metric_name(instrument: Instrument) -> str:
    """The name that the exporter gives to an instrument, without suffixes of histograms."""
    name = label_name(instrument.name) + SUFFIXES.get(instrument.unit, "")
    return f"{name}_total" if instrument.kind is Kind.COUNTER else name


def rate(series: str) -> str:
    return f"rate({series}{_SELECTED}{_INTERVAL})"


def sum_by(labels: tuple[str, ...], expr: str) -> str:
    return f"sum by ({', '.join(label_name(each) for each in labels)}) ({expr})"


def legend_of(labels: tuple[str, ...]) -> str:
    return " ".join(f"{{{{{label_name(each)}}}}}" for each in labels)


def histogram_queries(instrument: Instrument) -> tuple[Query, ...]:
    """Quantiles; of a histogram with labels of its own, the last quantile by these labels."""
    own = tuple(each for each in instrument.labels if each not in OF_RPCS)
    series = rate(f"{metric_name(instrument)}_bucket")
    buckets = sum_by(("le", *own), series)
    return tuple(
        Query(
            f"histogram_quantile({each:g}, {buckets})", f"p{100 * each:g} {legend_of(own)}".strip()
        )
        for each in (QUANTILES[-1:] if own else QUANTILES)
    )


def call_panels() -> Iterator[Panel]:
    """Panels that join instruments of RPCs."""
    calls = f"{metric_name(CALL_DURATION)}_count"
    by: tuple[str, ...] = (METHOD, STATUS)
    yield Panel(
        "RPCs", "RPCs that ended.", "reqps", (Query(sum_by(by, rate(calls)), legend_of(by)),)
    )
    failed = rate(calls).replace(_SELECTED, '{grpc_target=~"$target", grpc_status!="OK"}')
    ratio = f"{sum_by((METHOD,), failed)} / {sum_by((METHOD,), rate(calls))}"
    yield Panel(
        "Failed RPCs",
        "Share of the RPCs that ended with another status than OK.",
        "percentunit",
        (Query(ratio, legend_of((METHOD,))),),
    )
    by = (METHOD,)
    started = sum_by(by, rate(metric_name(ATTEMPT_STARTED)))
    yield Panel(
        "Attempts per RPC",
        "Above 1: retries and hedges.",
        "none",
        (Query(f"{started} / {sum_by(by, rate(calls))}", legend_of(by)),),
    )


def panel_of(instrument: Instrument) -> Panel:
    """The panel of an instrument according to its kind."""
    name = metric_name(instrument)
    optional = tuple(each for each in instrument.optional_labels if each in GROUPED)
    by = (*instrument.labels, *optional)
    unit = GRAFANA_UNITS.get(instrument.unit, "none")
    queries: tuple[Query, ...]
    match instrument.kind:
        case Kind.HISTOGRAM if instrument in SUMMED:
            unit = "cps"
            queries = (Query(sum_by(by, rate(f"{name}_sum")), legend_of(by)),)
        case Kind.HISTOGRAM:
            queries = histogram_queries(instrument)
        case Kind.COUNTER:
            unit = "cps"
            queries = (Query(sum_by(by, rate(name)), legend_of(by)),)
        case Kind.GAUGE | Kind.UP_DOWN_COUNTER:
            queries = (Query(sum_by(by, name + _SELECTED), legend_of(by)),)
    return Panel(instrument.name, instrument.description, unit, queries)


def section_of(instrument: Instrument) -> str:
    return next(title for title, prefixes in SECTIONS if instrument.name.startswith(prefixes))


def find_sections() -> Iterator[tuple[str, list[Panel]]]:
    """The title and the panels of each section."""
    shown = [each for each in INSTRUMENTS if not each.is_replaced]
    for title, _ in SECTIONS:
        joined = call_panels() if title == SECTIONS[0][0] else ()
        yield title, [*joined, *(panel_of(each) for each in shown if section_of(each) == title)]


def format_panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": PANEL_WIDTH, "h": PANEL_HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
            }
            for index, query in enumerate(panel.queries)
        ],
    }


def format_panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    y = 0
    for title, panels in find_sections():
        row = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        found.append(
            {"id": len(found) + 1, "type": "row", "title": title, "gridPos": row, "panels": []}
        )
        y += 1
        per_line = COLUMNS // PANEL_WIDTH
        for index, panel in enumerate(panels):
            line, column = divmod(index, per_line)
            at = (column * PANEL_WIDTH, y + line * PANEL_HEIGHT)
            found.append(format_panel(panel, len(found) + 1, *at))
        y += -(-len(panels) // per_line) * PANEL_HEIGHT
    return found


def make_dashboard() -> dict[str, Any]:
    return {
        "uid": "proxyless",
        "title": "Proxyless",
        "description": "gRPC clients of a mesh: RPCs, connections, load balancing, control planes.",
        "tags": ["grpc", "xds"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {
                    "name": "target",
                    "type": "query",
                    "datasource": _DATASOURCE,
                    "query": f"label_values({metric_name(ATTEMPT_STARTED)}, {label_name(TARGET)})",
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": format_panels(),
    }


def format_dashboard() -> str:
    return json.dumps(make_dashboard(), indent=2) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare the file")
    options = parser.parse_args(arguments)
    text, name = format_dashboard(), PAGE.relative_to(ROOT)
    if not options.check:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text)
        print(f"wrote {name}")
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    print(f"{name} is not up to date: run python -m tools.dashboard", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
