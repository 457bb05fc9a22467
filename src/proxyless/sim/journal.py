"""What happened, in which order, and was it the same as last time?

Every event of a world is one line: time, host, event, circumstances, in columns. Two runs are the
same if their lines are; the digest says so without keeping them. Nothing may come in here that
differs between two processes, such as an address in memory or the order of a set.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter, deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LINE_CHARS_MAX: Final = 160
# What is kept for a report; the digest is over all.
LINES_KEPT: Final = 2_000

_TYPE_PREFIX: Final = "type.googleapis.com/"


class Journal:
    """The events of one world. Driven by its hosts, workloads and faults."""

    def __init__(self, now_s: Callable[[], float], *, kept: int | None = LINES_KEPT) -> None:
        self._now_s = now_s
        self._hash = hashlib.sha256()
        self._lines: deque[str] = deque(maxlen=kept)
        # How often each event was noted, by name.
        self.counts: Counter[str] = Counter()
        self._listeners: list[Callable[[str, str, dict[str, object]], None]] = []

    def note(self, host: str, event: str, /, **fields: object) -> None:
        """One line. Values are texts, numbers, enums, addresses: what prints the same each time."""
        details = " ".join(f"{key}={_show(value)}" for key, value in fields.items())
        line = f"{self._now_s():12.6f} {host:<12} {event:<26} {details}"
        line = line[:LINE_CHARS_MAX].rstrip()
        self._hash.update(line.encode(errors="backslashreplace"))
        self._hash.update(b"\n")
        self._lines.append(line)
        self.counts[event] += 1
        for listener in self._listeners:
            listener(host, event, fields)

    def subscribe(self, listener: Callable[[str, str, dict[str, object]], None]) -> None:
        """Tell of each event from now on: host, event, circumstances."""
        self._listeners.append(listener)

    @property
    def lines(self) -> Iterable[str]:
        """The newest lines, oldest first."""
        return tuple(self._lines)

    @property
    def digest(self) -> str:
        """The same for two runs in which the same happened."""
        return self._hash.hexdigest()


def _show(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_show, value))}]"
    text = str(getattr(value, "value", value))
    # Of a type, its last word.
    return text.rpartition(".")[2] if text.startswith(_TYPE_PREFIX) else text


@contextmanager
def without_logs() -> Iterator[None]:
    """Nothing is logged by a stack whose troubles are meant; as it was afterwards."""
    loggers = [logging.getLogger(name) for name in ("proxyless", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
