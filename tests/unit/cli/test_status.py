"""Unit tests of proxyless.cli.status without sockets. Others are in tests/interop."""

from datetime import UTC, datetime, timedelta

import pytest

from proxyless.cli.status import _rows, _summarize, _to_json, show_age, sort_resources
from proxyless.controlplane import CLUSTER, LISTENER
from proxyless.observe import ClientStatus, ResourceRow
from proxyless.protos import message_class


def row(type_url: str = CLUSTER, value: bytes = b"") -> ResourceRow:
    return ResourceRow(type_url, "a", "NACKED", "1", "", "is bad", "2", value)


def client(*rows: ResourceRow) -> ClientStatus:
    return ClientStatus("xds:///api", "me", "proxyless", rows)


def test_row_has_the_short_type_and_the_error() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert list(_rows([client(row())], now)) == [
        ("xds:///api", "Cluster", "a", "NACKED", "1", "    ", "is bad")
    ]


def test_client_without_resources_is_shown() -> None:
    ((scope, *_, status, _, _, _),) = _rows([client()], datetime(2026, 1, 1, tzinfo=UTC))
    assert (scope, status) == ("xds:///api", "nothing is watched")


def test_contents_are_json_or_bytes_if_the_type_is_unknown() -> None:
    cluster = message_class("envoy.config.cluster.v3.Cluster")(name="a")
    document = _to_json(client(row(value=cluster.SerializeToString()), row("x/y.Z", b"\1")))
    known, unknown = document["resources"]
    assert known["resource"] == {"name": "a"}
    assert unknown["resource"] == {"serialized": "01"}
    assert "resource" not in _to_json(client(row()))["resources"][0]


def named(type_url: str, name: str, status: str = "ACKED", updated: str = "") -> ResourceRow:
    return ResourceRow(type_url, name, status, "1", updated, "", "", b"")


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("type", ["l", "a", "b"]),
        ("name", ["a", "b", "l"]),
        ("status", ["b", "l", "a"]),
        ("age", ["a", "l", "b"]),
    ],
)
def test_resources_are_sorted_by_the_given_order(order: str, wanted: list[str]) -> None:
    rows = (
        named(CLUSTER, "b", "REQUESTED"),
        named(CLUSTER, "a", updated="2026-01-02T00:00:00Z"),
        named(LISTENER, "l", updated="2026-01-01T00:00:00Z"),
    )
    found = sort_resources(client(*rows), order)
    assert [each.name for each in found.resources] == wanted


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (7_199, "119m"),
        (7_200, "2h"),
        (2e5, "2d"),
    ],
)
def test_age_is_in_the_largest_unit_of_which_there_are_two(seconds: float, shown: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert show_age((now - timedelta(seconds=seconds)).isoformat(), now) == shown


def test_age_is_empty_without_a_readable_time() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert [show_age(text, now) for text in ("", "soon", "2026-01-01T00:00:00")] == ["", "", ""]


def test_summary_counts_with_plurals() -> None:
    assert _summarize([client()]) == "0 resources of 1 xDS client"
    rows = (named(CLUSTER, "a"), named(CLUSTER, "b"), named(CLUSTER, "c", "NACKED"))
    assert _summarize([client(*rows), client()]) == (
        "3 resources of 2 xDS clients: 2 ACKED, 1 NACKED"
    )
