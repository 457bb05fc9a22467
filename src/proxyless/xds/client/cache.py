"""State of watched resources, and the cache of decoded resources.

Specs: A27, A46, A53, A57, A88, D26.

`Entry` is the state of one watched resource. Each of its events returns the notification for the
watchers, or None if it would repeat the last one; no watcher is called here. `DecodedResourceCache`
finds resources by their bytes, so that only the changed resources of a response are decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from proxyless.base import OK, Status, StatusCode
from proxyless.base.frozen import frozen
from proxyless.xds.client.api import (
    EarlyDeletion,
    NoAnswer,
    ResourceDump,
    ResourceStatus,
    ResourceType,
    is_collection_type,
)
from proxyless.xds.client.notifications import (
    AmbientErrorNotification,
    Notification,
    ResourceNotification,
    Watch,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.xds.client.collection import Collection, CollectionCache

_NOTHING = object()

# A resource of this size has about 20,000 routes or endpoints.
COMPARED_BYTES_MAX: Final = 1024 * 1024

# Type URL and name.
ResourceKey = tuple[str, str]


class Entry:
    """State of one watched resource: last response, errors, and the values last published."""

    __slots__ = (
        "_ambient",
        "_data_error",
        "_outage",
        "_value",
        "authority",
        "collection",
        "failed_s",
        "failed_version",
        "key",
        "name",
        "saved_s",
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
        self.key: ResourceKey = (resource_type.type_url, name)
        self.authority = authority
        # Changed by the client.
        self.watches: dict[Watch, None] = {}
        # From the last response.
        self.status = ResourceStatus.REQUESTED
        self.serialized = b""
        # Instead of the bytes, if the entry is that of a collection.
        self.collection: Collection | None = None
        self.version = ""
        self.failed_version = ""
        self.failed_s = 0.0
        self.updated_s = 0.0
        # Unix time at which an earlier process saved the resource in use; None if it was received.
        self.saved_s: float | None = None
        # Errors of the data and of the connection; OK if there is none.
        self._data_error = OK
        self._outage = OK
        # Last published: the resource or a status, and the ambient error.
        self._value: Any = _NOTHING
        self._ambient = OK

    @property
    def has_resource(self) -> bool:
        return self._value is not _NOTHING and not isinstance(self._value, Status)

    @property
    def is_answered(self) -> bool:
        """Whether there is a resource, or it does not exist: "cached" in the words of A71."""
        is_received = self.has_resource and self.saved_s is None
        # The timer of a silent stream says nothing about the resource.
        is_absent = self.status is ResourceStatus.DOES_NOT_EXIST
        return is_received or (is_absent and not isinstance(self._data_error, NoAnswer))

    @property
    def is_deleted_early(self) -> bool:
        """Whether it was deleted on a stream that has not sent what names it."""
        return isinstance(self._data_error, EarlyDeletion)

    @property
    def is_settled(self) -> bool:
        """Whether a server has answered, with or without this resource."""
        is_silence = isinstance(self._data_error, NoAnswer)
        return self.status is not ResourceStatus.REQUESTED and not is_silence

    def initial_notifications(self) -> list[Notification]:
        if self._value is _NOTHING:
            return []
        notifications: list[Notification] = [ResourceNotification(self._value)]
        if not self._ambient.is_ok:
            notifications.append(AmbientErrorNotification(self._ambient))
        return notifications

    # Events of responses

    def on_valid(
        self, resource: object, serialized: bytes, version: str, now_s: float
    ) -> Notification | None:
        """A valid resource came. It is not published if it equals the resource in use.

        A large one is published in any case: comparing it would take longer than a turn may.
        """
        self.serialized, self.version, self.updated_s = serialized, version, now_s
        self.status, self.saved_s = ResourceStatus.ACKED, None
        self.failed_version, self.failed_s = "", 0.0
        self._data_error = self._outage = OK
        if len(serialized) <= COMPARED_BYTES_MAX and resource == self._value:
            return self._set_ambient(OK)
        return self._set_value(resource)

    def on_collection(
        self, collection: Collection, version: str, now_s: float
    ) -> Notification | None:
        """Members of the collection came or were removed."""
        self.collection, self.serialized = collection, b""
        self.version, self.updated_s = version, now_s
        self.status, self.saved_s = ResourceStatus.ACKED, None
        self.failed_version, self.failed_s = "", 0.0
        self._data_error = self._outage = OK
        if collection.values is self._value:
            return self._set_ambient(OK)
        return self._set_value(collection.values)

    def on_invalid(
        self, error: Status, version: str, *, drops: bool, now_s: float = 0.0
    ) -> Notification | None:
        self.status = ResourceStatus.NACKED
        self.failed_version, self.failed_s = version, now_s
        return self._on_data_error(error, drops=drops)

    def on_deleted(self, error: Status, *, drops: bool) -> Notification | None:
        self.status = ResourceStatus.DOES_NOT_EXIST
        return self._on_data_error(error, drops=drops)

    def on_server_error(self, error: Status, *, drops: bool) -> Notification | None:
        """The server sent an error instead of the resource (xRFC TP3)."""
        self.status = ResourceStatus.RECEIVED_ERROR
        # Of all codes, only "NOT_FOUND or PERMISSION_DENIED" are data errors - A88
        is_about_data = error.code in (StatusCode.NOT_FOUND, StatusCode.PERMISSION_DENIED)
        return self._on_data_error(error, drops=drops and is_about_data)

    def on_saved(
        self, resource: object, serialized: bytes, version: str, saved_s: float
    ) -> Notification | None:
        """Use a resource that an earlier process saved, until there is an answer."""
        self.serialized, self.version, self.saved_s = serialized, version, saved_s
        return self._set_value(resource)

    def on_timeout(self, error: Status) -> Notification | None:
        if self.saved_s is not None and isinstance(error, NoAnswer):
            return self.on_outage(error)
        does_not_exist = error.code is StatusCode.NOT_FOUND
        self.status = ResourceStatus.DOES_NOT_EXIST if does_not_exist else ResourceStatus.TIMEOUT
        # An answer is authoritative for a resource that only an earlier process has received.
        return self._on_data_error(error, drops=does_not_exist and self.saved_s is not None)

    def _on_data_error(self, error: Status, *, drops: bool) -> Notification | None:
        self._data_error = error
        if self.has_resource and not drops:
            return self._set_ambient(error)
        self.serialized, self.version, self.saved_s = b"", "", None
        self.collection = None
        return self._set_value(error)

    # Events of the connection to the server

    def on_outage(self, error: Status) -> Notification | None:
        """The server is unreachable. Its earlier answers stay in force."""
        self._outage = error
        if self.has_resource:
            return self._set_ambient(error)
        if self._data_error.is_ok:
            return self._set_value(error)
        return None

    def on_reachable(self) -> Notification | None:
        """The server sent a response, perhaps without this resource."""
        is_silence = isinstance(self._data_error, NoAnswer) and not self.is_deleted_early
        if self._outage.is_ok and not is_silence:
            return None
        self._outage = OK
        if self.has_resource:
            return self._set_ambient(self._data_error)
        if is_silence:
            # The timer fired on a silent stream; now that the server answers, it starts again.
            self._data_error, self.status = OK, ResourceStatus.REQUESTED
        if self._data_error.is_ok:
            # No notification: the resource will come, or its timer will fire.
            self._value = _NOTHING
        return None

    # Last published

    def _set_value(self, value: object) -> Notification | None:
        if isinstance(value, Status) and value == self._value:
            return None
        self._value = value
        self._ambient = OK
        return ResourceNotification(value)

    def _set_ambient(self, status: Status) -> Notification | None:
        if status == self._ambient:
            return None
        self._ambient = status
        return AmbientErrorNotification(status)

    def dumps(self) -> Iterator[ResourceDump]:
        """State of the resource; of a collection, also that of each member."""
        yield self.dump()
        if self.collection is None:
            return
        members, errors = self.collection.members, self.collection.errors
        for name in {**members, **errors}:
            member, error = members.get(name), errors.get(name, "")
            yield ResourceDump(
                self.type.type_url,
                name,
                ResourceStatus.NACKED if error else ResourceStatus.ACKED,
                "" if member is None else member.version,
                b"" if member is None else member.serialized,
                self.updated_s,
                Status(StatusCode.INVALID_ARGUMENT, error) if error else OK,
                self.failed_version if error else "",
                self.failed_s if error else 0.0,
            )

    def dump(self) -> ResourceDump:
        """State of the resource itself: that of a collection has no bytes."""
        error = self._data_error if not self._data_error.is_ok else self._outage
        return ResourceDump(
            self.type.type_url,
            self.name,
            self.status,
            self.version,
            # A saved collection has bytes, but they are not a resource.
            b"" if is_collection_type(self.type) else self.serialized,
            self.updated_s,
            error,
            self.failed_version,
            self.failed_s,
            self.saved_s,
        )


@frozen
class CachedResource:
    """Result of decoding some bytes: the name, the error if they are invalid, and the entry."""

    name: str
    error: str
    # None if the resource is not watched.
    entry: Entry | None


@final
class DecodedResourceCache:
    """Results of decoding one server's resources of one type, by their bytes.

    It holds the latest bytes of each watched resource, and the unwatched resources of the last
    response, so its size is that of the server's responses.
    """

    __slots__ = ("_by_bytes", "_bytes_of", "_unwatched", "_unwatched_before")

    def __init__(self) -> None:
        self._by_bytes: dict[bytes, CachedResource] = {}
        self._bytes_of: dict[str, bytes] = {}
        self._unwatched: dict[bytes, CachedResource] = {}
        self._unwatched_before: dict[bytes, CachedResource] = {}

    def start_response(self) -> None:
        self._unwatched_before, self._unwatched = self._unwatched, {}

    def end_response(self) -> None:
        self._unwatched_before = {}

    def find(self, serialized: bytes) -> CachedResource | None:
        return self._by_bytes.get(serialized) or self._unwatched_before.get(serialized)

    def bytes_of(self, name: str) -> bytes | None:
        """The latest bytes of a watched resource."""
        return self._bytes_of.get(name)

    def put(self, serialized: bytes, resource: CachedResource) -> None:
        if resource.entry is None:
            self._unwatched[serialized] = resource
            return
        self.remove(resource.name)
        self._by_bytes[serialized] = resource
        self._bytes_of[resource.name] = serialized

    def remove(self, name: str) -> None:
        serialized = self._bytes_of.pop(name, None)
        if serialized is not None:
            self._by_bytes.pop(serialized, None)


def make_cache(resource_type: ResourceType[Any]) -> DecodedResourceCache | CollectionCache:
    if not is_collection_type(resource_type):
        return DecodedResourceCache()
    from proxyless.xds.client.collection import CollectionCache  # noqa: PLC0415 - few need it

    return CollectionCache()
