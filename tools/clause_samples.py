"""Side-by-side listing of clauses and the assertions of the tests that claim them.

Reads the tests as source text: the `spec` marks of functions, classes and modules, the values that
a test is parametrized with, and its assertions. Runs nothing. A helper that a test calls is shown
as the call: its assertions are not followed. Called by tools/conformance.py with `--sample`.
"""

import ast
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

CLAUSE_CHARS = 48
TEST_CHARS = 96
PARAMETERS_CHARS_MAX = 2000
# Helpers that assert; the tests of policies and channels have few plain asserts.
CHECK_PREFIXES = ("expect", "assert", "check", "refus", "wait_for", "until")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class MarkedTest:
    """A test function that claims clauses, with what a reader needs to judge the claim."""

    name: str
    ids: tuple[str, ...]
    reason: str
    parameters: tuple[str, ...]
    assertions: tuple[str, ...]


def read_marked_tests(directory: Path, root: Path) -> list[MarkedTest]:
    """Read all tests below a directory that claim clauses, sorted by path."""
    found: list[MarkedTest] = []
    for path in sorted(directory.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.spec" in text:
            found += parse_marked_tests(path.relative_to(root).as_posix(), text)
    return found


def parse_marked_tests(path: str, text: str) -> Iterator[MarkedTest]:
    module = ast.parse(text)
    inherited = [
        mark
        for statement in module.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
        for mark in ast.walk(statement.value)
    ]
    yield from _marked_in(module.body, path, inherited)


def _marked_in(
    body: Iterable[ast.stmt], path: str, inherited: Sequence[ast.AST]
) -> Iterator[MarkedTest]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            marks = [*inherited, *statement.decorator_list]
            yield from _marked_in(statement.body, f"{path}::{statement.name}", marks)
        elif isinstance(statement, FunctionNode) and statement.name.startswith("test_"):
            marks = [*inherited, *statement.decorator_list]
            ids, reason = _claims(marks)
            if ids:
                name = f"{path}::{statement.name}"
                parameters = tuple(_parameters(statement.decorator_list))
                yield MarkedTest(name, ids, reason, parameters, tuple(_assertions(statement)))


def _claims(marks: Iterable[ast.AST]) -> tuple[tuple[str, ...], str]:
    """Return the IDs of all spec marks, and the reason if one has it."""
    ids: set[str] = set()
    reason = ""
    for mark in marks:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.spec":
            ids |= {str(each.value) for each in mark.args if isinstance(each, ast.Constant)}
            for keyword in mark.keywords:
                if keyword.arg == "reason" and isinstance(keyword.value, ast.Constant):
                    reason = str(keyword.value.value)
    return tuple(sorted(ids)), reason


def _parameters(decorators: Iterable[ast.expr]) -> Iterator[str]:
    for each in decorators:
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "pytest.mark.parametrize":
            text = ", ".join(ast.unparse(argument) for argument in each.args)
            yield textwrap.shorten(text, PARAMETERS_CHARS_MAX, placeholder=" ...")


def _assertions(function: FunctionNode) -> Iterator[str]:
    """List what a test checks, in the order of the source: asserts, raises, calls of checks."""
    nodes = (node for statement in function.body for node in ast.walk(statement))
    lines = {
        node.lineno: text
        for node in nodes
        if isinstance(node, ast.stmt) and (text := _assertion(node))
    }
    return (lines[line] for line in sorted(lines))


def _assertion(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assert):
        return ast.unparse(statement)
    if isinstance(statement, ast.With | ast.AsyncWith):
        items = [ast.unparse(item) for item in statement.items]
        raised = [item for item in items if item.startswith("pytest.raises")]
        return f"with {', '.join(raised)}" if raised else ""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Await | ast.Call):
        call = statement.value.value if isinstance(statement.value, ast.Await) else statement.value
        if isinstance(call, ast.Call):
            name = ast.unparse(call.func).rpartition(".")[2]
            return ast.unparse(call) if name.startswith(CHECK_PREFIXES) else ""
    return ""


def render_sample(clauses: Iterable[tuple[str, str]], tests: Sequence[MarkedTest]) -> str:
    """Render each clause on the left, its tests and their assertions on the right."""
    lines: list[str] = []
    for clause_id, text in clauses:
        left = textwrap.wrap(f"{clause_id} {text}", CLAUSE_CHARS)
        claiming = [test for test in tests if clause_id in test.ids]
        right = [line for test in claiming for line in _test_lines(test)] or ["open: no test"]
        lines += [
            f"{one:<{CLAUSE_CHARS}} | {other}".rstrip()
            for one, other in zip_longest(left, right, fillvalue="")
        ]
        lines.append("-" * (CLAUSE_CHARS + TEST_CHARS + 3))
    return "\n".join(lines)


def _test_lines(test: MarkedTest) -> Iterator[str]:
    yield test.name
    reason = f"claims {', '.join(test.ids)} because: {test.reason}"
    parameters = [f"for {text}" for text in test.parameters]
    for text in ([reason] if test.reason else []) + parameters:
        yield from textwrap.wrap(text, TEST_CHARS, initial_indent="  ", subsequent_indent=" " * 8)
    for text in test.assertions:
        yield from textwrap.wrap(
            text, TEST_CHARS, initial_indent=" " * 6, subsequent_indent=" " * 8
        )
    if not test.assertions:
        yield "      (no assertion in the test itself)"
