"""Which parts of a resource are the same as in its last version?

A control plane sends a whole resource again when one of its parts changes: one endpoint of
thousands. What a part's bytes mean is therefore remembered from one version to the next, and parts
that did not change are the same objects in both. Only how long parsing takes depends on that.
"""

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# Limits of what is remembered: few parts are parsed as fast as they are looked up.
PARTS_MIN: Final = 16
PARTS_MAX: Final = 200_000


class PartMemory(Generic[T]):
    """Parts by their bytes, of the last valid version of those resources that changed latest.

    Driven by the type of resource that owns it.
    """

    __slots__ = ("_by_resource", "_count")

    def __init__(self) -> None:
        # The resource that was kept longest ago comes first.
        self._by_resource: dict[Hashable, Mapping[bytes, T]] = {}
        self._count = 0

    def parts_of(self, resource: Hashable) -> Mapping[bytes, T]:
        """What was kept for this resource; nothing, if it is new or forgotten."""
        return self._by_resource.get(resource, MappingProxyType({}))

    def keep(self, resource: Hashable, parts: Mapping[bytes, T]) -> None:
        """Remember these in place of what was kept before."""
        self._forget(resource)
        if not PARTS_MIN <= len(parts) <= PARTS_MAX:
            return
        self._by_resource[resource] = parts
        self._count += len(parts)
        while self._count > PARTS_MAX:
            self._forget(next(iter(self._by_resource)))

    def _forget(self, resource: Hashable) -> None:
        self._count -= len(self._by_resource.pop(resource, ()))
