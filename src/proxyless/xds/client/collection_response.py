"""Decision about one incremental response with members of collections.

Specs: xRFC TP1 (glob collections), LE-04 to LE-09.

A member is accepted or rejected by itself: an invalid one leaves its earlier version in use. The
cost is that of the members in the response, apart from a copy of the mapping.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import StatusCode, one_line, quote
from proxyless.xds.bootstrap.resource_names import GLOB, collection_of
from proxyless.xds.client.api import CollectionType, Decoded, ResourceStatus
from proxyless.xds.client.cache import DecodedResourceCache, Entry
from proxyless.xds.client.collection import CollectionCache, Member
from proxyless.xds.client.response import (
    DECODE_WORK,
    INVALID_WORK_MAX,
    Decision,
    ErrorRules,
    Outcome,
    ResourceUpdate,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxyless.runtime.work_queue import Steps
    from proxyless.xds.client.api import DecodeContext
    from proxyless.xds.client.authorities import AuthorityServers
    from proxyless.xds.client.codec import DiscoveryResponse, RawResource
    from proxyless.xds.client.notifications import Notification

# Errors of members in the text for watchers; a NACK has more.
_ERRORS_SHOWN_MAX: Final = 3


class _CollectionUpdate(ResourceUpdate):
    """Change of members; its value is the collection."""

    __slots__ = ()

    def apply(self, version: str, now_s: float) -> Notification | None:
        return self.entry.on_collection(self.value, version, now_s)


class CollectionDecision(Decision):
    """Decision about one response, while its members are read."""

    def __init__(
        self,
        resource_type: CollectionType[Any],
        context: DecodeContext,
        rules: ErrorRules,
        *,
        authorities: Mapping[str | None, AuthorityServers[Any]],
        cache: CollectionCache,
    ) -> None:
        super().__init__(
            resource_type, context, rules, authorities=authorities, cache=DecodedResourceCache()
        )
        # Fixed at construction. Members are small, and decoded in one step each.
        self._members_type = resource_type
        self._collections = cache
        self._is_stepped = False
        # Entries by the name of their collection as the server writes it.
        self._entries: dict[str, Entry | None] = {}
        # Changed and rejected members, by collection.
        self._changes: dict[Entry, dict[str, Member | None]] = {}
        self._rejected: dict[Entry, dict[str, str]] = {}
        # Numbers of members with those of this response.
        self._counts: dict[Entry, int] = {}
        # Removed names of the response, and their numbers by collection; counted when needed.
        self._removed: Sequence[str] = ()
        self._removed_counts: Counter[Entry] | None = None

    def _find_collection(self, member: str) -> Entry | None:
        name = collection_of(member)
        if name not in self._entries:
            self._entries[name] = self._find(name)[1]
        return self._entries[name]

    def _take_known(self, index: int, raw: RawResource) -> bool:
        if raw.type_url != self._type.type_url:
            return self._reject_type(index, raw)
        if not raw.name:
            self._note_error(f"{self._label} #{index}: has no name")
            return True
        if GLOB in raw.name and collection_of(raw.name) == raw.name:
            text = "is the name of a collection, wanted that of a member"
            self._note_error(f"{self._label} {quote(raw.name)}: {text}")
            return True
        entry = self._find_collection(raw.name)
        if not self._note_present(raw.name) or entry is None:
            return True
        collection = self._collections.find(entry.name)
        held = collection.members.get(raw.name)
        if held is None or held.serialized != raw.serialized:
            return self._invalid_work > INVALID_WORK_MAX and self._skip(index)
        self._valid += 1
        self._note_change(entry, raw.name, held._replace(version=raw.version))
        return True

    def _decode(self, index: int, raw: RawResource) -> Decoded[Any]:
        try:
            return self._members_type.decode_member(raw.name, raw.serialized, self._context)
        except Exception as error:
            return self._on_decode_bug(index, raw, error)

    def _take_new(self, index: int, raw: RawResource, decoded: Decoded[Any]) -> None:
        entry = self._find_collection(raw.name)
        assert entry is not None, "members of other collections are not decoded"
        error = decoded.error or self._check_count(entry, raw.name)
        if not error:
            self._valid += 1
            self._note_change(
                entry, raw.name, Member(decoded.resource, raw.serialized, raw.version)
            )
            return
        self._invalid_work += DECODE_WORK
        self._note_error(error)
        self._rejected.setdefault(entry, {})[raw.name] = one_line(error)
        if self._rules.nack_drops and raw.name in self._collections.find(entry.name).members:
            self._note_change(entry, raw.name, None)

    def _check_count(self, entry: Entry, member: str) -> str:
        """Count the members, and return the error of one too many."""
        members, limit = self._collections.find(entry.name).members, self._members_type.members_max
        if member in members:
            return ""
        number = self._counts.get(entry, len(members)) + 1
        if number > limit and number - self._count_removed(entry) > limit:
            text = f"is member {number} of {quote(entry.name)}, wanted at most {limit}"
            return f"{self._label} {quote(member)}: {text}"
        self._counts[entry] = number
        return ""

    def _count_removed(self, entry: Entry) -> int:
        """Members that the response removes: they make room for others."""
        if self._removed_counts is None:
            self._removed_counts = Counter(
                found
                for name in set(self._removed)
                if (found := self._find_collection(name)) is not None
                and name in self._collections.find(found.name).members
            )
        return self._removed_counts[entry]

    def _note_change(self, entry: Entry, member: str, change: Member | None) -> None:
        self._changes.setdefault(entry, {})[member] = change

    def _remove(self, name: str) -> None:
        """Take the name of a member, or of a collection that does not exist."""
        _, entry = self._find(name)
        if entry is None:
            self._remove_member(name)
        elif entry in self._rejected or any(self._changes.get(entry, {}).values()):
            text = "does not exist, but has members in the response"
            self._note_error(f"{self._label} {quote(name)}: {text}")
        elif self._note_present(name):
            # Its members may be listed as well, before or after it.
            self._changes.pop(entry, None)
            self._collections.remove(entry.name)
            self._delete(entry)

    def _remove_member(self, name: str) -> None:
        if name in self._present:
            text = f"{self._label} {quote(name)}: is both sent and removed in the response"
            self._note_error(text)
            return
        entry = self._find_collection(name)
        if entry is not None:
            collection = self._collections.find(entry.name)
            if name in collection.members or name in collection.errors:
                self._note_change(entry, name, None)

    def run_in_steps(self, response: DiscoveryResponse) -> Steps[Outcome]:
        self._removed = response.removed
        outcome = yield from super().run_in_steps(response)
        for entry in {**self._changes, **self._rejected}:
            # Watches may have ended since the members were read.
            if self._find(entry.name)[1] is entry:
                self._update(entry)
        return replace(outcome, updates=self._updates)

    def _update(self, entry: Entry) -> None:
        changes, rejected = self._changes.get(entry, {}), self._rejected.get(entry, {})
        before = self._collections.find(entry.name)
        after = before.change(changes, rejected)
        self._collections.put(entry.name, after)
        if changes:
            self._updates.append(_CollectionUpdate(entry, ResourceStatus.ACKED, after))
        if after.errors:
            # The members that are valid stay in use.
            code = StatusCode.INVALID_ARGUMENT
            text = _describe(list(after.errors.values()))
            self._fail(entry, ResourceStatus.NACKED, code, text, drops=False)


def _describe(errors: list[str]) -> str:
    more = len(errors) - _ERRORS_SHOWN_MAX
    text = "; ".join(errors[:_ERRORS_SHOWN_MAX])
    return f"{text}; and {more} more" if more > 0 else text
