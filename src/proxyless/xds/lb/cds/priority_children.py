"""Children of a cluster's priority policy: their names, and the endpoints of each.

Specs: A74-58..63, A37, A86 (the proxies of endpoints), A113 (weights). A child's name has a number
that is not its priority: when localities move between priorities, a child that keeps its number
keeps its connections.
"""

from __future__ import annotations

import os
from dataclasses import field
from itertools import chain
from typing import TYPE_CHECKING

from proxyless.base import EMPTY_ATTRIBUTES, HTTP_PROXY, Endpoint, HttpProxy
from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.lb import ENDPOINT_WEIGHT, HASH_KEY
from proxyless.lb.attributes import WEIGHTED_SHUFFLING_GUARD
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
    from proxyless.xds.lb.cds.endpoint_weights import LocalityShare
    from proxyless.xds.resources import EndpointInfo, EndpointResource, LocalityEndpoints

Priority = tuple["LocalityEndpoints", ...]
# Child, locality and its weight; whether proxies are used; the locality's proxy; whether the SNI is
# the endpoint's hostname; the locality's share, if weights are normalized.
_Context = tuple[str, "Locality", int, bool, "IpAddress | None", bool, "LocalityShare | None"]


@frozen
class ChildNumbers:
    """The child numbers of one config's priorities, and the state for the next config."""

    # Highest priority first.
    numbers: tuple[int, ...] = ()
    # Each locality's numbers, in order of its priorities. The key is None for the priority of a
    # cluster without localities.
    by_locality: Mapping[Locality | None, Sequence[int]] = field(default_factory=dict)
    # A number is never reused for another priority (A74-62).
    next_number: int = 0


def assign_numbers(before: ChildNumbers, priorities: Sequence[Priority]) -> ChildNumbers:
    """Number the priorities; a repeated update changes no number.

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
    """The name has the cluster in it: clusters with equal localities share no child (A74-63)."""
    return f"{{cluster={cluster}, child_number={number}}}"


class EndpointBuilder:
    """Converts a cluster's EDS resource to endpoints; unchanged entries give the same objects.

    Policies further down compare endpoints by identity, so one new endpoint of thousands costs
    little.
    """

    def __init__(self) -> None:
        # By context and by id of the EndpointInfo; the resource keeps it alive, so that its id
        # stays unique.
        self._built: dict[_Context, dict[int, Endpoint]] = {}
        self._resource: EndpointResource | None = None

    def build(
        self,
        resource: EndpointResource,
        names: Sequence[str],
        *,
        has_http_proxies: bool = False,
        has_host_sni: bool = False,
    ) -> tuple[Endpoint, ...]:
        """All endpoints of a cluster, tagged with child, locality and weights (A74-59)."""
        built: dict[_Context, dict[int, Endpoint]] = {}
        for name, priority in zip(names, resource.priorities, strict=True):
            shares = _find_shares(priority)
            for entry, share in zip(priority, shares, strict=True):
                proxy = entry.http_proxy
                context = (
                    name,
                    entry.locality,
                    entry.weight,
                    has_http_proxies,
                    proxy,
                    has_host_sni,
                    share,
                )
                # Most endpoints of a locality are alike, and thousands of equal attributes take
                # memory.
                shared: dict[object, Attributes] = {}
                before, after = self._built.get(context, {}), built.setdefault(context, {})
                for info in entry.endpoints:
                    own = id(info)
                    endpoint = before.get(own)
                    if endpoint is None:
                        attributes = _share_attributes(info, context, shared)
                        endpoint = Endpoint(info.addresses, attributes)
                    after[own] = endpoint
        self._built, self._resource = built, resource
        return tuple(chain.from_iterable(each.values() for each in built.values()))


def _find_shares(priority: Priority) -> Sequence[LocalityShare | None]:
    """The shares of localities if weights are normalized (A113), otherwise None for each."""
    if not read_flag(os.environ, WEIGHTED_SHUFFLING_GUARD, default=False):
        return (None,) * len(priority)
    from proxyless.xds.lb.cds.endpoint_weights import find_shares  # noqa: PLC0415 - off by default

    return find_shares(priority)


def _share_attributes(
    info: EndpointInfo, context: _Context, shared: dict[object, Attributes]
) -> Attributes:
    key = (info.health, info.weight, info.hostname, info.hash_key, info.http_proxy)
    attributes = shared.get(key)
    if attributes is None:
        attributes = shared[key] = _make_attributes(info, context)
    return attributes


def _make_attributes(info: EndpointInfo, context: _Context) -> Attributes:
    child, locality, weight, has_http_proxies, proxy, has_host_sni, share = context
    attributes = (
        EMPTY_ATTRIBUTES.with_(LOCALITY, locality)
        .with_(LOCALITY_WEIGHT, weight)
        .with_(HEALTH_STATUS, info.health)
        # Used by policies that get endpoints without their localities (A42).
        .with_(ENDPOINT_WEIGHT, share.weigh(info.weight) if share else info.weight * weight)
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
    return with_path(Endpoint(info.addresses, attributes), (child, str(locality))).attributes
