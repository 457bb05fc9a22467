"""Unit tests of proxyless.cli.file_positions."""

from __future__ import annotations

import pytest

from proxyless.cli.file_positions import FilePositions

TEXTS = {
    "a.yaml": "service: x\nroutes:\n- to: y\n  timeout: 1s\n",
    "a.yaml[0].yaml": "name: z\nlbPolicy: RANDOM\n",
    "b.json": '{"name": 1,\n "lb_policy": 2}',
    "broken.yaml": "a: [",
}


@pytest.mark.parametrize(
    ("place", "field", "shown"),
    [
        ("a.yaml[0].routes", "virtual_hosts[0].routes[0].route.max_stream_duration", "a.yaml:4:3"),
        ("a.yaml[0].service", "", "a.yaml:1:1"),
        ("a.yaml[0].yaml[0]", "lb_policy", "a.yaml[0].yaml:2:1"),
        ("b.json[0]", "lb_policy", "b.json:2:2"),
        ("broken.yaml[0]", "a", "broken.yaml"),
        ("broken.yaml", "", "broken.yaml"),
        ("other.yaml[0]", "a", "other.yaml[0]"),
    ],
)
def test_place_has_file_line_and_column(place: str, field: str, shown: str) -> None:
    assert str(FilePositions(TEXTS).find(place, field)) == shown


def test_only_the_short_form_has_paths_of_its_own() -> None:
    positions = FilePositions(TEXTS)
    field = "virtual_hosts[0].routes[0].route.max_stream_duration"
    assert positions.find("a.yaml[0].routes", field).short_path == "routes[0].timeout"
    assert positions.find("b.json[0]", "lb_policy").short_path == ""
    assert positions.is_short_form("a.yaml[0].service")
    assert not positions.is_short_form("b.json[0]")
