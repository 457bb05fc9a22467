"""Output of commands: tables, JSON, lines, and error lines.

Texts may come from other processes and machines, so every character that is not printable is
escaped (`base.texts`): commands print through this module only.

A table on a terminal has the terminal's width and, unless NO_COLOR is set, colours; in a pipe it
has one line per row.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from proxyless.base.texts import escape_json, one_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TextIO

    from rich.console import Console
    from rich.table import Table

TABLE: Final = "table"
JSON: Final = "json"

# Wider than any row: lines in a pipe are not folded.
_PIPE_WIDTH: Final = 10_000
# Mean width of the columns, below which folded columns are unreadable.
_COLUMN_MIN: Final = 14


def add_output_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        choices=(TABLE, JSON),
        default=TABLE,
        help="output format (default: %(default)s)",
    )


def check_rich(parsed: argparse.Namespace) -> None:
    """Raise ModuleNotFoundError before a long run if its table could not be printed."""
    if parsed.output == TABLE:
        import_module("rich")


def print_json(document: object) -> None:
    print(escape_json(json.dumps(document, indent=2, ensure_ascii=False)))


def print_lines(text: str, file: TextIO | None = None) -> None:
    """Print a text of several lines, flushed."""
    print("\n".join(map(one_line, text.split("\n"))), file=file, flush=True)


def fail(command: str, problems: Iterable[object]) -> int:
    """Print one line per problem on standard error; returns the exit code 1."""
    for problem in problems:
        print_lines(f"proxyless {command}: {one_line(str(problem))}", sys.stderr)
    return 1


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    styles: Mapping[str, str] | None = None,
) -> None:
    """Print one line per row. `styles` has the styles of cells by their text; no markup is read."""
    # rich is in the extra proxyless[cli].
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    known = styles or {}
    table = Table(box=None, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column.upper(), overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell), style=known.get(cell, "")) for cell in row))
    if sys.stdout.isatty():
        # No color_system: neither colours nor other escape sequences.
        colors: Any = None if os.environ.get("NO_COLOR") else "auto"
        console = Console(highlight=False, color_system=colors)
        if not _is_too_narrow(console, table):
            console.print(table)
            return
    # On a narrow terminal, lines folded by the terminal are easier to read than narrow columns.
    console = Console(width=_PIPE_WIDTH, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(table)
    # rich pads the last column with spaces.
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _is_too_narrow(console: Console, table: Table) -> bool:
    """Whether the table would have to be folded into columns that are too narrow."""
    wanted = console.measure(table, options=console.options.update(max_width=_PIPE_WIDTH)).maximum
    return console.width < wanted and console.width < _COLUMN_MIN * len(table.columns)
