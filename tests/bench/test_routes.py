"""Benchmark of routes: its subjects, results and command line, without a check of times."""

import json
from pathlib import Path

import pytest

from bench.routes import (
    METADATA,
    SIZES,
    SUBJECTS,
    Result,
    format_results,
    main,
    make_routes,
    make_selector,
    select,
)
from proxyless.base import Status
from proxyless.runtime import seeded_random
from proxyless.xds.resources import VirtualHost
from proxyless.xds.routing.route_table import RouteTable

FLAT = Result("flat", {10: [100.0, 900.0, 90.0], 10_000: [120.0]}, {10: 1.0, 10_000: 2.0})
STEEP = Result("steep", {10: [100.0], 10_000: [121.0]}, {10: 1.0, 10_000: 2.0})


@pytest.mark.parametrize("subject", SUBJECTS)
def test_only_the_last_route_matches(subject: str) -> None:
    routes = make_routes(subject, 20)
    assert len(routes) == 20
    table = RouteTable(VirtualHost(domains=("*",), routes=routes), seeded_random(1))
    found = table.find("/wanted.Service/Method1", METADATA)
    assert found is not None
    assert found.index == 19
    assert isinstance(make_selector(routes[:-1]).select("/wanted.Service/M", METADATA), Status)


def test_selection_releases_its_cluster_reference() -> None:
    selector = make_selector(make_routes("mixed", 10))
    [ref] = selector._refs.values()  # noqa: SLF001 - the reference count
    for _ in range(3):
        select(selector, "/wanted.Service/M")
    assert ref.count == 1


def test_target_is_met_by_the_ratio_of_medians() -> None:
    assert (FLAT.ns(10), FLAT.ratio, FLAT.is_met) == (100.0, 1.2, True)
    assert not STEEP.is_met
    text = format_results([FLAT, STEEP])
    assert "1.20" in text
    assert "pass" in text
    assert "miss" in text


def test_command_writes_results_of_all_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "routes.json"
    arguments = ["--rounds", "1", "--seconds", "0.0001", "--only", "paths", "--json", str(out)]
    assert main(arguments) == 0
    assert "10,000:10" in capsys.readouterr().out
    [result] = json.loads(out.read_text())["results"]
    assert list(result["ns_per_rpc"]) == [str(size) for size in SIZES]
    with pytest.raises(SystemExit):
        main(["--only", "nothing"])
