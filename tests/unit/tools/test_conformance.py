"""tools/conformance.py: clauses are parsed, judged by the results of their tests, and rendered."""

import json
import re
from pathlib import Path

import pytest

from tools.conformance import (
    TEXT_CHARS_MAX,
    Outcome,
    Requirement,
    Result,
    Score,
    claims_by_id,
    load_requirements,
    main,
    parse_requirements,
    render,
    score,
    shorten,
    unknown_ids,
    worst,
)

DOCUMENT = """\
# Requirements

## 1. A56 `priority`

### 1.1 Config
- A56-01 [S] The policy is registered.
- A56-02 [S/U] Unknown keys are ignored.

## 2. Supporting
### Subchannel
- SUB-01 IDLE -> CONNECTING | TF.
- A27-20 [core] A listener needs an api_listener.

1. A56-77 is mentioned here, as is - A56-78, and neither is a requirement.
  - A56-79 is indented.
"""


def known() -> dict[str, Requirement]:
    return {each.id: each for each in parse_requirements("lb.md", DOCUMENT)}


def passed(test: str, *ids: str) -> Outcome:
    return Outcome(test, ids, Result.PASSED)


def failed(test: str, *ids: str) -> Outcome:
    return Outcome(test, ids, Result.FAILED)


def skipped(test: str, *ids: str) -> Outcome:
    return Outcome(test, ids, Result.SKIPPED)


def test_every_form_of_requirement_line_is_read_and_nothing_else() -> None:
    assert list(known()) == ["A56-01", "A56-02", "SUB-01", "A27-20"]


def test_origin_tag_is_not_part_of_the_text() -> None:
    texts = [each.text for each in known().values()]
    assert texts[0] == "The policy is registered."
    assert texts[1] == "Unknown keys are ignored."
    assert texts[3] == "A listener needs an api_listener."


def test_section_names_chapter_and_part_without_numbers() -> None:
    assert known()["A56-01"].section == "A56 `priority`: Config"
    assert known()["SUB-01"].section == "Supporting: Subchannel"


def test_prefix_is_what_stands_before_the_number() -> None:
    assert [each.prefix for each in known().values()] == ["A56", "A56", "SUB", "A27"]


def test_repeated_id_is_refused_with_its_line() -> None:
    with pytest.raises(ValueError, match=r"lb.md:2: clause A1-01 is there twice"):
        parse_requirements("lb.md", "- A1-01 x\n- A1-01 y\n")


def test_same_id_in_two_documents_is_refused(tmp_path: Path) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text("- A1-01 x\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"A1-01 is in a.md and in b.md"):
        load_requirements(tmp_path)


def test_real_documents_are_read_to_the_last_requirement() -> None:
    real = load_requirements()
    totals = {each.prefix: each.total for each in score(real, {})}
    assert (totals["A56"], totals["A62"]) == (68, 29)
    assert (totals["A31"], totals["A74"], totals["A75"]) == (62, 69, 71)
    assert {"A86-16", "LRS-12", "WRR-14", "A27-55"} <= real.keys()
    assert all(each.section for each in real.values())


def test_unknown_ids_are_listed_once_in_order() -> None:
    assert unknown_ids(["A56-99", "A56-01", "A1-1", "A56-99"], known()) == ["A1-1", "A56-99"]


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([], Result.OPEN),
        ([Result.SKIPPED], Result.SKIPPED),
        ([Result.SKIPPED, Result.PASSED], Result.PASSED),
        ([Result.PASSED, Result.FAILED, Result.SKIPPED], Result.FAILED),
    ],
)
def test_worst_result_decides(results: list[Result], expected: Result) -> None:
    assert worst(results) is expected


def test_parameters_of_one_test_become_one_claim_with_the_worst_result() -> None:
    claims = claims_by_id([passed("t.py::a[1]", "A56-01"), failed("t.py::a[2]", "A56-01")])
    assert claims == {"A56-01": [failed("t.py::a", "A56-01")]}


