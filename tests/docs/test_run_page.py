"""`run_page` reports the errors of a page. Each page here has one error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import Command, output_pattern, parse_commands, parse_page
from tests.docs.run_page import run_page
from tests.docs.terminals import PageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def no_page() -> Iterator[None]:
    yield
    sys.modules.pop("page", None)


def fenced(language: str, text: str, comment: str = "") -> str:
    return f"{comment and f'<!-- {comment} -->'}\n```{language}\n{text}\n```\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (fenced("text", "of an unknown kind"), "neither run nor listed"),
        (fenced("", "of an unknown kind"), "neither run nor listed"),
        (fenced("rust", "fn main() {}"), "neither run nor listed"),
        (fenced("python", "unknown"), "name 'unknown' is not defined"),
        (fenced("python", "assert await later() == 2"), "name 'later' is not defined"),
        (
            fenced("python", "x = 1") + fenced("python", "assert x == 2"),
            "docs/bad.md:6: AssertionError",
        ),
        (fenced("sh", "false"), "false: exit code 1"),
        (fenced("sh", "true\nproxyless"), "proxyless: exit code 2"),
        (
            fenced("console", "$ echo one\ntwo"),
            "echo one\nprints:\none\n\nwanted pattern:\ntwo",
        ),
        (fenced("console", "$ echo one; echo two\none"), "prints:\none\ntwo\n"),
        (fenced("console", "$ echo a 1\na 2"), "prints:\na 1\n"),
        (fenced("console", "one"), "a console without a command"),
        (fenced("sh", "make tea"), "No rule to make target"),
        (fenced("sh", "make test sim-all"), "['sim-all']: there is no such target"),
        (fenced("sh", "make bench ARGS=--nothing"), "has no option --nothing"),
        (fenced("sh", "python bench/nothing.py"), "exit code 2"),
        (fenced("sh", "pip install proxyless[nothing]"), "there is no extra 'nothing'"),
        (fenced("yaml", "a: [1"), "expected ',' or ']'"),
        (fenced("json", "{"), "Expecting property name"),
        (fenced("json", '{"xds_servers": []}'), "xds_servers"),
        (fenced("toml", '[project.entry-points."proxyless.x"]\na = "b:c"'), "proxyless.x"),
        (fenced("yaml", "'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster"), "name"),
        (fenced("yaml", "'@type': type.googleapis.com/no.Such"), "no.Such"),
        (fenced("yaml", "a: [1", "file: a.yaml"), "expected ',' or ']'"),
        (fenced("python", "x = 1", "from: examples/hello.py"), "is not in"),
        (fenced("python", "print(1)") + fenced("text", "2", "prints"), "prints:\n1\n"),
        (fenced("console", "$ echo one\ntwo", "background: t"), "ended, and printed:\none"),
    ],
)
async def test_error_has_the_place_of_its_block(text: str, wanted: str, tmp_path: Path) -> None:
    with pytest.raises(PageError, match=r"^docs/bad.md:\d+: ") as caught:
        await run_page("docs/bad.md", text, tmp_path)
    assert wanted in str(caught.value)


async def test_blocks_of_a_page_run_in_order(tmp_path: Path) -> None:
    (tmp_path / "unrelated").write_text("")
    text = "# A page\n\n" + "".join(
        [
            fenced("python", "import asyncio\nx = 1"),
            fenced("python", "await asyncio.sleep(0)\nx += 1"),
            fenced("python", "assert x == 2\nasyncio.run(asyncio.sleep(0))"),
            fenced("python", "print('one')\nprint(12)"),
            fenced("text", "one\n7", "prints, any numbers"),
            fenced("text", "one\ntwo", "file: in/a.txt"),
            fenced("console", "$ cat in/a.txt\none\n...\n$ cat in/a.txt\none\n...o"),
            fenced("console", "$ export COLOUR=blue\n$ echo $COLOUR 12\nblue 7", "any numbers"),
            fenced("console", "$ while true; do cat in/a.txt; sleep 0.01; done", "background: t"),
            fenced("text", "one\ntwo", "shows: t"),
            fenced("text", "three", "file: in/a.txt"),
            fenced("text", "three", "shows: t"),
            fenced("console", "^C", "interrupt: t"),
            "- in a list:\n\n  ```sh\n  test -f in/a.txt\n  ```\n",
        ]
    )
    await run_page("docs/good.md", text, tmp_path)


def test_unknown_directive_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"docs/bad.md:2: comment 'skip: it' before a block"):
        parse_page("docs/bad.md", fenced("python", "x", "skip: it"))


def test_a_command_may_have_several_lines() -> None:
    text = "a \\\n  b\n\n# A comment.\nc 'd\ne'  # Another."
    [block] = parse_page("p.md", fenced("sh", text))
    assert [each.text for each in parse_commands(block)] == ["a \\\n  b", "c 'd\ne'  # Another."]
    [block] = parse_page("p.md", fenced("console", "$ a 'b\nc'\nd\n$ e"))
    assert parse_commands(block) == [Command("a 'b\nc'", "d"), Command("e", None)]


@pytest.mark.parametrize(
    ("shown", "output", "is_match"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\nb", "a\nb\nc\n", False),
        ("a\n...\nc", "a\nc\n", True),
        ("a\n...\nc", "a\nb\nb\nc\n", True),
        ("a ... c", "a b c\n", True),
        ("a ... c", "a b\nc\n", False),
        ("a.c", "abc\n", False),
    ],
)
def test_dots_stand_for_anything(shown: str, output: str, is_match: bool) -> None:
    assert bool(output_pattern(shown).fullmatch(output)) is is_match
