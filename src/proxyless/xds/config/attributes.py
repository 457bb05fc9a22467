"""Attribute keys of an xDS resolver's result and of endpoints.

The result's attributes are passed to every policy of the tree that may read them. The cds policy
sets those of endpoints. Attributes of an RPC are in `xds.filters.attributes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import Key

if TYPE_CHECKING:
    from proxyless.base import Locality
    from proxyless.xds.client import XdsClient
    from proxyless.xds.config.xds_config import ClusterSubscriptions, XdsConfig
    from proxyless.xds.resources import HealthStatus

# Attributes of a resolver's result (A74-41, A74-42, A74-02).
XDS_CONFIG: Final[Key[XdsConfig]] = Key("xds_config")
CLUSTER_SUBSCRIPTIONS: Final[Key[ClusterSubscriptions]] = Key("cluster_subscriptions")
XDS_CLIENT: Final[Key[XdsClient]] = Key("xds_client")

# Attributes of an endpoint. Its own weight and hash key are in `lb.attributes`.
LOCALITY: Final[Key[Locality]] = Key("locality")
LOCALITY_WEIGHT: Final[Key[int]] = Key("locality_weight")
HEALTH_STATUS: Final[Key[HealthStatus]] = Key("health_status")
HOSTNAME: Final[Key[str]] = Key("hostname")
# True if the SNI of connections is the endpoint's hostname (A101): then endpoints with different
# hostnames cannot share a connection.
HAS_HOST_SNI: Final[Key[bool]] = Key("has_host_sni")
