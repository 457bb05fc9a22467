"""How do commands show what they found: as a table for people, or as JSON for programs?

A terminal gets its own width and, unless NO_COLOR is set, colours; a pipe gets one line per row.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

TABLE: Final = "table"
JSON: Final = "json"

# Wider than any row: what reads a pipe does not want lines folded.
_PIPE_WIDTH: Final = 10_000
# Of a column, on average, if the terminal is too narrow for all of it.
_COLUMN_MIN: Final = 14


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """Let the user choose."""
    parser.add_argument(
        "-o",
        "--output",
        choices=(TABLE, JSON),
        default=TABLE,
        help="what the answer looks like (default: %(default)s)",
    )


def print_json(document: object) -> None:
    """Indented, in the order it was made."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    styles: Mapping[str, str] | None = None,
) -> None:
    """One line per row; a cell whose text has a style is shown in it. No markup is read."""
    known = styles or {}
    table = Table(box=None, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column.upper(), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=known.get(cell, "")) for cell in row))
    if sys.stdout.isatty():
        # Without colours there are no other escape sequences, either: it is what people expect.
        colors: Any = None if os.environ.get("NO_COLOR") else "auto"
        console = Console(highlight=False, color_system=colors)
        if not _is_too_narrow(console, table):
            console.print(table)
            return
    # The terminal folds lines that are too long, and does it better than columns of a few letters.
    console = Console(width=_PIPE_WIDTH, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(table)
    # Cells are filled up with spaces, the last one, too.
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _is_too_narrow(console: Console, table: Table) -> bool:
    """Whether the table would have to be folded, and its columns would be too thin for that."""
    wanted = console.measure(table, options=console.options.update(max_width=_PIPE_WIDTH)).maximum
    return console.width < wanted and console.width < _COLUMN_MIN * len(table.columns)
