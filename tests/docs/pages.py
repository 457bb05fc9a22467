"""Which blocks are on a page, and what is to be done with each?

A fenced block is done by its language; a comment in the line before the fence can say more:

    <!-- file: mesh/routes.yaml -->   the block is that file, in the page's directory
    <!-- from: examples/hello.py -->  the block stands there, too; it is carried out as ever
    <!-- prints -->                   what the Python before it has printed
    <!-- background: client -->       its commands are started and left running, in a terminal of
                                      this name, until they have said what the block shows
    <!-- shows: client -->            what that terminal says from here on; waited for
    <!-- interrupt: client -->        Ctrl-C in that terminal
    <!-- any numbers -->              of what is shown, digits may differ; may follow the others

Blocks of a page build on each other, in their order. A page is read here and carried out by
`run_page`; nothing here runs anything.
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
    """What stands between two fences."""

    page: str
    # Of the opening fence, from 1.
    line: int
    language: str
    text: str
    # What the comment before it says: a kind and its argument.
    kind: str = ""
    argument: str = ""
    has_any_numbers: bool = False

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """One command line with what the page says that it prints; None if it does not say."""

    text: str
    output: str | None


def find_pages(root: Path = ROOT) -> list[str]:
    """The pages that users read, from the root: those in the root itself, and docs."""
    found = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), root / "bench" / "README.md"]
    pages = sorted(path.relative_to(root).as_posix() for path in found)
    # Those are written from the sources, and compared with them.
    return [page for page in pages if not page.startswith("docs/api/")]


def parse_page(page: str, text: str) -> list[Block]:
    """Every fenced block. Raises ValueError for a comment of ours that makes no sense."""
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
    said = text.removesuffix(ANY_NUMBERS).rstrip(" ,")
    block = replace(block, has_any_numbers=text.endswith(ANY_NUMBERS))
    if not said:
        return block
    if said == PRINTS:
        return replace(block, kind=PRINTS)
    kind, _, argument = said.partition(": ")
    if kind not in KINDS or not argument:
        raise ValueError(f"{block.place}: comment {text!r} before a block, wanted one of {KINDS}")
    return replace(block, kind=kind, argument=argument)


def parse_commands(block: Block) -> list[Command]:
    """The commands of a `sh` or `console` block; what is not a command is what one prints."""
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
    """Lines, those of one command together: an open quote or a backslash goes on."""
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
    """The ports of this machine that a page uses; five digits, so that tables stay in line."""
    return {port for block in blocks for port in PORT.findall(block.text)}


def with_ports(blocks: list[Block], ports: dict[str, str]) -> list[Block]:
    """The blocks, with other ports: somebody may have those of the page."""

    def other(found: re.Match[str]) -> str:
        return ports.get(found[0], found[0])

    return [replace(block, text=re.sub(r"\b\d{5}\b", other, block.text)) for block in blocks]


def output_pattern(text: str, *, has_any_numbers: bool = False) -> re.Pattern[str]:
    """What matches a shown output: `...` stands for anything in a line, or for lines."""
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
