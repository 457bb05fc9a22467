"""Which endpoints does a cluster have, where, and how many RPCs are to be dropped?

Specs: A27-21..24, A55 (health for overrides), A61 (several addresses), A75, A86 (proxies).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from proxyless.base import Address, IpAddress, Locality


class HealthStatus(Enum):
    """What the control plane says about an endpoint; of other values there is no endpoint."""

    UNKNOWN = "UNKNOWN"
    HEALTHY = "HEALTHY"
    DRAINING = "DRAINING"


@frozen
class EndpointInfo:
    """One backend."""

    # The first, then the additional ones (A61-01).
    addresses: tuple[Address, ...]
    # At least 1.
    weight: int = 1
    health: HealthStatus = HealthStatus.UNKNOWN
    # Of the endpoint itself, for :authority (A81); often empty.
    hostname: str = ""
    # metadata envoy.lb hash_key (A76); often empty.
    hash_key: str = ""
    # Its own, which clusters may use (A86). None: that of its locality.
    http_proxy: IpAddress | None = None


@frozen
class LocalityEndpoints:
    """The endpoints of one locality in one priority."""

    locality: Locality
    # At least 1: localities without weight are not here.
    weight: int
    endpoints: tuple[EndpointInfo, ...]
    # Of endpoints that have none of their own (A86). None: they are reached directly.
    http_proxy: IpAddress | None = None


@frozen
class DropCategory:
    """RPCs to drop, for a reason; the categories are tried in their order."""

    name: str
    per_million: int


@frozen(kw_only=True)
class EndpointResource:
    """An EDS resource (ClusterLoadAssignment), or what DNS said in the same form."""

    name: str
    # By priority, 0 first; the localities of each in the order in which they came.
    priorities: tuple[tuple[LocalityEndpoints, ...], ...] = ()
    drops: tuple[DropCategory, ...] = ()

    @property
    def has_endpoints(self) -> bool:
        """Whether there is one for RPCs without a session: those that drain take no others."""
        return any(
            endpoint.health is not HealthStatus.DRAINING
            for priority in self.priorities
            for locality in priority
            for endpoint in locality.endpoints
        )
