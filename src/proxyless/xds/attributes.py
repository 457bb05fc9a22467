"""What do the parts of the xDS tree tell each other beside configs?

Three kinds of attribute: of a resolver's result, for every policy of the tree; of an endpoint, from
cds down to where it is used; of an RPC, from the selector and the filters to the pickers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from proxyless.base import Key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.xds.bootstrap import CertificateProviderConfig
    from proxyless.xds.client import XdsClient
    from proxyless.xds.config.xds_config import ClusterSubscriptions, XdsConfig
    from proxyless.xds.resources import HealthStatus, Locality, UpstreamTls

# Of a resolver's result (A74-41, A74-42, A74-02).
XDS_CONFIG: Final[Key[XdsConfig]] = Key("xds_config")
CLUSTER_SUBSCRIPTIONS: Final[Key[ClusterSubscriptions]] = Key("cluster_subscriptions")
XDS_CLIENT: Final[Key[XdsClient]] = Key("xds_client")

# Of an endpoint. Its own weight and hash key are `lb.attributes`.
LOCALITY: Final[Key[Locality]] = Key("locality")
LOCALITY_WEIGHT: Final[Key[int]] = Key("locality_weight")
HEALTH_STATUS: Final[Key[HealthStatus]] = Key("health_status")
HOSTNAME: Final[Key[str]] = Key("hostname")
# There, and true, where servers are asked by their hostnames (A101), so that another hostname takes
# another connection. Otherwise connections do not care for it.
HAS_HOST_SNI: Final[Key[bool]] = Key("has_host_sni")


class ClusterTls:
    """How connections to a cluster are secured (A29), for those made now: it changes (A74-68).

    Set by xds_cluster_impl, read by whoever connects. An object of its own for each cluster of a
    client, so that a subchannel and its connection outlive a change.
    """

    __slots__ = ("__weakref__", "providers", "tls")

    def __init__(self, providers: Mapping[str, CertificateProviderConfig]) -> None:
        # Fixed at construction: those of the bootstrap.
        self.providers: Final = providers
        # None: by the channel's fallback credentials.
        self.tls: UpstreamTls | None = None


_known_tls: Final[WeakValueDictionary[tuple[XdsClient, str], ClusterTls]] = WeakValueDictionary()


def cluster_tls(client: XdsClient, cluster: str) -> ClusterTls:
    """That of a cluster, the same for all channels of its client: they share connections."""
    new = ClusterTls(client.bootstrap.certificate_providers)
    return _known_tls.setdefault((client, cluster), new)


# There for every endpoint of a cluster, with TLS or not.
UPSTREAM_TLS: Final[Key[ClusterTls]] = Key("upstream_tls")

# Of an RPC: the child of xds_cluster_manager that picks for it (A31-18).
CLUSTER: Final[Key[str]] = Key("cluster")

# Of an RPC whose route has it: the endpoint's hostname is its authority (A81). There or not there.
AUTO_HOST_REWRITE: Final[Key[bool]] = Key("auto_host_rewrite")


class OverrideHost:
    """Where a session lives: the filter says where it did, the picker where the RPC goes (A55).

    Addresses are texts, as in the cookie: those of one endpoint, the preferred one first.
    """

    __slots__ = ("actual_addresses", "cookie_addresses")

    def __init__(self, cookie_addresses: tuple[str, ...] = ()) -> None:
        # Fixed at construction. None: the session is new.
        self.cookie_addresses: Final = cookie_addresses
        # Set by the picker: the connected one, then the others. None: nobody said.
        self.actual_addresses: tuple[str, ...] = ()


# Of an RPC that belongs to a session, old or new.
OVERRIDE_HOST: Final[Key[OverrideHost]] = Key("override_host")
