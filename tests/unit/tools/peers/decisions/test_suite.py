"""Unit tests of tools.peers.decisions.suite, and of the notes and the page."""

import pytest

from tools.peers.build import ROOT, UnavailableError
from tools.peers.decisions import suite
from tools.peers.decisions.case import REGISTERED
from tools.peers.decisions.notes import NOTES
from tools.peers.decisions.programs import Program


def test_all_registered_cases_are_in_the_table() -> None:
    assert set(suite.CASES) == set(REGISTERED)


def test_notes_are_about_cases_and_other_outcomes() -> None:
    for name, notes in NOTES.items():
        assert suite.CASES[name].wanted not in notes


def test_page_has_a_row_for_each_case() -> None:
    page = (ROOT / "docs" / "peers.md").read_text()
    for case in suite.CASES.values():
        assert f"\n| {case.title} | {case.source} | {case.wanted} |" in page


def test_voice_that_is_not_available_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> Program:
        raise UnavailableError("there is no mvn")

    made = Program(["run"], "1", {})
    monkeypatch.setattr(suite, "PROGRAMS", {"Java": fail, "Go": lambda: made})
    assert suite.prepare_voices(["Java", "Go"]) == ({"Go": made}, {"Java": "there is no mvn"})
