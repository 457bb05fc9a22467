"""Deletions at the start of a stream, before the server has sent what names the resources.

Specs: HOLD-10 (D50).

A control plane that was restarted with another config may answer CDS long before RDS. A cluster
that is not in its answer is then still named by the routes in use. So its deletion is published as
a `NoAnswer`, and as final when the listeners and routes in use are answered on the stream, too.
Until then its resource timer runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from proxyless.xds.client.api import EarlyDeletion, ResourceStatus, naming_types
from proxyless.xds.error_texts import name_resource, name_server, with_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proxyless.xds.client.api import DecodeContext, ResourceType
    from proxyless.xds.client.cache import Entry
    from proxyless.xds.client.response import Outcome, ResourceUpdate


class EarlyDeletions:
    """Deletions on one stream that wait for resources which may name the deleted ones."""

    def __init__(self, context: DecodeContext, awaited: Iterable[Entry]) -> None:
        self._context = context
        # Resources in use that are not answered on this stream; deletions that wait for them.
        self._awaited = set(awaited)
        self._deleted: dict[Entry, ResourceUpdate] = {}
        # The last response with such a deletion.
        self._outcome: Outcome | None = None

    def defer(self, resource_type: ResourceType[object], outcome: Outcome) -> Outcome:
        """The outcome, with its deletions marked as early if they wait."""
        self._awaited.difference_update(outcome.unchanged)
        for update in outcome.updates:
            self._awaited.discard(update.entry)
            self._deleted.pop(update.entry, None)
        if not self._awaited or not naming_types(resource_type):
            return outcome
        updates = [self._mark(each) if _is_deletion(each) else each for each in outcome.updates]
        self._outcome = outcome
        return replace(outcome, updates=updates)

    def take_final(self, is_watched: Callable[[Entry], bool]) -> Outcome | None:
        """The deletions that wait for nothing any more, once; None if there are none."""
        if not self._deleted:
            return None
        # A listener may name other routes now.
        self._awaited = set(filter(is_watched, self._awaited))
        if self._awaited:
            return None
        deleted, self._deleted = self._deleted, {}
        # The timer of some may have fired.
        updates = [
            update
            for entry, update in deleted.items()
            if entry.is_deleted_early and is_watched(entry)
        ]
        assert self._outcome is not None, "a deletion comes from a response"
        return replace(self._outcome, updates=updates, unchanged=(), valid=0, invalid=0)

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
