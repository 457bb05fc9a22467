"""Cache of a resource's parsed parts, such as endpoints and routes, by their serialized bytes.

A control plane sends a whole resource again when one part of it changes. Parts with the same bytes
as in the last version are not parsed again. The cache does not change the result of parsing.
"""

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# Fewer parts are parsed as fast as they are looked up.
PARTS_MIN: Final = 16
# The limit for one resource, and for all resources together.
PARTS_MAX: Final = 200_000


class PartCache(Generic[T]):
    """Parts of the last valid version of each resource; evicts the least recent `put`."""

    __slots__ = ("_by_resource", "_count")

    def __init__(self) -> None:
        # In the order of `put`.
        self._by_resource: dict[Hashable, Mapping[bytes, T]] = {}
        self._count = 0

    def get(self, resource: Hashable) -> Mapping[bytes, T]:
        """The parts of this resource; empty if it is not cached."""
        return self._by_resource.get(resource, MappingProxyType({}))

    def put(self, resource: Hashable, parts: Mapping[bytes, T]) -> None:
        """Replace the parts of this resource."""
        self._evict(resource)
        if not PARTS_MIN <= len(parts) <= PARTS_MAX:
            return
        self._by_resource[resource] = parts
        self._count += len(parts)
        while self._count > PARTS_MAX:
            self._evict(next(iter(self._by_resource)))

    def _evict(self, resource: Hashable) -> None:
        self._count -= len(self._by_resource.pop(resource, ()))