def test_parameter_that_claims_another_id_is_judged_for_that_id_only() -> None:
    claims = claims_by_id([passed("t.py::a[1]", "A56-01"), failed("t.py::a[2]", "A56-02")])
    assert claims["A56-01"][0].result is Result.PASSED
    assert claims["A56-02"][0].result is Result.FAILED


def test_only_passed_requirements_count_as_proved() -> None:
    claims = claims_by_id(
        [
            passed("a", "A56-01"),
            skipped("b", "A56-02"),
            failed("c", "SUB-01"),
            passed("d", "SUB-01"),
        ]
    )
    assert score(known(), claims) == [Score("A56", 1, 2), Score("SUB", 0, 1), Score("A27", 0, 1)]
    assert str(score(known(), claims)[0]) == "A56 1/2"


def test_page_has_one_row_per_requirement_with_tests_and_result() -> None:
    claims = claims_by_id(
        [passed("tests/spec/test_a56.py::test_x", "A56-01"), failed("b", "SUB-01")]
    )
    page = render(known(), claims).splitlines()
    assert "Proved: 1 of 4 clauses." in page
    assert "| A56 | 1 | 2 |" in page
    row = "| A56-01 | The policy is registered. | `spec/test_a56.py::test_x` | passed |"
    assert row in page
    assert "| A56-02 | Unknown keys are ignored. |  | open |" in page
    assert "| SUB-01 | IDLE -> CONNECTING \\| TF. | `b` | failed |" in page


def test_page_lists_clauses_that_are_not_proved_with_their_whole_text() -> None:
    text = "word " * TEXT_CHARS_MAX
    long = {"A1-01": Requirement("A1-01", text.strip(), "a.md", "Section")}
    page = render(long, claims_by_id([failed("t", "A1-01")])).splitlines()
    assert page[page.index("## Not proved") + 2] == f"- A1-01 (failed): {text.strip()}"
    proved = render(long, claims_by_id([passed("t", "A1-01")]))
    assert "Not proved" not in proved


def test_sample_of_one_seed_is_repeatable(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = []
    for seed in ("7", "7", "8"):
        assert main(["--sample", "5", "--seed", seed]) == 0
        drawn.append(re.findall(r"^([A-Z]\w*-\d+) ", capsys.readouterr().out, re.MULTILINE))
    assert len(drawn[0]) == 5
    assert drawn[0] == drawn[1] != drawn[2]


def write_report(path: Path, result: str) -> str:
    entry = {"test": "tests/unit/test_x.py::test_x", "ids": ["A56-01"], "result": result}
    path.write_text(json.dumps([entry]))
    return str(path)


def test_page_is_compared_with_the_report_of_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.conformance.ROOT", tmp_path)
    monkeypatch.setattr("tools.conformance.PAGE", tmp_path / "page.md")
    passed = write_report(tmp_path / "passed.json", "passed")
    failed = write_report(tmp_path / "failed.json", "failed")
    assert main(["--check", "--report", passed]) == 1
    assert main(["--report", passed]) == 0
    assert main(["--check", "--report", passed]) == 0
    assert main(["--check", "--report", failed]) == 1
    assert main(["--report", failed]) == 1


def test_page_does_not_depend_on_the_order_in_which_tests_ran() -> None:
    outcomes = [passed("b::t", "A56-01"), failed("a::t[2]", "A56-01"), passed("a::t[1]", "A56-01")]
    assert render(known(), claims_by_id(outcomes)) == render(
        known(), claims_by_id(list(reversed(outcomes)))
    )


def test_long_text_is_cut_at_a_word() -> None:
    assert shorten("a " * TEXT_CHARS_MAX) == "a " * (TEXT_CHARS_MAX // 2 - 1) + "a ..."
    assert shorten("x" * TEXT_CHARS_MAX) == "x" * TEXT_CHARS_MAX
