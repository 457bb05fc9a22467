"""Unit tests of tools.peers.decisions.table."""

from tools.peers.decisions.case import Case
from tools.peers.decisions.mesh import Mesh
from tools.peers.decisions.programs import OURS
from tools.peers.decisions.table import Table, judge_table, make_section


async def run(_mesh: Mesh) -> str:
    raise NotImplementedError


CASES = {"zero": Case("weight 0", "a", run, "A31")}


def table(ours: str = "a", go: str = "a", skipped: dict[str, str] | None = None) -> Table:
    return Table({OURS: "1", "Go": "v2"}, skipped or {}, {"zero": {OURS: ours, "Go": go}})


def test_our_outcome_must_be_the_wanted_one() -> None:
    assert list(judge_table(table(ours="b", go="b"), CASES, {})) == [
        "zero: our outcome is 'b', wanted 'a'"
    ]


def test_another_outcome_must_have_a_note() -> None:
    (problem,) = judge_table(table(go="b"), CASES, {})
    assert problem.startswith("zero: Go differs without a note: 'b'")
    assert not list(judge_table(table(go="b"), CASES, {"zero": {"b": "because"}}))


def test_note_must_explain_an_outcome_unless_a_voice_is_missing() -> None:
    notes = {"zero": {"b": "because"}}
    assert list(judge_table(table(), CASES, notes)) == [
        "zero: a note explains 'b', which is no other outcome"
    ]
    assert not list(judge_table(table(skipped={"Java": "no mvn"}), CASES, notes))
    assert list(judge_table(table(), CASES, {"other": {}})) == [
        "other: has notes, but does not exist"
    ]


def test_section_has_versions_and_numbers_notes_with_the_same_text_once() -> None:
    cases = CASES | {"one": Case("weight 1", "a", run)}
    cells = {name: {OURS: "a", "Go": "b"} for name in cases}
    made = Table({OURS: "1", "Go": "v2"}, {"Java": "no mvn"}, cells)
    section = make_section(made, cases, {"zero": {"b": "because"}, "one": {"b": "because"}})
    assert "Versions: Proxyless 1, Go v2." in " ".join(section.split())
    assert "Java is not in the table: no mvn." in section
    assert "| weight 0 | A31 | a | **b**[^1] |" in section
    assert "| weight 1 |  | a | **b**[^1] |" in section
    assert section.endswith("[^1]: because")


def test_cell_with_our_outcome_is_an_equals_sign() -> None:
    assert "| weight 0 | A31 | a | = |" in make_section(table(), CASES, {})


def test_table_is_the_same_after_json() -> None:
    assert Table.from_json(table().to_json()) == table()
