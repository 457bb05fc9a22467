"""Validation errors of a resource or a config, collected by field path.

A parser walks its input inside `field`, `index` and `key` scopes and adds all errors, not only the
first. They become one text: a NACK, or a rejected service config.

The input is not trusted, so both the number of errors kept and the length of each are bounded.
Parsers of large inputs also count their work here, so that it can be bounded and done in slices.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypeVar

from proxyless.base.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

T = TypeVar("T")

ERRORS_MAX: Final = 100
TEXT_LENGTH_MAX: Final = 500


class ValidationError(ValueError):
    """Raised with all errors of one rejected input."""

    def __init__(self, context: str, errors: ValidationErrors) -> None:
        super().__init__(f"{context}: {errors}")
        self.errors: Final = errors


class ValidationErrors:
    """The errors of one input, by field path."""

    __slots__ = ("_errors", "_path", "count", "regex_work", "work")

    def __init__(self) -> None:
        # Number of all errors, kept or not.
        self.count = 0
        # Work of the parsers since the last `take_work`, and for regular expressions in all. The
        # unit is about a microsecond, but is counted, so that it is the same on every machine.
        self.work = 0
        self.regex_work = 0
        # Texts by rendered path, in the order of the first error of each path.
        self._errors: dict[str, list[str]] = {}
        # Current path of the parser; rendered only for an error.
        self._path: list[str | int | _MapKey] = []

    @property
    def ok(self) -> bool:
        return self.count == 0

    @property
    def is_full(self) -> bool:
        """Whether further errors are not kept, so that a parser may stop."""
        return self.count > ERRORS_MAX

    def take_work(self) -> int:
        """The work since the last call."""
        work, self.work = self.work, 0
        return work

    def add(self, text: str) -> None:
        """Add an error at the current path."""
        self.count += 1
        if self.count <= ERRORS_MAX:
            path = _shorten(_render_path(self._path))
            self._errors.setdefault(path, []).append(_shorten(text))

    def field(self, name: str) -> _Scope:
        """Scope of a field, or of nested fields: `lb_policy.ring_hash`."""
        return _Scope(self._path, name)

    def index(self, index: int) -> _Scope:
        """Scope of one element of the current field, a list."""
        return _Scope(self._path, index)

    def each(self, elements: Iterable[T]) -> Iterator[T]:
        """Iterate over the current field, a list, in the scope of each element.

        Cheaper than `index` for thousands of elements.
        """
        path = self._path
        path.append(0)
        try:
            for path[-1], element in enumerate(elements):
                yield element
        finally:
            path.pop()

    def key(self, key: str) -> _Scope:
        """Scope of one value of the current field, a map."""
        return _Scope(self._path, _MapKey(key))

    def raise_if_any(self, context: str) -> None:
        """Raise ValidationError if there is an error; the context names the input."""
        if not self.ok:
            raise ValidationError(context, self)

    def items(self) -> Iterator[tuple[str, str]]:
        """The kept errors with their paths; the path of the whole input is empty."""
        for path, texts in self._errors.items():
            for text in texts:
                yield path, text

    def __str__(self) -> str:
        entries = [_render_entry(path, texts) for path, texts in self._errors.items()]
        if self.count > ERRORS_MAX:
            # Parsers may have stopped, so their number is not known.
            entries.append("and more")
        return f"[{'; '.join(entries)}]"


class _MapKey(str):
    """A step of a path that is rendered as a map key, not as a field."""

    __slots__ = ()


class _Scope:
    """Context manager: inside, the path is one step longer."""

    __slots__ = ("_path", "_step")

    def __init__(self, path: list[str | int | _MapKey], step: str | int | _MapKey) -> None:
        self._path = path
        self._step = step

    def __enter__(self) -> None:
        self._path.append(self._step)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._path.pop()


def _render_path(path: list[str | int | _MapKey]) -> str:
    rendered = ""
    for step in path:
        if isinstance(step, int):
            rendered += f"[{step}]"
        elif isinstance(step, _MapKey):
            rendered += f"[{json.dumps(step)}]"
        elif rendered and not step.startswith("["):  # A path that was rendered before.
            rendered += f".{step}"
        else:
            rendered += step
    return rendered


def _render_entry(path: str, texts: list[str]) -> str:
    what = f"error:{texts[0]}" if len(texts) == 1 else f"errors:[{'; '.join(texts)}]"
    return f"field:{path} {what}" if path else what


def _shorten(text: str) -> str:
    """The text on one line, without control characters: some of it may be the peer's."""
    shown = text if len(text) <= TEXT_LENGTH_MAX else f"{text[: TEXT_LENGTH_MAX - 3]}..."
    return one_line(shown, TEXT_LENGTH_MAX)
