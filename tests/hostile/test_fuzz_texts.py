"""Short run of tools/fuzz_texts.py, and tests that it detects bugs. `make fuzz` runs longer."""

from __future__ import annotations

import pytest

from proxyless.front import cookies
from proxyless.observe import csds
from tools import fuzz_texts
from tools.fuzz_texts import KINDS, Findings, main, reproduce, run_all, run_one

SEED = 20_260_101
INPUTS = 1_500
CHECKED = 300


@pytest.fixture(scope="module")
def findings() -> Findings:
    return run_all(SEED, INPUTS)


def test_no_input_violates_a_rule(findings: Findings) -> None:
    assert findings.failures == []


def test_inputs_reach_every_kind_and_end(findings: Findings) -> None:
    assert sum(findings.ends.values()) == INPUTS
    ends = {
        *("cookies kept", "cookies empty", "status shown", "status refused", "text short"),
        *("text long", "nack nacked", "nack acked", "nack refused"),
        *("proxy accepted", "proxy refused"),
    }
    assert set(findings.ends) == ends
    assert {end.partition(" ")[0] for end in ends} == set(KINDS)


def test_same_seed_gives_the_same_run() -> None:
    assert run_all(SEED, CHECKED) == run_all(SEED, CHECKED)


def test_unbounded_jar_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cookies, "_newest", lambda kept, _bytes_max: kept)
    assert run_all(SEED, CHECKED).failures


def test_cookie_of_a_backend_that_counts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cookies, "SessionSetCookie", str)
    assert run_all(SEED, CHECKED).failures


def test_unescaped_text_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_texts, "escape_json", lambda text: text)
    assert run_all(SEED, CHECKED).failures


def test_exception_is_found_and_reproduced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_entry: object) -> None:
        raise KeyError("status")

    monkeypatch.setattr(csds, "_read_row", fail)
    failure = run_all(SEED, CHECKED).failures[0]
    prefix = f"tools.fuzz_texts --seed {SEED} --index "
    assert failure.startswith(prefix)
    index = int(failure.removeprefix(prefix).split()[0])
    with pytest.raises(KeyError):
        run_one(SEED, index)
    assert reproduce(SEED, index) == 1
    assert "KeyError" in capsys.readouterr().err


def test_command_prints_its_seed_and_its_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz_texts.py", "--inputs", "50", "--seed", "3"])
    assert main() == 0
    assert "fuzz: 50 texts of seed 3, 0 failures" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["fuzz_texts.py", "--index", "7", "--seed", "3"])
    assert main() == 0
    assert "seed 3 index 7: " in capsys.readouterr().out
