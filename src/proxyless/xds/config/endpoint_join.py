"""Join of an EDS resource with the endpoints of its collections (LEDS).

Specs: LE-10 to LE-12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from operator import is_
from typing import TYPE_CHECKING, Final, TypeAlias

from proxyless.base import Status, StatusCode
from proxyless.base.frozen import frozen
from proxyless.xds.config.plan import MISSING
from proxyless.xds.error_texts import name_collection, name_endpoints
from proxyless.xds.parsing.limits import ENDPOINTS_MAX
from proxyless.xds.resources import EndpointInfo, EndpointResource, LocalityEndpoints

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.base import Address
    from proxyless.xds.config.plan import ResourceStates

# Endpoints by the name of their resource.
EndpointCollection: TypeAlias = Mapping[str, EndpointInfo]

NO_ENDPOINTS: Final[EndpointCollection] = {}


@frozen(eq=False)
class JoinedEndpoints:
    """An EDS resource, the collections that it names, and the result of joining them."""

    source: EndpointResource
    collections: tuple[EndpointCollection, ...]
    resource: EndpointResource
    # The number of endpoints beyond the limit, which are left out.
    excess: int

    def is_result_of(
        self, source: EndpointResource, collections: tuple[EndpointCollection, ...]
    ) -> bool:
        """Whether these objects, and not only equal ones, were joined."""
        return self.source is source and all(map(is_, self.collections, collections))


@frozen
class JoinResult:
    """An EDS resource with the endpoints of its collections."""

    resource: EndpointResource
    # The first collection that is missing, and one that no server has answered; empty if none.
    missing: str = ""
    unanswered: str = ""
    # Errors by subject. A collection in error has no endpoints, so that other localities are used.
    errors: Mapping[str, Status] = field(default_factory=dict)


def join_collections(states: ResourceStates, source: EndpointResource) -> JoinResult:
    """Join an EDS resource with the current states of its collections.

    The result for the same objects is the same object.
    """
    errors: dict[str, Status] = {}
    found: list[EndpointCollection] = []
    unanswered = ""
    for name in source.collections:
        state, subject = states.collections.get(name, MISSING), name_collection(name)
        if state.is_missing:
            return JoinResult(source, missing=subject)
        if state.is_unanswered:
            unanswered = subject
        error = state.ambient_error if state.error.is_ok else state.error
        if not error.is_ok:
            errors[subject] = error
        found.append(NO_ENDPOINTS if state.resource is None else state.resource)
    joined = states.joined.get(source.name)
    if joined is None or not joined.is_result_of(source, tuple(found)):
        joined = states.joined[source.name] = join_endpoints(source, tuple(found))
    if joined.excess:
        text = f"{joined.excess} are left out, wanted at most {ENDPOINTS_MAX}"
        errors[name_endpoints(source.name)] = Status(StatusCode.RESOURCE_EXHAUSTED, text)
    return JoinResult(joined.resource, unanswered=unanswered, errors=errors)


def join_endpoints(
    source: EndpointResource, collections: tuple[EndpointCollection, ...]
) -> JoinedEndpoints:
    """Put the endpoints of collections, in the order of `source.collections`, in their localities.

    An address is used once: a control plane that moves an endpoint to another collection cannot
    change both at the same time. The first locality has it, in order of priority.
    """
    by_name = dict(zip(source.collections, collections, strict=True))
    chooser = _Chooser()
    # Endpoints of the EDS resource itself come first: the parser has checked them.
    for locality in _localities(source):
        chooser.choose(locality.endpoints)
    priorities = tuple(
        tuple(
            _fill(locality, chooser.choose(by_name[locality.collection].values()))
            if locality.collection
            else locality
            for locality in priority
        )
        for priority in source.priorities
    )
    resource = EndpointResource(
        name=source.name,
        priorities=priorities,
        drops=source.drops,
        collections=source.collections,
    )
    return JoinedEndpoints(source, collections, resource, chooser.excess)


def _localities(resource: EndpointResource) -> Iterable[LocalityEndpoints]:
    return (locality for priority in resource.priorities for locality in priority)


def _fill(locality: LocalityEndpoints, endpoints: tuple[EndpointInfo, ...]) -> LocalityEndpoints:
    return LocalityEndpoints(
        locality.locality, locality.weight, endpoints, locality.http_proxy, locality.collection
    )


class _Chooser:
    """Selection of the endpoints to use: each address once, up to the limit."""

    def __init__(self) -> None:
        self._addresses: set[Address] = set()
        self._left = ENDPOINTS_MAX
        self.excess = 0

    def choose(self, endpoints: Iterable[EndpointInfo]) -> tuple[EndpointInfo, ...]:
        used, addresses = [], self._addresses
        for endpoint in endpoints:
            if not addresses.isdisjoint(endpoint.addresses):
                continue
            if not self._left:
                self.excess += 1
                continue
            self._left -= 1
            addresses.update(endpoint.addresses)
            used.append(endpoint)
        return tuple(used)
