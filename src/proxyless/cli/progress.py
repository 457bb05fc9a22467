"""Progress of a command on standard error.

On a terminal that can move its cursor it is one line, written again and again and removed at the
end. In a pipe, in a log and with TERM=dumb each text is a line of its own, unless it differs from
the previous one in numbers only.
"""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING, Final

from proxyless.base.texts import one_line
from proxyless.cli.output import is_screen

if TYPE_CHECKING:
    from typing import Self, TextIO

_NUMBERS: Final = re.compile(r"[\d.]+")
# Carriage return, and erase to the end of the line.
_ERASE: Final = "\r\x1b[K"


class Progress:
    """The progress of one command. `with` removes the last text from a terminal."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file: Final = sys.stderr if file is None else file
        self._is_screen: Final = is_screen(self._file)
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_screen and self._shown:
            self._write(_ERASE)

    def show(self, text: str) -> None:
        text = one_line(text)
        before, self._shown = self._shown, text
        if self._is_screen:
            # A longer line would be folded, and only its last part erased.
            width = shutil.get_terminal_size().columns - 1
            self._write(f"{_ERASE}{text[:width]}")
        elif _NUMBERS.sub("", text) != _NUMBERS.sub("", before):
            self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()
