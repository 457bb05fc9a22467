"""All rows in one command: which there are, and a short run of some."""

from __future__ import annotations

import json
import traceback
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from bench import all as bench_all
from bench.all_rows import ROWS, RowRun, Step, select_rows
from bench.clients import CLIENTS
from bench.conversion import Converted
from bench.results import Figure, load
from bench.rpc import parse_arguments
from bench.scale_targets import ROWS as SCALE_ROWS
from bench.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any


def test_every_number_of_the_targets_has_a_row() -> None:
    numbers = {row.number for row in ROWS}
    assert numbers >= {f"P{n}" for n in range(1, 21)}
    assert {target.number for target in TARGETS} - {""} <= numbers
    assert {row.number for row in SCALE_ROWS} <= numbers


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_programs_of_a_row_accept_their_arguments(row: RowRun) -> None:
    """Wrong ones raise SystemExit."""
    for step in row.steps:
        for kind in ({}, {"is_quick": True}, {"is_short": True}):
            switch, module, *arguments = step.argv(2, seconds=0.5, **kind)
            assert switch == "-m"
            import_module(module).parse_arguments([*arguments, "--json", "run.json"])


def test_peers_run_beside_grpcio_and_ours_in_the_rows_of_a_mesh() -> None:
    (step,) = select_rows(["P1"])[0].steps
    clients = parse_arguments(list(step.argv(5)[2:])).clients
    assert {"grpc_aio_xds", "xds_asyncio", "xds_uvloop"} <= set(clients)
    assert {"connectrpc", "envoy_sidecar"} <= set(clients)
    assert not any(CLIENTS[name].is_floor for name in clients)


def test_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        bench_all.main(["--rows", "P1,P99"])
    assert error.value.code == 2
    assert "unknown row 'P99'" in capsys.readouterr().err


def test_quick_run_does_not_replace_the_published_results() -> None:
    with pytest.raises(SystemExit):
        bench_all.main(["--quick"])


def fake_run(step: Step, number: str, _argv: object) -> Converted:
    return Converted(figures=[Figure(step.module, 1, "cpu_us", number, (1.0,))])


def test_rows_of_the_file_are_kept_and_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.json"
    monkeypatch.setattr(bench_all, "run_step", fake_run)
    bench_all.main(["--rows", "P8", "--results", str(path)])
    (first,) = load(path)

    def measured(step: Step, number: str, argv: object) -> Converted:
        assert number != "P8", "it is in the file"
        return fake_run(step, number, argv)

    monkeypatch.setattr(bench_all, "run_step", measured)
    bench_all.main(["--rows", "P2,P8", "--resume", "--results", str(path)])
    assert [row.number for row in load(path)] == ["P2", "P8"], "in the order of the list"
    assert load(path)[1] == first


def test_row_of_programs_that_run_once_has_one_round() -> None:
    counted = {row.number: row.count_rounds(5) for row in ROWS}
    assert {number for number, rounds in counted.items() if rounds == 1} == {"P17", "churn"}
    # It counts rare events.
    assert counted["P14"] == 15


def test_program_without_results_is_a_failure_of_its_row() -> None:
    step = replace(ROWS[0].steps[0], module="rpc", arguments=("--no-such-option",))
    found = bench_all.run_step(step, "P1", step.argv(1))
    assert "exit code 2" in next(iter(found.failures.values()))


def test_failure_in_the_file_is_the_error_and_not_its_traceback() -> None:
    try:
        raise ConnectionError("peer is gone")
    except ConnectionError as error:
        text = "".join(traceback.format_exception(error))
    assert bench_all.shorten(f"connectrpc: {text}") == "ConnectionError: peer is gone"
    assert bench_all.shorten("exit code 2, and no results") == "exit code 2, and no results"
    assert bench_all.shorten("") == "no reason"


def test_short_run_of_two_rows(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """P18 has TLS in both of its programs; P20 has backends that connect slowly."""
    path = tmp_path / "results.json"
    bench_all.main(["--rows", "P18,P20", "--quick", "--rounds", "1", "--results", str(path)])
    shown = capfd.readouterr()
    tls, replaced = load(path)
    assert not tls.failures, shown.err
    assert not replaced.failures, shown.err
    figures: Mapping[str, Any] = tls.find("tls_reconnects", "resumed")
    for client in ("grpc_aio_xds", "xds_asyncio"):
        assert figures[client][100].median == 1.0, "every connection resumes a session"
    assert tls.find("unary-16B-100", "cpu_us").keys() == {
        name for name, kind in CLIENTS.items() if kind.backend in ("tls", "mtls")
    }
    failed = replaced.find("all_replaced", "failed")
    assert failed["xds_asyncio"][1].median == 0.0
    assert json.loads(path.read_text())["schema"] == 1
    assert "P18" in shown.out
