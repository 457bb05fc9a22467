"""What is known about a resource, and what do its watchers hear?

Specs: A27, A46, A53, A57, A88, D26.

One `Entry` per watched resource: each event goes in as a method and comes out as what there is to
tell, if anything: the same thing is never told twice. `Seen` remembers resources by their bytes, so
that a large response in which one resource changed costs little more than that one.

No watcher is called here, and no timer runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxyless.base import OK, Status, StatusCode
from proxyless.base.frozen import frozen
from proxyless.xds.client.api import ResourceDump, ResourceStatus

if TYPE_CHECKING:
    from proxyless.xds.client.api import ResourceType, ResourceWatcher


@frozen
class ResourceNews:
    """For `on_resource`: a resource, or a status."""

    resource: Any

    def tell(self, watcher: ResourceWatcher[Any]) -> None:
        watcher.on_resource(self.resource)


@frozen
class AmbientNews:
    """For `on_ambient_error`."""

    status: Status

    def tell(self, watcher: ResourceWatcher[Any]) -> None:
        watcher.on_ambient_error(self.status)


News = ResourceNews | AmbientNews

_NOTHING = object()


class Watch:
    """One watcher of one resource. Nothing is told after it was cancelled."""

    __slots__ = ("is_cancelled", "watcher")

    def __init__(self, watcher: ResourceWatcher[Any]) -> None:
        self.watcher = watcher
        self.is_cancelled = False


class Entry:
    """One watched resource. Driven by responses, timers and the state of its server."""

    __slots__ = (
        "_ambient",
        "_data_error",
        "_outage",
        "_value",
        "authority",
        "failed_s",
        "failed_version",
        "name",
        "serialized",
        "status",
        "type",
        "updated_s",
        "version",
        "watches",
    )

    def __init__(self, resource_type: ResourceType[Any], name: str, authority: str | None) -> None:
        # Fixed at construction.
        self.type = resource_type
        self.name = name
        self.authority = authority
        # Changed by the client.
        self.watches: dict[Watch, None] = {}
        # What came last.
        self.status = ResourceStatus.REQUESTED
        self.serialized = b""
        self.version = ""
        self.failed_version = ""
        self.failed_s = 0.0
        self.updated_s = 0.0
        # What is wrong with the data, and with the way to the server; OK if nothing is.
        self._data_error = OK
        self._outage = OK
        # What watchers were told last: the resource or a status, and the ambient error.
        self._value: Any = _NOTHING
        self._ambient = OK

    @property
    def has_resource(self) -> bool:
        return self._value is not _NOTHING and not isinstance(self._value, Status)

    @property
    def is_answered(self) -> bool:
        """There is a resource, or it is known not to exist: "cached" in the words of A71."""
        return self.has_resource or self.status is ResourceStatus.DOES_NOT_EXIST

    def greet(self) -> list[News]:
        """What a new watcher has to hear of the past, in this order (A88)."""
        if self._value is _NOTHING:
            return []
        news: list[News] = [ResourceNews(self._value)]
        if not self._ambient.is_ok:
            news.append(AmbientNews(self._ambient))
        return news

    # What responses say

    def on_valid(
        self, resource: object, serialized: bytes, version: str, now_s: float
    ) -> News | None:
        """A resource is here. One that equals what is in use is no news."""
        self.serialized, self.version, self.updated_s = serialized, version, now_s
        self._accept()
        if self.has_resource and resource == self._value:
            return self._set_ambient(OK)
        return self._set_value(resource)

    def _accept(self) -> None:
        self.status = ResourceStatus.ACKED
        self.failed_version, self.failed_s = "", 0.0
        self._data_error = self._outage = OK

    def on_invalid(
        self, error: Status, version: str, *, drops: bool, now_s: float = 0.0
    ) -> News | None:
        """The resource was refused."""
        self.status = ResourceStatus.NACKED
        self.failed_version, self.failed_s = version, now_s
        return self._on_data_error(error, drops=drops)

    def on_deleted(self, error: Status, *, drops: bool) -> News | None:
        """The server does not have it any more."""
        self.status = ResourceStatus.DOES_NOT_EXIST
        return self._on_data_error(error, drops=drops)

    def on_server_error(self, error: Status, *, drops: bool) -> News | None:
        """The server says why it does not send it (xRFC TP3)."""
        self.status = ResourceStatus.RECEIVED_ERROR
        # "NOT_FOUND or PERMISSION_DENIED" are about the data, others pass - A88
        is_about_data = error.code in (StatusCode.NOT_FOUND, StatusCode.PERMISSION_DENIED)
        return self._on_data_error(error, drops=drops and is_about_data)

    def on_timeout(self, error: Status) -> News | None:
        """The server did not send it in time."""
        does_not_exist = error.code is StatusCode.NOT_FOUND
        self.status = ResourceStatus.DOES_NOT_EXIST if does_not_exist else ResourceStatus.TIMEOUT
        return self._on_data_error(error, drops=False)

    def _on_data_error(self, error: Status, *, drops: bool) -> News | None:
        self._data_error = error
        if self.has_resource and not drops:
            return self._set_ambient(error)
        self.serialized, self.version = b"", ""
        return self._set_value(error)

    # What is known about the server

    def on_outage(self, error: Status) -> News | None:
        """The server cannot be reached. An answer it gave before still counts."""
        self._outage = error
        if self.has_resource:
            return self._set_ambient(error)
        if self._data_error.is_ok:
            return self._set_value(error)
        return None

    def on_contact(self) -> News | None:
        """The server answers again, if not about this resource."""
        if self._outage.is_ok:
            return None
        self._outage = OK
        if self.has_resource:
            return self._set_ambient(self._data_error)
        if self._data_error.is_ok:
            # Nothing to tell: the resource is on its way, or will be found missing.
            self._value = _NOTHING
        return None

    # What is told

    def _set_value(self, value: object) -> News | None:
        if isinstance(value, Status) and value == self._value:
            return None
        self._value = value
        self._ambient = OK
        return ResourceNews(value)

    def _set_ambient(self, status: Status) -> News | None:
        if status == self._ambient:
            return None
        self._ambient = status
        return AmbientNews(status)

    def dump(self) -> ResourceDump:
        error = self._data_error if not self._data_error.is_ok else self._outage
        return ResourceDump(
            self.type.type_url,
            self.name,
            self.status,
            self.version,
            self.serialized,
            self.updated_s,
            error,
            self.failed_version,
            self.failed_s,
        )


@frozen
class Sighting:
    """What some bytes were found to be."""

    name: str
    error: str
    # Who watches it; None if nobody does.
    entry: Entry | None


class Seen:
    """What one server's resources of one type were when they came last, by their bytes.

    Of what is watched it holds the latest bytes of each; of the rest, those of the last response.
    So its size is that of what the server sends, and nothing is remembered for ever.
    """

    __slots__ = ("_by_bytes", "_bytes_of", "_others", "_others_before")

    def __init__(self) -> None:
        self._by_bytes: dict[bytes, Sighting] = {}
        self._bytes_of: dict[str, bytes] = {}
        self._others: dict[bytes, Sighting] = {}
        self._others_before: dict[bytes, Sighting] = {}

    def start_response(self) -> None:
        self._others_before, self._others = self._others, {}

    def end_response(self) -> None:
        self._others_before = {}

    def find(self, serialized: bytes) -> Sighting | None:
        return self._by_bytes.get(serialized) or self._others_before.get(serialized)

    def remember(self, serialized: bytes, sighting: Sighting) -> None:
        if sighting.entry is None:
            self._others[serialized] = sighting
            return
        self.forget(sighting.name)
        self._by_bytes[serialized] = sighting
        self._bytes_of[sighting.name] = serialized

    def forget(self, name: str) -> None:
        """Nobody watches it any more."""
        serialized = self._bytes_of.pop(name, None)
        if serialized is not None:
            self._by_bytes.pop(serialized, None)
