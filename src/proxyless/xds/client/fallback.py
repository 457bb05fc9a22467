"""Which server speaks for a resource name now?

Specs: A47 (authorities), A71 (fallback), A95 (fallback on reachability only).

A name belongs to an authority, and an authority has servers in order of preference. The first one
is used; the next one is added when the last in use cannot be reached and something is missing; all
lower ones are let go as soon as a higher one answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from proxyless.base import Status
from proxyless.xds.bootstrap.resource_names import XDSTP, parse_resource_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.xds.bootstrap import ServerConfig
    from proxyless.xds.client.cache import Entry

C = TypeVar("C")


def place_name(name: str, type_url: str) -> tuple[str | None, str] | Status:
    """The authority of a name, None for that of old-style names, and its one true spelling."""
    if not name.startswith(XDSTP):
        return None, name
    parsed = parse_resource_name(name, type_url.rpartition("/")[2])
    if isinstance(parsed, Status):
        return parsed
    return parsed.authority, str(parsed)


def should_fall_back(
    *, is_reachable: bool, has_next: bool, is_missing_any: bool, on_reachability_only: bool = False
) -> bool:
    """Whether the next server has to be used, too.

    "At least one watcher exists for a resource that is not cached" - A71
    """
    return not is_reachable and has_next and (is_missing_any or on_reachability_only)


class Authority(Generic[C]):
    """The servers in use for the names of one authority, and what is watched there.

    Driven by the client. C is whatever the client has for a server.
    """

    def __init__(
        self, name: str | None, servers: tuple[ServerConfig, ...], *, on_reachability_only: bool
    ) -> None:
        # Fixed at construction.
        self.name = name
        # A server that is listed twice is no way out when it cannot be reached.
        self._servers = tuple(dict.fromkeys(servers))
        self._on_reachability_only = on_reachability_only
        # In order of preference; resources come from the last one.
        self.used: list[C] = []
        # By type URL and name; those without an answer once more, so that nobody has to look.
        self._entries: dict[str, dict[str, Entry]] = {}
        self._unanswered: dict[Entry, None] = {}
        # Whether watchers were told that no server can be reached.
        self.is_in_outage = False

    # Servers

    @property
    def next_server(self) -> ServerConfig | None:
        return self._servers[len(self.used)] if len(self.used) < len(self._servers) else None

    def wants_next(self, *, is_reachable: bool) -> bool:
        """Whether to use the next server, too, given the state of the last in use."""
        return should_fall_back(
            is_reachable=is_reachable,
            has_next=self.next_server is not None,
            is_missing_any=bool(self._unanswered),
            on_reachability_only=self._on_reachability_only,
        )

    def drop_below(self, connection: C) -> list[C]:
        """A server answered: those after it are not needed any more."""
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

    def note_answer(self, entry: Entry) -> None:
        """The entry has changed: look whether it still waits for an answer."""
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
        # Copies: whoever measures may look from another thread.
        for entries in list(self._entries.values()):
            yield from list(entries.values())

    @property
    def is_empty(self) -> bool:
        return not self._entries
