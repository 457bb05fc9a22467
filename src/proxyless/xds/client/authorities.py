"""Authorities: their servers in use, with fallback, and their watched resources.

Specs: A47 (authorities), A71 (fallback), A95 (fallback on reachability only).

An authority has servers in order of preference. The first one is used; the next one is added when
the last in use is unreachable and a resource is not cached; all lower ones are released as soon as
a higher one sends a response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from proxyless.base import Status
from proxyless.xds.bootstrap.resource_names import XDSTP, parse_resource_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proxyless.xds.bootstrap import ServerConfig
    from proxyless.xds.client.cache import Entry

C = TypeVar("C")


def canonicalize_name(name: str, type_url: str) -> tuple[str | None, str] | Status:
    """Authority of a name, None for old-style names, and its canonical form."""
    if not name.startswith(XDSTP):
        return None, name
    parsed = parse_resource_name(name, type_url.rpartition("/")[2])
    if isinstance(parsed, Status):
        return parsed
    return parsed.authority, str(parsed)


class AuthorityServers(Generic[C]):
    """Servers in use for one authority, of type C, and the index of its watched resources."""

    def __init__(
        self, name: str | None, servers: tuple[ServerConfig, ...], *, on_reachability_only: bool
    ) -> None:
        # Fixed at construction.
        self.name = name
        # A server that is listed twice is not a fallback for itself.
        self._servers = tuple(dict.fromkeys(servers))
        self._on_reachability_only = on_reachability_only
        # In order of preference; the last one is the source of resources.
        self.used: list[C] = []
        # By type URL and name, and those that are not answered.
        self._entries: dict[str, dict[str, Entry]] = {}
        self._unanswered: dict[Entry, None] = {}
        # Whether an outage of all servers was published last.
        self.is_in_outage = False

    # Servers

    @property
    def next_server(self) -> ServerConfig | None:
        return self._servers[len(self.used)] if len(self.used) < len(self._servers) else None

    def needs_next(self, *, is_reachable: bool) -> bool:
        """Whether to add the next server. `is_reachable`: state of the last one in use."""
        if is_reachable or self.next_server is None:
            return False
        # "At least one watcher exists for a resource that is not cached" - A71
        return bool(self._unanswered) or self._on_reachability_only

    def drop_below(self, connection: C) -> list[C]:
        """Remove and return the servers below this one."""
        keep = self.used.index(connection) + 1
        dropped = self.used[keep:]
        del self.used[keep:]
        return dropped

    # Resources

    def add(self, entry: Entry) -> None:
        self._entries.setdefault(entry.type.type_url, {})[entry.name] = entry
        self._unanswered[entry] = None

    def remove(self, entry: Entry) -> None:
        entries = self._entries[entry.type.type_url]
        del entries[entry.name]
        if not entries:
            del self._entries[entry.type.type_url]
        self._unanswered.pop(entry, None)

    def update_unanswered(self, entry: Entry) -> None:
        """Update the index of unanswered entries after an event of this entry."""
        if entry.is_answered:
            self._unanswered.pop(entry, None)
        else:
            self._unanswered[entry] = None

    def find(self, type_url: str, name: str) -> Entry | None:
        entries = self._entries.get(type_url)
        return None if entries is None else entries.get(name)

    def entries_of(self, type_url: str) -> list[Entry]:
        return list(self._entries.get(type_url, {}).values())

    def __iter__(self) -> Iterator[Entry]:
        # Copies, because gauges are read in other threads.
        for entries in list(self._entries.values()):
            yield from list(entries.values())

    @property
    def is_empty(self) -> bool:
        return not self._entries


def find_entry(
    authorities: Mapping[str | None, AuthorityServers[C]], type_url: str, name: str
) -> tuple[str, Entry | None]:
    """Canonical form of a name, or the name itself if it is invalid; its entry if it is watched."""
    canonical = canonicalize_name(name, type_url)
    if isinstance(canonical, Status):
        return name, None
    authority = authorities.get(canonical[0])
    entry = None if authority is None else authority.find(type_url, canonical[1])
    return canonical[1], entry
