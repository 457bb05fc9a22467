"""Short run of tools/fuzz_xds.py, and checks that it detects bugs. `make fuzz` runs longer."""

from collections.abc import Mapping

import pytest

from proxyless.base import ValidationErrors
from proxyless.protos import Proto
from proxyless.xds.filters.fault import FaultFilterFactory
from proxyless.xds.parsing import route
from tools.fuzz_xds import (
    SAMPLES,
    Findings,
    check,
    main,
    reproduce,
    resource_types,
    run_all,
    run_one,
    samples,
)

SEED = 20_260_101
INPUTS = 1_000
CHECKED = 200


@pytest.fixture(scope="module")
def findings() -> Findings:
    return run_all(SEED, INPUTS)


def test_no_input_causes_a_failure(findings: Findings) -> None:
    assert findings.failures == []


def test_inputs_of_every_type_are_valid_or_refused(findings: Findings) -> None:
    """Resources of every type are accepted and refused."""
    assert sum(findings.ends.values()) == INPUTS
    for name in SAMPLES:
        kind = name.rpartition(".")[2]
        assert findings.ends[f"{kind} valid"] > INPUTS // 40
        assert findings.ends[f"{kind} refused"] > INPUTS // 40


def test_meshes_are_valid_or_have_errors(findings: Findings) -> None:
    assert findings.ends["Mesh valid"] > INPUTS // 400
    assert findings.ends["Mesh with errors of clusters"] > INPUTS // 400


def test_samples_are_valid() -> None:
    assert samples().keys() == resource_types().keys()
    for name, each in samples().items():
        assert {check(name, serialized) for serialized in each} == {"valid"}


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_all(SEED, CHECKED) == run_all(SEED, CHECKED)
    assert run_all(SEED, CHECKED).ends != run_all(SEED + 1, CHECKED).ends


# Detection of planted bugs


def test_exception_of_a_parser_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def parse_retry(_policy: Proto, _errors: ValidationErrors) -> None:
        raise KeyError("retry_on")

    monkeypatch.setattr(route, "parse_retry", parse_retry)
    failures = run_all(SEED, CHECKED).failures
    assert failures
    prefix = f"tools.fuzz_xds --seed {SEED} --index "
    assert failures[0].startswith(prefix)
    assert "# KeyError: " in failures[0]
    index = int(failures[0].removeprefix(prefix).split()[0])
    with pytest.raises(KeyError):
        run_one(SEED, index)
    assert reproduce(SEED, index) == 1
    assert "KeyError" in capsys.readouterr().err


def test_an_exception_of_a_filter_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse_config(
        _self: FaultFilterFactory, _message: Mapping[str, object], _errors: ValidationErrors
    ) -> None:
        raise KeyError("delay")

    monkeypatch.setattr(FaultFilterFactory, "parse_config", parse_config)
    assert any("its parser raised KeyError" in each for each in run_all(SEED, CHECKED).failures)


def test_command_prints_seed_and_failures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz_xds.py", "--inputs", "50", "--seed", "3"])
    assert main() == 0
    assert "fuzz: 50 resources of seed 3, 0 failures" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["fuzz_xds.py", "--index", "7", "--seed", "3"])
    assert main() == 0
    assert "seed 3 index 7: " in capsys.readouterr().out
