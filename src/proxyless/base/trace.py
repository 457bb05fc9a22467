"""Trace: named events of state changes and decisions.

Logs, `explain`, the simulator's checkers and tests subscribe to them. Without a subscriber an event
costs one attribute lookup, if the emitter reads `active` before it collects the fields. Events have
no time.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from proxyless.base.frozen import frozen

Sink = Callable[["Event"], None]


@frozen
class Event:
    """One event. Its name starts with the package that emits it."""

    name: str
    fields: Mapping[str, object]

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.fields.items())])


class Trace:
    """Calls its sinks with each event, synchronously, in the order of subscription.

    An exception of a sink propagates to the emitter, so that a checker can stop a simulation.
    """

    __slots__ = ("_sinks", "active")

    def __init__(self) -> None:
        # Replaced, never changed, so that a sink may unsubscribe while it is called.
        self._sinks: tuple[Sink, ...] = ()
        # Derived from the sinks; an attribute because the hot path reads it.
        self.active = False

    def emit(self, name: str, /, **fields: object) -> None:
        if self.active:
            event = Event(name, fields)
            for sink in self._sinks:
                sink(event)

    def subscribe(self, sink: Sink) -> Callable[[], None]:
        """Call this sink with each event until the returned callable is called."""
        is_subscribed = True

        def unsubscribe() -> None:
            nonlocal is_subscribed
            if is_subscribed:
                is_subscribed = False
                sinks = list(self._sinks)
                sinks.remove(sink)
                self._replace_sinks(tuple(sinks))

        self._replace_sinks((*self._sinks, sink))
        return unsubscribe

    def _replace_sinks(self, sinks: tuple[Sink, ...]) -> None:
        self._sinks = sinks
        self.active = bool(sinks)


class _NullTrace(Trace):
    """Trace that is never active. Shared, so `subscribe` raises."""

    __slots__ = ()

    def subscribe(self, sink: Sink) -> Callable[[], None]:
        raise ValueError(f"null trace cannot be subscribed to, got {sink!r}")


NULL: Final[Trace] = _NullTrace()


@contextmanager
def hits(trace: Trace, name: str) -> Iterator[list[Event]]:
    """Assert that the event is emitted in the block; yields the list of its occurrences."""
    found: list[Event] = []
    others: set[str] = set()

    def sink(event: Event) -> None:
        if event.name == name:
            found.append(event)
        else:
            others.add(event.name)

    unsubscribe = trace.subscribe(sink)
    try:
        yield found
    finally:
        unsubscribe()
    assert found, f"event {name!r} was not emitted, got {sorted(others)}"
