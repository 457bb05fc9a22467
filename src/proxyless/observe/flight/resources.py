"""Resources of a recording: the changes within a limit of bytes, and the state before them.

A change that is dropped replaces the resource's state before the recording, so that the recording
has a complete config from its beginning, unless that state is above its own limit. Secrets are
removed when the recording is read: that parses the resource, which may take long.
"""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from proxyless.base.frozen import frozen
from proxyless.observe.flight.recording import RESOURCE_EVENT, Entry
from proxyless.protos.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from proxyless.xds.view import ResourceDump

CHANGES_BYTES_MAX: Final = 4 * 1024 * 1024
STATE_BYTES_MAX: Final = 8 * 1024 * 1024

# Size of a change without its resource and name.
_OVERHEAD_BYTES: Final = 200

# Loop, scope, type and name.
_Key: TypeAlias = tuple[int, str, str, str]


@frozen
class ResourceChange:
    """A resource that has arrived or, without contents, one that is no longer held."""

    number: int
    time: float
    key: _Key
    version: str
    serialized: bytes

    @property
    def size(self) -> int:
        return len(self.serialized) + len(self.key[-1]) + _OVERHEAD_BYTES

    def to_entry(self) -> Entry:
        """The entry of the recording, without secrets."""
        loop, scope, type_url, name = self.key
        contents = redact(type_url, self.serialized) if self.serialized else b""
        fields = {
            "scope": scope,
            "type_url": type_url,
            "name": name,
            "version": self.version,
            "value": b64encode(contents).decode(),
            "is_removed": not self.serialized,
        }
        return Entry(self.number, self.time, loop, RESOURCE_EVENT, fields)


class ResourceLog:
    """Changes of the resources of one process."""

    def __init__(self, next_number: Callable[[], int]) -> None:
        self._next_number = next_number
        # The last bytes of each resource.
        self._last: dict[_Key, bytes] = {}
        self._changes: deque[ResourceChange] = deque()
        self._changes_bytes = 0
        # State before the first change.
        self._state: dict[_Key, ResourceChange] = {}
        self._state_bytes = 0
        self.left_out = 0

    def on_dumps(self, time_s: float, loop: int, dumps: Iterable[tuple[str, ResourceDump]]) -> None:
        """All resources of a loop, with their scopes: what differs from the last time is added."""
        present: set[_Key] = set()
        for scope, dump in dumps:
            key = (loop, scope, dump.type_url, dump.name)
            present.add(key)
            if self._last.get(key, b"") != dump.serialized:
                self._add(key, time_s, dump.version, dump.serialized)
        for key in [each for each in self._last if each[0] == loop and each not in present]:
            self._add(key, time_s, "", b"")

    def _add(self, key: _Key, time_s: float, version: str, serialized: bytes) -> None:
        if serialized:
            self._last[key] = serialized
        else:
            self._last.pop(key, None)
        change = ResourceChange(self._next_number(), time_s, key, version, serialized)
        self._changes.append(change)
        self._changes_bytes += change.size
        while self._changes_bytes > CHANGES_BYTES_MAX and self._changes:
            self._drop(self._changes.popleft())

    def _drop(self, change: ResourceChange) -> None:
        """Make a change part of the state before the others."""
        self._changes_bytes -= change.size
        self.left_out += 1
        before = self._state.pop(change.key, None)
        if before is not None:
            self._state_bytes -= before.size
        if change.serialized and self._state_bytes + change.size <= STATE_BYTES_MAX:
            self._state[change.key] = change
            self._state_bytes += change.size

    def entries(self) -> Iterator[Entry]:
        """State and changes, in the order of their numbers. May be called in any thread."""
        changes = [*self._state.values(), *self._changes]
        return (change.to_entry() for change in changes)
