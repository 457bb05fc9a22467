"""Unit tests of tools.peers.outcomes."""

from tools.peers.outcomes import Outcomes, judge

OUTCOMES = Outcomes(
    "suite",
    {"module": "v1"},
    {
        "ours": [{"a": None, "b": "wrong code", "c": None}, {"a": None, "b": None, "c": None}],
        "theirs": [{"a": "lost", "b": None}, {"a": "lost", "b": None}],
    },
)


def test_case_passes_when_it_passed_in_every_run() -> None:
    assert OUTCOMES.cases() == ["a", "b", "c"]
    assert OUTCOMES.passed("ours") == ["a", "c"]
    # A case without a result has not passed.
    assert OUTCOMES.passed("theirs") == ["b"]
    assert OUTCOMES.always_fails("theirs", "a")
    assert not OUTCOMES.always_fails("ours", "b")


def test_judge_returns_nothing_when_exactly_the_known_failures_fail() -> None:
    assert list(judge(OUTCOMES, "ours", {"b": "on purpose"})) == []


def test_judge_returns_each_difference_from_the_known_failures() -> None:
    assert list(judge(OUTCOMES, "ours", {"a": "on purpose", "d": "gone"})) == [
        "a: passed, but is listed as a known failure",
        "b: failed: wrong code",
        "d: is listed as a known failure, but does not exist",
    ]


def test_judge_returns_an_error_when_there_are_no_cases() -> None:
    assert list(judge(Outcomes("suite", {}, {"ours": [{}]}), "ours", {})) == ["has no cases"]


def test_outcomes_are_the_same_when_written_and_read() -> None:
    assert Outcomes.from_json(OUTCOMES.to_json()) == OUTCOMES
