"""tools/clause_samples.py: clauses are listed beside the assertions of their tests."""

from tools.clause_samples import MarkedTest, parse_marked_tests, render_sample

SOURCE = '''
import pytest

pytestmark = pytest.mark.spec("A1-01")


@pytest.mark.spec("A1-02", "A1-03")
@pytest.mark.parametrize("value", [1, 2])
def test_plain(value: int) -> None:
    """Not shown."""
    x = make(value)
    assert x == value
    for _ in range(2):
        x.expect_state(1)
    with pytest.raises(ValueError, match="no"), other():
        x.act()


class TestInside:
    @pytest.mark.spec("A1-04", reason="one table")
    async def test_method(self) -> None:
        await wait_for_ack(1)
        helper()


def helper() -> None:
    assert False


@pytest.mark.skip
def test_of_the_module_only() -> None:
    pass
'''


def parsed() -> dict[str, MarkedTest]:
    return {test.name: test for test in parse_marked_tests("t.py", SOURCE)}


def test_marks_of_function_class_and_module_are_read() -> None:
    assert {name: test.ids for name, test in parsed().items()} == {
        "t.py::test_plain": ("A1-01", "A1-02", "A1-03"),
        "t.py::TestInside::test_method": ("A1-01", "A1-04"),
        "t.py::test_of_the_module_only": ("A1-01",),
    }
    assert parsed()["t.py::TestInside::test_method"].reason == "one table"


def test_assertions_are_listed_in_the_order_of_the_source() -> None:
    assert parsed()["t.py::test_plain"].assertions == (
        "assert x == value",
        "x.expect_state(1)",
        "with pytest.raises(ValueError, match='no')",
    )
    assert parsed()["t.py::TestInside::test_method"].assertions == ("wait_for_ack(1)",)


def test_parameters_are_listed() -> None:
    assert parsed()["t.py::test_plain"].parameters == ("'value', [1, 2]",)


def test_clause_stands_beside_its_tests() -> None:
    tests = list(parsed().values())
    lines = render_sample([("A1-02", "It works."), ("A9-01", "It flies.")], tests).splitlines()
    assert lines[0].startswith("A1-02 It works.")
    assert lines[0].endswith("| t.py::test_plain")
    assert lines[1].endswith("for 'value', [1, 2]")
    assert lines[2].endswith("assert x == value")
    flies = next(line for line in lines if line.startswith("A9-01"))
    assert flies.endswith("| open: no test")


def test_missing_assertions_and_reasons_are_shown() -> None:
    tests = list(parsed().values())
    text = render_sample([("A1-01", "Everything.")], tests)
    assert "(no assertion in the test itself)" in text
    assert "claims A1-01, A1-04 because: one table" in text
