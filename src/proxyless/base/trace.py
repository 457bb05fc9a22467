"""What just happened, for whoever wants to know?

State changes and decisions are emitted as named events: logs, `explain`, the simulator's checkers
and tests listen. Nobody listening costs one attribute look-up, if the emitter asks `active` before
it gathers the fields.

Events carry no time: a sink that wants it has a clock.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from proxyless.base.frozen import frozen

# Hears of each event.
Sink = Callable[["Event"], None]


@frozen
class Event:
    """One thing that happened: `room.what` and its circumstances."""

    name: str
    fields: Mapping[str, object]

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.fields.items())])


class Trace:
    """Passes events on to its sinks, at once and in the order they subscribed.

    What a sink raises reaches the emitter, so that a checker can stop a simulation.
    """

    __slots__ = ("_sinks", "active")

    def __init__(self) -> None:
        # Replaced, never changed, so that a sink may leave while an event is passed on.
        self._sinks: tuple[Sink, ...] = ()
        # Derived from the sinks; an attribute because the hot path reads it.
        self.active = False

    def emit(self, name: str, /, **fields: object) -> None:
        if self.active:
            event = Event(name, fields)
            for sink in self._sinks:
                sink(event)

    def subscribe(self, sink: Sink) -> Callable[[], None]:
        """Pass events to this sink from now on, until the returned callable is called."""
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
    """Shared by all who have no trace, so nobody may listen to it."""

    __slots__ = ()

    def subscribe(self, sink: Sink) -> Callable[[], None]:
        raise ValueError(f"null trace cannot be subscribed to, got {sink!r}")


NULL: Final[Trace] = _NullTrace()


@contextmanager
def hits(trace: Trace, name: str) -> Iterator[list[Event]]:
    """Assert that the event is emitted inside; gives the list that its occurrences go to."""
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
