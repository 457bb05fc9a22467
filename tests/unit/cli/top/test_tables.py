"""Unit tests of proxyless.cli.top.tables."""

from __future__ import annotations

import pytest

from proxyless.cli.top.samples import with_rates
from proxyless.cli.top.tables import (
    SampleTable,
    show_rate,
    tabulate_all,
    tabulate_channels,
    tabulate_clusters,
    tabulate_endpoints,
)
from tests.unit.cli.top.process_samples import make_sample

SAMPLE = with_rates(make_sample(100, 10.0), make_sample(150, 12.0, failed=1))

FAILURE = "last failure: /a/b: UNAVAILABLE: gone"


def texts(table: SampleTable) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in table.rows]


def test_channels_have_rates_and_their_last_failure() -> None:
    assert texts(tabulate_channels(SAMPLE)) == [
        ["xds:///api", "READY", "25", "0.5", "2", "0", "3", "2", FAILURE],
        ["dns:///b", "IDLE", "0", "0", "0", "0", "0", "0", ""],
    ]


def test_clusters_have_ready_and_ejected_endpoints_and_the_priority_in_use() -> None:
    assert texts(tabulate_clusters(SAMPLE.channels[0])) == [
        ["web", "READY", "25", "0.5", "2", "1 of 3", "1", "0 of 2", ""],
        ["old", "TRANSIENT_FAILURE", "0", "0", "0", "- of 0", "-", "-", "no endpoints"],
    ]


def test_endpoints_have_locality_and_notes() -> None:
    table = tabulate_endpoints(SAMPLE.channels[0].clusters[0])
    assert table.title == "endpoints of web"
    assert [row[0:2] + row[5:] for row in texts(table)] == [
        ["10.0.0.1:80", "READY", "0", "eu/a", ""],
        ["10.0.0.2:80", "TRANSIENT_FAILURE", "1", "", "refused"],
        ["10.0.0.3:80", "READY", "1", "", "ejected"],
    ]


def test_table_of_all_has_a_row_for_what_has_no_endpoints() -> None:
    table = tabulate_all(SAMPLE)
    assert all(len(row.cells) == len(table.columns) for row in table.rows)
    assert [row[:4] for row in texts(table)] == [
        ["xds:///api", "web", "10.0.0.1:80", "READY"],
        ["xds:///api", "web", "10.0.0.2:80", "TRANSIENT_FAILURE"],
        ["xds:///api", "web", "10.0.0.3:80", "READY"],
        ["xds:///api", "old", "-", "TRANSIENT_FAILURE"],
        ["dns:///b", "-", "-", "IDLE"],
    ]


@pytest.mark.parametrize(
    ("column", "is_reversed", "wanted"),
    [
        ("", False, ["1", "2", "3"]),
        ("rpc/s", False, ["1", "2", "3"]),
        ("rpc/s", True, ["3", "2", "1"]),
        ("endpoint", True, ["3", "2", "1"]),
        ("state", False, ["1", "3", "2"]),
        ("note", False, ["1", "3", "2"]),
    ],
)
def test_rows_are_sorted_by_values(column: str, is_reversed: bool, wanted: list[str]) -> None:
    table = tabulate_endpoints(SAMPLE.channels[0].clusters[0])
    rows = table.sorted_by(column, is_reversed=is_reversed)
    assert [row.key[7] for row in rows] == wanted


@pytest.mark.parametrize(
    ("rate", "text"), [(None, "-"), (0.0, "0"), (0.25, "0.2"), (9.5, "9.5"), (12345.6, "12,346")]
)
def test_rate_is_whole_from_10_on(rate: float | None, text: str) -> None:
    assert show_rate(rate).text == text
