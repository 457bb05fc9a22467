"""Deletions at the start of a stream, before the server has sent what names the resources.

Specs: HOLD-10 (D50).

A control plane that was restarted with another config may answer CDS long before RDS. A cluster
that is not in its answer is then still named by the routes in use. So its deletion is published as
a `NoAnswer`, and as final when the listeners and routes in use are answered on the stream, too, or
some time after the stream's first response: an incremental server does not send unchanged ones.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from proxyless.runtime import IDLE_TIMER
from proxyless.xds.client.api import EarlyDeletion, ResourceStatus, naming_types
from proxyless.xds.error_texts import name_resource, name_server, with_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proxyless.runtime import Clock, Timer
    from proxyless.xds.client.api import DecodeContext, ResourceType
    from proxyless.xds.client.cache import Entry, ResourceKey
    from proxyless.xds.client.resource_timers import ProbedStream
    from proxyless.xds.client.response import Outcome, ResourceUpdate


class EarlyDeletions:
    """Deletions on one stream that wait for resources which may name the deleted ones."""

    def __init__(
        self,
        context: DecodeContext,
        awaited: Iterable[Entry],
        clock: Clock,
        stream: ProbedStream,
        on_over: Callable[[], None],
    ) -> None:
        # Fixed at construction.
        self._context = context
        self._clock = clock
        self._stream = stream
        self._on_over = on_over
        # Pending during the time that deletions wait; `stop` prevents what follows, too.
        self._timer: Timer = IDLE_TIMER
        self._is_running = False
        # Resources in use that are not answered on this stream; deletions that wait for them.
        self._awaited = set(awaited)
        self._deleted: dict[Entry, ResourceUpdate] = {}
        # The last response with such a deletion; None if there is none.
        self._outcome: Outcome | None = None

    def start(self, timeout_s: float) -> None:
        """Start the time that deletions wait."""
        self._is_running = True
        # As with resource timers, only a host that is alive can have decided to send no more.
        probe = partial(self._stream.probe, self._on_probed)
        self._timer = self._clock.call_later(timeout_s, probe)

    def stop(self) -> None:
        """The stream has ended: the time that is left does not count. Idempotent."""
        self._is_running = False
        self._timer.cancel()

    def _on_probed(self) -> None:
        if self._is_running:
            self._is_running = False
            self._on_over()

    def left_s(self, is_watched: Callable[[Entry], bool]) -> dict[ResourceKey, float]:
        """Remaining time of the deleted resources; 0 while the probe is not answered."""
        if not self._is_running:
            return {}
        left_s = max(self._timer.due_s - self._clock.now_s(), 0.0)
        waiting = [entry for entry in self._deleted if entry.is_deleted_early]
        return {entry.key: left_s for entry in waiting if is_watched(entry)}

    def defer(self, resource_type: ResourceType[object], outcome: Outcome) -> Outcome:
        """The outcome, with its deletions marked as early if they wait."""
        self._awaited.difference_update(outcome.unchanged)
        for update in outcome.updates:
            self._awaited.discard(update.entry)
            self._deleted.pop(update.entry, None)
        if not self._must_wait(resource_type) or not any(map(_is_deletion, outcome.updates)):
            return outcome
        updates = [self._mark(each) if _is_deletion(each) else each for each in outcome.updates]
        self._outcome = outcome
        return replace(outcome, updates=updates)

    def take_final(
        self, is_watched: Callable[[Entry], bool], *, is_over: bool = False
    ) -> Outcome | None:
        """The deletions that wait for nothing any more, once; all if the time to wait is over."""
        if self._outcome is None:
            return None
        # A listener may name other routes now.
        self._awaited = set(filter(is_watched, self._awaited))
        waiting: dict[Entry, ResourceUpdate] = {}
        final: list[ResourceUpdate] = []
        for entry, update in self._deleted.items():
            if not is_over and self._must_wait(entry.type):
                waiting[entry] = update
            elif entry.is_deleted_early and is_watched(entry):
                final.append(update)
        outcome, self._deleted = self._outcome, waiting
        if not waiting:
            self._outcome = None
        return replace(outcome, updates=final, unchanged=(), valid=0, invalid=0) if final else None

    def _must_wait(self, resource_type: ResourceType[object]) -> bool:
        """Whether deletions of this type wait for resources that may name the deleted ones."""
        types = naming_types(resource_type)
        return any(entry.type.type_url in types for entry in self._awaited)

    def _mark(self, update: ResourceUpdate) -> ResourceUpdate:
        self._deleted[update.entry] = update
        entry, server = update.entry, name_server(self._context.server.uri)
        verb = "deleted" if entry.has_resource or entry.is_deleted_early else "not known"
        why = f"{verb} by {server}, which has not sent listeners and routes again yet"
        text = f"{name_resource(*entry.key)}: does not exist ({why})"
        details = with_node(text, self._context.bootstrap.node.id)
        return update._replace(value=EarlyDeletion(update.value.code, details))


def _is_deletion(update: ResourceUpdate) -> bool:
    """Whether there is no resource any more, or none yet, because it does not exist."""
    is_without = update.drops or not update.entry.has_resource
    return is_without and update.status is ResourceStatus.DOES_NOT_EXIST
