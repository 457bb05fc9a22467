"""Which child of the priority policy does a priority of a cluster become, and what is in it?

Specs: A74-58..63, A37, A86 (the proxies of endpoints). Children have numbers, not the priority they
stand at: when localities move between priorities, a child that keeps its number keeps its
connections.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from proxyless.base import EMPTY_ATTRIBUTES, HTTP_PROXY, Endpoint, HttpProxy
from proxyless.base.frozen import frozen
from proxyless.lb import ENDPOINT_WEIGHT, HASH_KEY
from proxyless.lb.hierarchy import with_path
from proxyless.xds.config.attributes import (
    HAS_HOST_SNI,
    HEALTH_STATUS,
    HOSTNAME,
    LOCALITY,
    LOCALITY_WEIGHT,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from proxyless.base import Attributes, IpAddress, Locality
    from proxyless.xds.resources import EndpointInfo, EndpointResource, LocalityEndpoints

Priority = tuple["LocalityEndpoints", ...]
# Child, locality and its weight; whether proxies are used, with that of the locality; whether
# servers are asked by their hostnames.
_Place = tuple[str, "Locality", int, tuple[bool, "IpAddress | None", bool]]


@frozen
class ChildNumbers:
    """The numbers of the priorities of one config, and what the next one is made from."""

    # Highest priority first.
    numbers: tuple[int, ...] = ()
    # Each locality's numbers, in order of the priorities that it stands in. None stands for the
    # priority of a cluster that has no locality.
    by_locality: Mapping[Locality | None, Sequence[int]] = field(default_factory=dict)
    # Numbers are never used again for another priority (A74-62).
    next_number: int = 0


def assign_numbers(before: ChildNumbers, priorities: Sequence[Priority]) -> ChildNumbers:
    """The numbers of these priorities: repeating an update changes none of them.

    Each priority takes the first number of its first locality that has one no higher priority took.
    """
    next_number = before.next_number
    numbers: list[int] = []
    by_locality: dict[Locality | None, list[int]] = {}
    for priority in priorities:
        localities: Sequence[Locality | None] = sorted(each.locality for each in priority)
        localities = localities or (None,)
        number = _kept_number(localities, before.by_locality, numbers)
        if number is None:
            number, next_number = next_number, next_number + 1
        numbers.append(number)
        for locality in localities:
            by_locality.setdefault(locality, []).append(number)
    return ChildNumbers(tuple(numbers), by_locality, next_number)


def _kept_number(
    localities: Sequence[Locality | None],
    before: Mapping[Locality | None, Sequence[int]],
    taken: Collection[int],
) -> int | None:
    for locality in localities:
        for number in before.get(locality, ()):
            if number not in taken:
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
        self._made: dict[int, tuple[EndpointInfo, _Place, Endpoint]] = {}

    def make(
        self,
        resource: EndpointResource,
        names: Sequence[str],
        *,
        has_http_proxies: bool = False,
        has_host_sni: bool = False,
    ) -> tuple[Endpoint, ...]:
        """All endpoints of a cluster, tagged with child, locality and weights (A74-59)."""
        made: dict[int, tuple[EndpointInfo, _Place, Endpoint]] = {}
        shared: dict[object, Attributes] = {}
        for name, priority in zip(names, resource.priorities, strict=True):
            for entry in priority:
                way = (has_http_proxies, entry.http_proxy, has_host_sni)
                place = (name, entry.locality, entry.weight, way)
                for info in entry.endpoints:
                    known = self._made.get(id(info))
                    if known is None or known[1] != place:
                        attributes = _share_attributes(info, place, shared)
                        known = (info, place, Endpoint(info.addresses, attributes))
                    made[id(info)] = known
        self._made = made
        return tuple(endpoint for _, _, endpoint in made.values())


def _share_attributes(
    info: EndpointInfo, place: _Place, shared: dict[object, Attributes]
) -> Attributes:
    """Most endpoints of a locality are alike, and thousands of equal attributes take memory."""
    kind = (info.health, info.weight, info.hostname, info.hash_key, info.http_proxy)
    attributes = shared.get((place, kind))
    if attributes is None:
        attributes = shared[place, kind] = _make_attributes(info, place)
    return attributes


def _make_attributes(info: EndpointInfo, place: _Place) -> Attributes:
    child, locality, weight, (has_http_proxies, proxy, has_host_sni) = place
    attributes = (
        EMPTY_ATTRIBUTES.with_(LOCALITY, locality)
        .with_(LOCALITY_WEIGHT, weight)
        .with_(HEALTH_STATUS, info.health)
        # For policies that see endpoints without their localities (A42).
        .with_(ENDPOINT_WEIGHT, info.weight * weight)
    )
    if info.hostname:
        attributes = attributes.with_(HOSTNAME, info.hostname)
        if has_host_sni:
            attributes = attributes.with_(HAS_HOST_SNI, value=True)
    if info.hash_key:
        attributes = attributes.with_(HASH_KEY, info.hash_key)
    # "look for the key first in the endpoint-level metadata. If not found there, [...] in the
    # locality-level metadata" - A86
    proxy = info.http_proxy or proxy
    if has_http_proxies and proxy is not None:
        attributes = attributes.with_(HTTP_PROXY, HttpProxy(proxy))
    path = (child, str(locality))
    return with_path(Endpoint(info.addresses, attributes), path).attributes
