"""Journal: the events of a world, one line each, and a digest of all lines.

A line has the time, the host, the event and its fields. Two runs with the same digest are the same,
so values must not differ between two processes, as memory addresses and the order of sets do.
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
# The digest is over all lines.
LINES_KEPT: Final = 2_000

_TYPE_PREFIX: Final = "type.googleapis.com/"


class Journal:
    """Events of one world. It owns the newest lines, the digest and the counts."""

    def __init__(self, now_s: Callable[[], float], *, kept: int | None = LINES_KEPT) -> None:
        self._now_s = now_s
        self._hash = hashlib.sha256()
        self._lines: deque[str] = deque(maxlen=kept)
        self.counts: Counter[str] = Counter()
        self._listeners: list[Callable[[str, str, dict[str, object]], None]] = []

    def note(self, host: str, event: str, /, **fields: object) -> None:
        """Add one line. Values are texts, numbers, enums, addresses and lists of these."""
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
        """Call the listener for each event from now on: host, event, fields."""
        self._listeners.append(listener)

    @property
    def lines(self) -> Iterable[str]:
        return tuple(self._lines)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


def _show(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_show, value))}]"
    text = str(getattr(value, "value", value))
    # Type URLs are shortened to the name of the message.
    return text.rpartition(".")[2] if text.startswith(_TYPE_PREFIX) else text


@contextmanager
def without_logs() -> Iterator[None]:
    """Disable the logs of a stack whose failures are intended; restores their levels."""
    loggers = [logging.getLogger(name) for name in ("proxyless", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
