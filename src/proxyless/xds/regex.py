"""Which regular expressions of a control plane do we run?

Those that RE2 accepts within a bound on its memory: RE2 matches in linear time, and the bound keeps
one expression from taking more of the process than it is worth. `parsing` asks whether a source is
valid; `routing` and the filters compile it again.
"""

from typing import Final, Protocol

import re2

# For the program and the states that matching remembers: about 40,000 instructions.
MEMORY_BYTES_MAX: Final = 1 << 20


class Regex(Protocol):
    """What we use of a compiled expression. It never changes; any thread may match with it."""

    def fullmatch(self, text: str) -> object | None:
        """Something if the expression describes the whole text."""
        ...

    def sub(self, repl: str, text: str) -> str:
        r"""The text with every match replaced; \1 is the first group."""
        ...


def compile_regex(source: str) -> Regex:
    """The compiled expression. ValueError says what is wrong with the source."""
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        regex: Regex = re2.compile(source, options)
    except re2.error as error:
        raise ValueError(_error_text(error)) from error
    return regex


def _error_text(error: Exception) -> str:
    """What RE2 says, which is bytes."""
    said = error.args[0] if error.args else b""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
