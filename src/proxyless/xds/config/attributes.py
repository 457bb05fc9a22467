"""Attributes that go with an XdsConfig: of a resolver's result, and of its endpoints.

A result's attributes are for every policy of the tree; an endpoint's go from the cds policy down to
where they are used. Attributes of an RPC are `xds.filters.attributes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import Key

if TYPE_CHECKING:
    from proxyless.base import Locality
    from proxyless.xds.client import XdsClient
    from proxyless.xds.config.xds_config import ClusterSubscriptions, XdsConfig
    from proxyless.xds.resources import HealthStatus

# Of a resolver's result (A74-41, A74-42, A74-02).
XDS_CONFIG: Final[Key[XdsConfig]] = Key("xds_config")
CLUSTER_SUBSCRIPTIONS: Final[Key[ClusterSubscriptions]] = Key("cluster_subscriptions")
XDS_CLIENT: Final[Key[XdsClient]] = Key("xds_client")

# Of an endpoint. Its own weight and hash key are `lb.attributes`.
LOCALITY: Final[Key[Locality]] = Key("locality")
LOCALITY_WEIGHT: Final[Key[int]] = Key("locality_weight")
HEALTH_STATUS: Final[Key[HealthStatus]] = Key("health_status")
HOSTNAME: Final[Key[str]] = Key("hostname")
# Present and true if the SNI of a connection is the endpoint's hostname (A101): another hostname
# then needs another connection. Otherwise connections do not depend on it.
HAS_HOST_SNI: Final[Key[bool]] = Key("has_host_sni")
