"""View of the demo as a log: a line for each change of a step."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from proxyless.demo.view import MISSED, SEEN, WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxyless.demo.view import StepView, View


class PlainLog:
    """Writes what has changed since the last view."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write: Final = write
        self._steps: tuple[StepView, ...] = ()

    def show(self, view: View) -> None:
        for old, step in zip_longest(self._steps, view.steps):
            for line in _describe_changes(old, step, view):
                self._write(f"{view.elapsed_s:5.1f} s  {line}")
        self._steps = view.steps


def _describe_changes(old: StepView | None, step: StepView, view: View) -> Iterator[str]:
    state, note = (old.state, old.note) if old is not None else (WAITING, "")
    if state == WAITING != step.state:
        yield step.title
    if step.note and not note:
        is_missed = step.state == MISSED
        yield f"  missed, got: {step.note}" if is_missed else f"  seen {step.note}: {step.expected}"
    if step.state in (SEEN, MISSED) and state not in (SEEN, MISSED):
        yield f"  {_summarize(view)}"


def _summarize(view: View) -> str:
    rates = [f"{each.name} {each.rate:.0f}/s" for each in view.backends if each.rate]
    session = f"session on {view.session.backend or 'no backend'}"
    held = " ".join(f"{each.type} {each.version or '-'}" for each in view.generation.held)
    failures = f"{view.lost} RPCs lost with their backend, {view.failed} failed"
    return f"{', '.join(rates) or 'no answers'}; {session}; {held}; {failures}"
