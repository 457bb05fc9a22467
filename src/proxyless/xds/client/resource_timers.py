"""Timers of resources that a server was asked for and has not sent.

Specs: A57 (resource timers), D50.

The resources of one request share a timer. When it fires, the server may be gone without having
closed the connection, so it has to answer a probe first: only a server that is alive can have
decided not to send a resource.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proxyless.runtime import Clock, Timer
    from proxyless.xds.client.cache import ResourceKey


class ProbedStream(Protocol):
    """The part of a stream that timers use."""

    @property
    def has_answered(self) -> bool:
        """Whether the server has sent a response on it."""

    def probe(self, on_answer: Callable[[], None]) -> None:
        """Call back if the server's host is alive."""


class ResourceTimers:
    """Timers of one ADS connection. `on_expired` is called for each resource that is overdue."""

    def __init__(
        self,
        clock: Clock,
        timeout_s: float,
        stream: ProbedStream,
        on_expired: Callable[[ResourceKey], None],
    ) -> None:
        # Fixed at construction.
        self._clock = clock
        self._timeout_s = timeout_s
        self._stream = stream
        self._on_expired = on_expired
        # Running timers, by resource.
        self._waits: dict[ResourceKey, _Wait] = {}
        # Whether a timer has fired since the server's last message; reset by the owner.
        self.has_fired = False

    def left_s(self) -> dict[ResourceKey, float]:
        """Remaining time of each resource."""
        now_s = self._clock.now_s()
        return {key: max(wait.timer.due_s - now_s, 0.0) for key, wait in self._waits.items()}

    def start(self, keys: Iterable[ResourceKey]) -> None:
        """Start one timer for those of these resources that have none."""
        awaited = [key for key in keys if key not in self._waits]
        if awaited:
            wait = _Wait(awaited)
            wait.timer = self._clock.call_later(self._timeout_s, partial(self._on_timer, wait))
            self._waits.update(dict.fromkeys(awaited, wait))

    def stop(self, key: ResourceKey) -> None:
        """Stop the timer of a resource that has come or is no longer needed. Idempotent."""
        wait = self._waits.pop(key, None)
        if wait is not None:
            del wait.keys[key]
            if not wait.keys:
                wait.timer.cancel()

    def stop_all(self) -> None:
        """Stop every timer: the stream has ended. Idempotent."""
        for wait in set(self._waits.values()):
            wait.timer.cancel()
        self._waits = {}

    def _on_timer(self, wait: _Wait) -> None:
        if self._stream.has_answered:
            self._stream.probe(partial(self._expire, wait))
        else:
            self._expire(wait)

    def _expire(self, wait: _Wait) -> None:
        # Resources of a stream that has ended meanwhile have no timer, or another one.
        expired = [key for key in wait.keys if self._waits.get(key) is wait]
        self.has_fired |= bool(expired)
        for key in expired:
            del self._waits[key]
        for key in expired:
            self._on_expired(key)


class _Wait:
    """Timer of the resources of one request."""

    __slots__ = ("keys", "timer")

    def __init__(self, keys: Iterable[ResourceKey]) -> None:
        self.keys = dict.fromkeys(keys)
        self.timer: Timer
