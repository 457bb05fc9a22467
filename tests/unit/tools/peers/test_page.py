"""Unit tests of tools.peers.page."""

from tools.peers.connect import ConnectSuite
from tools.peers.h2spec import H2specSuite
from tools.peers.outcomes import Outcomes, Run
from tools.peers.page import Section, describe_suite, make_page, split_page

PLAIN = "Errors/HTTPVersion:2/Compression:COMPRESSION_GZIP/TLS:false/unary/aborted"
TLS = "Errors/HTTPVersion:2/Compression:COMPRESSION_GZIP/TLS:true/unary/aborted"


def page(*theirs: Run) -> str:
    ours: list[Run] = [dict.fromkeys(theirs[0])] * len(theirs)
    outcomes = Outcomes("connect", {"module": "v1"}, {"proxyless": ours, "grpcio": list(theirs)})
    return make_page([describe_suite(ConnectSuite(), outcomes)], "1.85.1")


def test_page_counts_cases_by_stack() -> None:
    made = page({PLAIN: None, TLS: "a | b"})
    assert "| [Connect conformance](#connect-conformance) | 2 | 2 | 1 |" in made
    assert "grpcio 1.85.1" in made
    assert "Versions: module v1." in made


def test_page_folds_cases_that_differ_in_how_they_are_run() -> None:
    made = page({PLAIN: "a | b", TLS: "c"})
    assert made.count("Errors/unary/aborted") == 1
    assert "| Errors/unary/aborted | a \\| b |" in made


def test_page_has_a_note_when_a_case_fails_in_some_runs_only() -> None:
    assert "| Errors/unary/aborted (not in every run) | a |" in page({PLAIN: "a"}, {PLAIN: None})


def test_page_lists_known_failures_with_their_reasons() -> None:
    run: Run = dict.fromkeys(H2specSuite.known, "failed")
    outcomes = Outcomes("h2spec", {"module": "v1"}, {"proxyless": [run], "grpcio": [run]})
    made = make_page([describe_suite(H2specSuite(), outcomes)], "1.85.1")
    for case, reason in H2specSuite.known.items():
        assert f"| {case} | {reason} |" in made


def test_sections_of_a_page_make_the_same_page_again() -> None:
    sections = [
        Section("| [First suite](#first-suite) | 2 | 2 | 1 |", "## First suite\n\nA text."),
        Section("", "## A table\n\n| a | b |\n|---|---|"),
    ]
    made = make_page(sections, "1.85.1")
    assert list(split_page(made).values()) == sections
    assert make_page(split_page(made).values(), "1.85.1") == made
