"""Collections: resources that are watched together, by one name that ends in `/*`.

Specs: xRFC TP1 (glob collections), LE-04 to LE-09.

The value of a watched collection is an immutable mapping of its members' names to their resources.
A `Collection` is its state as one server sent it, so that a response changes it as a whole.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxyless.base.frozen import frozen
from proxyless.xds.client.codec import encode_members

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Limit of names and versions in the first request of a stream: servers often accept messages of up
# to 4 MiB. The members of larger collections are sent again.
INITIAL_VERSIONS_MAX_BYTES: Final = 2 * 2**20
_PAIR_BYTES: Final = 8


class Member(NamedTuple):
    """A valid member of a collection."""

    # None if it is not used, such as an endpoint that is unhealthy.
    resource: Any
    serialized: bytes
    version: str


@frozen(eq=False)
class Collection:
    """Members of one collection, as one server sent them. Immutable."""

    members: Mapping[str, Member]
    # Errors of rejected members, by name. The earlier version of such a member stays.
    errors: Mapping[str, str]
    # The value of the watched resource: members that are used.
    values: Mapping[str, Any]

    def change(self, changes: Mapping[str, Member | None], errors: Mapping[str, str]) -> Collection:
        """The collection after a response. A change to None is a removal.

        `values` is the same object if no member that is used has changed.
        """
        members, values, is_changed = dict(self.members), dict(self.values), False
        for name, member in changes.items():
            if member is None:
                members.pop(name, None)
            else:
                members[name] = member
            resource = None if member is None else member.resource
            if resource == values.get(name):
                continue
            is_changed = True
            if resource is None:
                del values[name]
            else:
                values[name] = resource
        left = {name: text for name, text in self.errors.items() if name not in changes}
        is_same = not is_changed and self is not NO_MEMBERS
        published = self.values if is_same else MappingProxyType(values)
        return Collection(members, {**left, **errors}, published)

    def encode(self) -> bytes:
        """All members in one message, as they are saved."""
        return encode_members(
            (name, member.version, member.serialized) for name, member in self.members.items()
        )

    def versions(self) -> dict[str, str]:
        """Versions for a new stream: empty for a rejected member, which is sent or removed."""
        held = {name: member.version for name, member in self.members.items()}
        return {**dict.fromkeys(self.errors, ""), **held}


NO_MEMBERS: Final = Collection({}, {}, MappingProxyType({}))


class CollectionCache:
    """Collections of one type that one server has sent, by name."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, Collection] = {}

    def find(self, name: str) -> Collection:
        return self._by_name.get(name, NO_MEMBERS)

    def put(self, name: str, collection: Collection) -> None:
        self._by_name[name] = collection

    def remove(self, name: str) -> None:
        self._by_name.pop(name, None)

    def start_stream(self, find_used: Callable[[str], Collection | None]) -> dict[str, str]:
        """Versions of all members for the first request of a stream.

        A collection that is not in use, because another server has sent it since, is removed, and
        so are those that would make the request too large: the stream's first response has all of
        their members.
        """
        versions: dict[str, str] = {}
        size_bytes = 0
        for name, collection in list(self._by_name.items()):
            held = collection.versions()
            size_bytes += sum(len(each) + len(held[each]) + _PAIR_BYTES for each in held)
            if find_used(name) is not collection or size_bytes > INITIAL_VERSIONS_MAX_BYTES:
                del self._by_name[name]
            else:
                versions |= held
        return versions
