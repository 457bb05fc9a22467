"""docs/differences.md: each difference has a proof that exists.

All channel options are on the page about migration, and all variables on one of the two pages.
"""

from __future__ import annotations

import re

import pytest

from proxyless.front import options
from tests.docs.pages import ROOT

DIFFERENCES = (ROOT / "docs" / "differences.md").read_text()
DECISIONS = (ROOT / "docs" / "spec" / "decisions.md").read_text()
MIGRATION = (ROOT / "docs" / "howto" / "migrate-from-grpcio.md").read_text()
LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
# Variables for logging and installation have pages of their own.
VARIABLE = re.compile(r"\"(GRPC_(?:XDS|EXPERIMENTAL)_[A-Z_]+)\"")


def rows() -> list[str]:
    """The rows of the tables, without heads."""
    lines = re.findall(r"^\|.*\|$", DIFFERENCES, re.MULTILINE)
    rules = [number for number, line in enumerate(lines) if set(line) <= set("|-")]
    heads = {*rules, *(number - 1 for number in rules)}
    return [line for number, line in enumerate(lines) if number not in heads]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[2:40])
def test_difference_has_a_proof(row: str) -> None:
    links = LINK.findall(row.rpartition(" | ")[2])
    assert links, row
    for text, target in links:
        if text.startswith("test_"):
            assert f"def {text}(" in (ROOT / "docs" / target).read_text(), target
        elif re.fullmatch(r"D\d+", text):
            assert re.search(rf"^\| {text} \|", DECISIONS, re.MULTILINE), text


def test_there_are_rows() -> None:
    assert len(rows()) > 30


@pytest.mark.parametrize("name", sorted({*options._READERS, *options._IGNORED}))  # noqa: SLF001
def test_option_is_on_the_page_about_migration(name: str) -> None:
    assert f"`{name}`" in MIGRATION


def test_environment_variable_is_documented() -> None:
    sources = (ROOT / "src" / "proxyless").rglob("*.py")
    switches = {name for path in sources for name in VARIABLE.findall(path.read_text())}
    assert len(switches) >= 9
    for name in switches:
        assert name in DIFFERENCES or name in MIGRATION, name
