"""Which child of the priority policy does a priority of a cluster become, and what is in it?

Specs: A74-58..63, A37. Children have numbers, not the priority they stand at: when localities move
between priorities, a child that keeps its number keeps its connections.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proxyless.base import EMPTY_ATTRIBUTES, Endpoint
from proxyless.lb import ENDPOINT_WEIGHT, HASH_KEY
from proxyless.lb.hierarchy import with_path
from proxyless.xds.attributes import HEALTH_STATUS, HOSTNAME, LOCALITY, LOCALITY_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxyless.base import Attributes
    from proxyless.xds.resources import (
        EndpointInfo,
        EndpointResource,
        Locality,
        LocalityEndpoints,
    )

Priority = tuple["LocalityEndpoints", ...]


@dataclass(frozen=True, slots=True)
class ChildNumbers:
    """The numbers of the priorities of one config, and what the next one is made from."""

    # Highest priority first.
    numbers: tuple[int, ...] = ()
    # None stands for the priority of a cluster that has no locality.
    by_locality: Mapping[Locality | None, int] = field(default_factory=dict)
    # Numbers are never used again for another priority (A74-62).
    next_number: int = 0


def assign_numbers(before: ChildNumbers, priorities: Sequence[Priority]) -> ChildNumbers:
    """Each priority takes the number of its first locality that had one, if it is still free."""
    next_number = before.next_number
    numbers: list[int] = []
    by_locality: dict[Locality | None, int] = {}
    taken: set[int] = set()
    for priority in priorities:
        localities: Sequence[Locality | None] = sorted(each.locality for each in priority)
        number = _kept_number(localities or (None,), before.by_locality, taken)
        if number is None:
            number, next_number = next_number, next_number + 1
        taken.add(number)
        numbers.append(number)
        by_locality.update(dict.fromkeys(localities or (None,), number))
    return ChildNumbers(tuple(numbers), by_locality, next_number)


def _kept_number(
    localities: Sequence[Locality | None], known: Mapping[Locality | None, int], taken: set[int]
) -> int | None:
    for locality in localities:
        number = known.get(locality)
        if number is not None and number not in taken:
            return number
    return None


def child_name(cluster: str, number: int) -> str:
    """Clusters with the same localities never share a child (A74-63)."""
    return f"{{cluster={cluster}, child_number={number}}}"


class EndpointMaker:
    """Makes endpoints of what EDS says, the same objects again where nothing changed.

    Policies further down find out what changed by identity, so that one new endpoint of thousands
    costs little.
    """

    def __init__(self) -> None:
        # By id: what it was made of, which keeps the id taken; where it stands; and the endpoint.
        self._made: dict[int, tuple[EndpointInfo, tuple[str, Locality, int], Endpoint]] = {}

    def make(self, resource: EndpointResource, names: Sequence[str]) -> tuple[Endpoint, ...]:
        """All endpoints of a cluster, tagged with child, locality and weights (A74-59)."""
        made: dict[int, tuple[EndpointInfo, tuple[str, Locality, int], Endpoint]] = {}
        shared: dict[object, Attributes] = {}
        for name, priority in zip(names, resource.priorities, strict=True):
            for entry in priority:
                place = (name, entry.locality, entry.weight)
                for info in entry.endpoints:
                    known = self._made.get(id(info))
                    if known is None or known[1] != place:
                        attributes = _share_attributes(info, name, entry, shared)
                        known = (info, place, Endpoint(info.addresses, attributes))
                    made[id(info)] = known
        self._made = made
        return tuple(endpoint for _, _, endpoint in made.values())


def _share_attributes(
    info: EndpointInfo, child: str, entry: LocalityEndpoints, shared: dict[object, Attributes]
) -> Attributes:
    """Most endpoints of a locality are alike, and thousands of equal attributes take memory."""
    likeness = (child, entry.locality, info.health, info.weight, info.hostname, info.hash_key)
    attributes = shared.get(likeness)
    if attributes is None:
        attributes = shared[likeness] = _make_attributes(info, child, entry)
    return attributes


def _make_attributes(info: EndpointInfo, child: str, entry: LocalityEndpoints) -> Attributes:
    attributes = (
        EMPTY_ATTRIBUTES.with_(LOCALITY, entry.locality)
        .with_(LOCALITY_WEIGHT, entry.weight)
        .with_(HEALTH_STATUS, info.health)
        # For policies that see endpoints without their localities (A42).
        .with_(ENDPOINT_WEIGHT, info.weight * entry.weight)
    )
    if info.hostname:
        attributes = attributes.with_(HOSTNAME, info.hostname)
    if info.hash_key:
        attributes = attributes.with_(HASH_KEY, info.hash_key)
    path = (child, str(entry.locality))
    return with_path(Endpoint(info.addresses, attributes), path).attributes
