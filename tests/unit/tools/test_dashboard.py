"""Unit tests of tools.dashboard, with OpenTelemetry's Prometheus exporter."""

from __future__ import annotations

import json
import re
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

from proxyless.metrics import Instrument, Kind, Report
from proxyless.metrics.instruments import INSTRUMENTS
from proxyless.otel import OpenTelemetryPlugin
from tools import dashboard

if TYPE_CHECKING:
    from pathlib import Path

# A name that is followed by a selector is a metric; all others are labels.
NAMES = re.compile(r"\b((?:grpc|proxyless)_\w+)(\{?)")
QUERIED = re.compile(r"(\w+)\{[^}]*\}")


def observe_one(gauge: Instrument, report: Report) -> None:
    report(gauge, 1, gauge.labels)


@cache
def exported() -> dict[str, set[str]]:
    """The labels of every series that the exporter makes of our instruments."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry)
    plugin = OpenTelemetryPlugin(
        meter_provider=MeterProvider([reader]),
        enable_metrics=["*", *(each.name for each in INSTRUMENTS)],
        optional_labels=sorted({name for each in INSTRUMENTS for name in each.optional_labels}),
    )
    for each in INSTRUMENTS:
        if each.kind is Kind.GAUGE:
            plugin.watch([each], partial(observe_one, each))
        else:
            plugin.record(each, 1, each.labels, each.optional_labels)
    return {
        sample.name: set(sample.labels)
        for family in registry.collect()
        for sample in family.samples
    }


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = dashboard.make_dashboard()["panels"]
    return found


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel.get("targets", ())]


def test_the_file_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert dashboard.main(["--check"]) == 0, capsys.readouterr().err


def test_check_fails_when_the_file_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "grafana" / "proxyless.json"
    monkeypatch.setattr(dashboard, "ROOT", tmp_path)
    monkeypatch.setattr(dashboard, "PAGE", page)
    assert dashboard.main(["--check"]) == 1
    assert "is not up to date" in capsys.readouterr().err
    assert dashboard.main([]) == 0
    assert json.loads(page.read_text())["title"] == "Proxyless"
    assert dashboard.main(["--check"]) == 0
    page.write_text("{}")
    assert dashboard.main(["--check"]) == 1


@pytest.mark.parametrize("expr", queries())
def test_queries_name_only_series_and_labels_that_the_exporter_makes(expr: str) -> None:
    series = QUERIED.findall(expr)
    assert series
    for name in series:
        assert name in exported()
    labels = {name for name, brace in NAMES.findall(expr) if not brace}
    assert labels <= set.intersection(*(exported()[name] for name in series))


def test_every_instrument_is_shown_unless_it_was_replaced() -> None:
    text = " ".join(queries())
    for each in INSTRUMENTS:
        is_shown = (
            re.search(rf"\b{dashboard.metric_name(each)}(_bucket|_sum)?\{{", text) is not None
        )
        assert is_shown is not each.is_replaced, each.name


def test_parentheses_and_braces_of_queries_are_balanced() -> None:
    for expr in queries():
        for opening, closing in ("()", "{}", "[]"):
            assert expr.count(opening) == expr.count(closing), expr


def test_panels_have_their_own_ids_and_places() -> None:
    found = panels()
    assert len({each["id"] for each in found}) == len(found)
    cells = [
        (x, y)
        for each in found
        for place in [each["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < dashboard.COLUMNS


def test_a_new_instrument_has_a_panel_by_its_kind() -> None:
    own = Instrument("proxyless.new.waits", Kind.HISTOGRAM, "s", "Waits.", ("grpc.target", "why"))
    panel = dashboard.panel_of(own)
    assert (panel.title, panel.unit) == ("proxyless.new.waits", "s")
    (query,) = panel.queries
    assert query.expr == (
        "histogram_quantile(0.99, sum by (le, why) "
        '(rate(proxyless_new_waits_seconds_bucket{grpc_target=~"$target"}[$__rate_interval])))'
    )
    assert query.legend == "p99 {{why}}"
