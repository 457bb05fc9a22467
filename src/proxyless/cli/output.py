"""Output of commands: tables, JSON, lines, and error lines.

Texts may come from other processes and machines, so every character that is not printable is
escaped (`base.texts`): commands print through this module only.

A table on a terminal has the terminal's width; in a pipe it has one line per row. Colours are used
on a terminal only, unless `--color`, NO_COLOR or FORCE_COLOR is given (`uses_color`).
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
    from collections.abc import Iterable, Mapping, MutableMapping, Sequence
    from typing import TextIO

    from rich.console import Console
    from rich.table import Table

    # A text, and the style of rich.
    StyledText = tuple[str, str]

TABLE: Final = "table"
JSON: Final = "json"

AUTO, ALWAYS, NEVER = "auto", "always", "never"

# Wider than any row: lines in a pipe are not folded.
_PIPE_WIDTH: Final = 10_000
# Any height: with TERM=dumb, rich would otherwise replace the width.
_PIPE_HEIGHT: Final = 100
_GREEN, _RED, _PLAIN = "\x1b[32m", "\x1b[1;31m", "\x1b[0m"
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
    add_color_option(parser)


def add_color_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--color",
        choices=(AUTO, ALWAYS, NEVER),
        default=AUTO,
        help="colours (default: on a terminal, unless NO_COLOR or FORCE_COLOR is set)",
    )


def apply_color(choice: str, environ: MutableMapping[str, str]) -> None:
    """Set the variables that `uses_color` and rich read, according to `--color`."""
    for name, wanted in (("NO_COLOR", NEVER), ("FORCE_COLOR", ALWAYS)):
        if choice == wanted:
            environ[name] = "1"
        elif choice != AUTO:
            environ.pop(name, None)


def uses_color(file: TextIO) -> bool:
    """Whether to write colours to this file. NO_COLOR has precedence over FORCE_COLOR."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or is_screen(file)


def is_screen(file: TextIO) -> bool:
    """Whether the file is a terminal that can move its cursor."""
    return file.isatty() and os.environ.get("TERM", "") not in {"dumb", "unknown"}


def check_rich(parsed: argparse.Namespace) -> None:
    """Raise ModuleNotFoundError before a long run if its table could not be printed."""
    if parsed.output == TABLE:
        import_module("rich")


def print_json(document: object) -> None:
    print(escape_json(json.dumps(document, indent=2, ensure_ascii=False)))


def print_lines(text: str, file: TextIO | None = None) -> None:
    """Print a text of several lines, flushed."""
    print("\n".join(map(one_line, text.split("\n"))), file=file, flush=True)


def print_verdict(text: str, *, is_good: bool) -> None:
    """Print a text of several lines on standard output, the first in green or red."""
    first, *others = map(one_line, text.split("\n"))
    if uses_color(sys.stdout):
        first = f"{_GREEN if is_good else _RED}{first}{_PLAIN}"
    print("\n".join([first, *others]), flush=True)


def fail(command: str, problems: Iterable[object]) -> int:
    """Print one line per problem on standard error; returns the exit code 1."""
    for problem in problems:
        print_lines(f"proxyless {command}: {one_line(str(problem))}", sys.stderr)
    return 1


def describe_error(error: Exception) -> str:
    """Text of the error; of a file that cannot be read, its name and the reason."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: cannot be read: {error.strerror}"
    return str(error)


def note(command: str, text: str) -> None:
    """Print one line on standard error that is not an error."""
    print_lines(f"proxyless {command}: {one_line(text)}", sys.stderr)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | StyledText]],
    *,
    styles: Mapping[str, str] | None = None,
) -> None:
    """Print one line per row. No markup is read.

    `styles` has the styles of cells by their text; a cell may also have a style of its own.
    """
    # rich is in the extra proxyless[cli].
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    known = styles or {}
    table = Table(box=None, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column.upper(), overflow="fold")
    for row in rows:
        styled = (cell if isinstance(cell, tuple) else (cell, known.get(cell, "")) for cell in row)
        table.add_row(*(Text(one_line(text), style=style) for text, style in styled))
    # No color_system: neither colours nor other escape sequences.
    colors: Any = "standard" if uses_color(sys.stdout) else None
    # rich before 14 takes an empty NO_COLOR for one that is set.
    no_color = colors is None
    if is_screen(sys.stdout):
        console = Console(highlight=False, color_system=colors, no_color=no_color)
        if not _is_too_narrow(console, table):
            console.print(table)
            return
    # On a narrow terminal, lines folded by the terminal are easier to read than narrow columns.
    console = Console(
        width=_PIPE_WIDTH,
        height=_PIPE_HEIGHT,
        highlight=False,
        color_system=colors,
        no_color=no_color,
        force_terminal=colors is not None,
    )
    with console.capture() as captured:
        console.print(table)
    # rich pads the last column with spaces.
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _is_too_narrow(console: Console, table: Table) -> bool:
    """Whether the table would have to be folded into columns that are too narrow."""
    wanted = console.measure(table, options=console.options.update(max_width=_PIPE_WIDTH)).maximum
    return console.width < wanted and console.width < _COLUMN_MIN * len(table.columns)
