"""Names that a client requests and the snapshot does not have.

Such a client waits for 15 s and then reports that the resource does not exist, so a misspelt target
shows first at the control plane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import one_line, quote
from proxyless.base.frozen import frozen
from proxyless.base.texts import NAME_LENGTH_MAX
from proxyless.controlplane.resource import type_name
from proxyless.controlplane.subscription import is_glob
from proxyless.xds.bootstrap.resource_names import collection_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

# Names in one text.
NAMES_SHOWN_MAX: Final = 10


@frozen
class MissingResources:
    """Requested names without a resource, and the names that there are."""

    node_id: str
    type_url: str
    names: tuple[str, ...]
    available: tuple[str, ...]

    def __str__(self) -> str:
        word = type_name(self.type_url)
        request = f"xds node {self.node_id!r} requested {word} {_list(self.names)}"
        others = f"there are {_list(self.available)}" if self.available else f"there is no {word}"
        return f"{request}, which is not here; {others}"


class RequestedNames:
    """Names of the last request of each type on one stream."""

    __slots__ = ("_by_type",)

    def __init__(self) -> None:
        self._by_type: dict[str, frozenset[str]] = {}

    def update(self, type_url: str, names: frozenset[str]) -> frozenset[str]:
        """The names that the request before did not have.

        A name that was requested before is not new: its resource may just have been removed.
        """
        before = self._by_type.get(type_url, frozenset())
        self._by_type[type_url] = names
        return names - before


def find_missing(
    node_id: str, type_url: str, names: Collection[str], resources: Mapping[str, object]
) -> MissingResources | None:
    """The names without a resource; None if each has one."""
    collections = set(map(collection_of, resources)) if any(map(is_glob, names)) else set()
    missing = sorted(name for name in names if name not in resources and name not in collections)
    if not missing:
        return None
    node_id = one_line(node_id, NAME_LENGTH_MAX)
    return MissingResources(node_id, type_url, tuple(missing), tuple(sorted(resources)))


def _list(names: Iterable[str]) -> str:
    shown = [*names]
    more = len(shown) - NAMES_SHOWN_MAX
    text = ", ".join(quote(name) for name in shown[:NAMES_SHOWN_MAX])
    return f"{text} and {more} more" if more > 0 else text
