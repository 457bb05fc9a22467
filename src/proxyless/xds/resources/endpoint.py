"""EDS resources: endpoints by priority and locality, and drop categories.

Specs: A27-21..24, A55 (health for overrides), A61 (several addresses), A75, A86 (proxies), LE
(collections).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from proxyless.base import Address, IpAddress, Locality


class HealthStatus(Enum):
    """Health of an endpoint. Endpoints with another value of Envoy's enum are not in a resource."""

    UNKNOWN = "UNKNOWN"
    HEALTHY = "HEALTHY"
    DRAINING = "DRAINING"

    # That of Enum is a Python function, and each new endpoint is looked up by its health.
    __hash__ = object.__hash__


@frozen
class EndpointInfo:
    """One endpoint, with one or more addresses (A61-02)."""

    addresses: tuple[Address, ...]
    # At least 1.
    weight: int = 1
    health: HealthStatus = HealthStatus.UNKNOWN
    # For :authority (A81) and SNI (A101).
    hostname: str = ""
    # From the metadata of envoy.lb (A76).
    hash_key: str = ""
    # For clusters with proxies (A86). None: the proxy of its locality.
    http_proxy: IpAddress | None = None


@frozen
class LocalityEndpoints:
    """The endpoints of one locality in one priority."""

    locality: Locality
    # At least 1: localities without weight are skipped.
    weight: int
    endpoints: tuple[EndpointInfo, ...]
    # The proxy of endpoints without their own (A86), if any.
    http_proxy: IpAddress | None = None
    # The collection that has its endpoints (LEDS); empty if they are in the EDS resource.
    collection: str = ""


@frozen
class DropCategory:
    """A share of RPCs to drop. Categories are evaluated in order."""

    name: str
    per_million: int


@frozen(kw_only=True)
class EndpointResource:
    """An EDS resource (ClusterLoadAssignment), or a DNS result in the same form."""

    name: str
    # Indexed by priority; localities are in the order of the message.
    priorities: tuple[tuple[LocalityEndpoints, ...], ...] = ()
    drops: tuple[DropCategory, ...] = ()
    # The collections of all localities. An EDS resource has no endpoints of these localities: the
    # dependency manager adds them.
    collections: tuple[str, ...] = ()

    @property
    def has_endpoints(self) -> bool:
        """Whether any endpoint takes RPCs without a session: draining ones do not."""
        return any(
            endpoint.health is not HealthStatus.DRAINING
            for priority in self.priorities
            for locality in priority
            for endpoint in locality.endpoints
        )
