"""Parser of pages: fenced blocks and their directives.

A fenced block is run by its language; a comment in the line before the fence is a directive:

    <!-- file: mesh/routes.yaml -->   the block is that file, in the page's directory
    <!-- from: examples/hello.py -->  that file contains the block as well; it is run as usual
    <!-- prints -->                   the output of the Python before it
    <!-- background: client -->       its commands are started and left running, in a terminal of
                                      this name, after they have printed the shown output
    <!-- shows: client -->            the further output of that terminal; waited for
    <!-- interrupt: client -->        Ctrl-C in that terminal
    <!-- any numbers -->              digits of the output may differ; may follow the others

Blocks of a page build on each other, in their order. `run_page` runs them.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)$")
DIRECTIVE = re.compile(r"^ *<!-- (?P<text>.*) -->$")
KINDS = ("file", "from", "background", "shows", "interrupt")
PRINTS = "prints"
ANY_NUMBERS = "any numbers"
PORT = re.compile(r"(?:127\.0\.0\.1:|0\.0\.0\.0:|localhost:|port_value: ?)(\d{5})\b")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block."""

    page: str
    # The line of the opening fence, from 1.
    line: int
    language: str
    text: str
    # The directive: a kind and its argument.
    kind: str = ""
    argument: str = ""
    has_any_numbers: bool = False

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """One command line with its shown output; None if the page shows none."""

    text: str
    output: str | None


def find_pages(root: Path = ROOT) -> list[str]:
    """The paths of pages for users: in the root, in docs and in bench."""
    found = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), root / "bench" / "README.md"]
    pages = sorted(path.relative_to(root).as_posix() for path in found)
    # docs/api is generated, and another test compares it.
    return [page for page in pages if not page.startswith("docs/api/")]


def parse_page(page: str, text: str) -> list[Block]:
    """Every fenced block. Raises ValueError for an unknown directive."""
    blocks: list[Block] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        if fence is None:
            number += 1
            continue
        end = number + 1
        while lines[end].strip() != "```":
            end += 1
        indent = len(fence["indent"])
        body = "".join(f"{line[indent:]}\n" for line in lines[number + 1 : end])
        block = Block(page, number + 1, fence["language"], body)
        before = DIRECTIVE.match(lines[number - 1]) if number else None
        blocks.append(block if before is None else _directed(block, before["text"]))
        number = end + 1
    return blocks


def _directed(block: Block, text: str) -> Block:
    directive = text.removesuffix(ANY_NUMBERS).rstrip(" ,")
    block = replace(block, has_any_numbers=text.endswith(ANY_NUMBERS))
    if not directive:
        return block
    if directive == PRINTS:
        return replace(block, kind=PRINTS)
    kind, _, argument = directive.partition(": ")
    if kind not in KINDS or not argument:
        raise ValueError(f"{block.place}: comment {text!r} before a block, wanted one of {KINDS}")
    return replace(block, kind=kind, argument=argument)


def parse_commands(block: Block) -> list[Command]:
    """The commands of a `sh` or `console` block; other lines are the output of a command."""
    if block.language == "sh":
        return [Command(text, None) for text in _joined(block.text.splitlines())]
    commands: list[Command] = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        text = next(_joined(lines))
        output = lines[text.count("\n") + 1 :]
        commands.append(Command(text, "\n".join(output) if output else None))
    if not commands:
        raise ValueError(f"{block.place}: a console without a command, wanted a line '$ command'")
    return commands


def _joined(lines: list[str]) -> Iterator[str]:
    """Lines, with those of one command joined: after an open quote or a backslash."""
    text = ""
    for line in lines:
        text = f"{text}\n{line}" if text else line
        if not text.strip() or text.lstrip().startswith("#"):
            text = ""
            continue
        try:
            shlex.split(text, comments=True)
        except ValueError:
            continue
        if not text.endswith("\\"):
            yield text
            text = ""
    if text:
        yield text


def ports_of(blocks: list[Block]) -> set[str]:
    """The ports of this machine that a page uses; five digits, so that tables stay aligned."""
    return {port for block in blocks for port in PORT.findall(block.text)}


def with_ports(blocks: list[Block], ports: dict[str, str]) -> list[Block]:
    """The blocks with other ports, because those of the page may be in use."""

    def other(found: re.Match[str]) -> str:
        return ports.get(found[0], found[0])

    return [replace(block, text=re.sub(r"\b\d{5}\b", other, block.text)) for block in blocks]


def output_pattern(text: str, *, has_any_numbers: bool = False) -> re.Pattern[str]:
    """Pattern of a shown output: `...` matches anything in a line, or any lines."""
    parts: list[str] = []
    for line in text.strip("\n").splitlines():
        if line.strip() == "...":
            parts.append(r"(?:[^\n]*\n)*?")
            continue
        escaped = re.escape(line.rstrip()).replace(re.escape("..."), "[^\n]*?")
        if has_any_numbers:
            escaped = re.sub(r"\d+", r"\\d+", escaped)
        parts.append(escaped + r"[ \t]*\n")
    return re.compile("".join(parts))
