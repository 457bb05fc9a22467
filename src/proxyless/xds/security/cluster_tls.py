"""TLS settings of a cluster, shared by all channels of one XdsClient.

Specs: A29, A74-68.

`ClusterTls` is the value of an endpoint attribute, so that a subchannel and its connection outlive
a change of the settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from proxyless.base import Key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.xds.bootstrap import CertificateProviderConfig
    from proxyless.xds.client import XdsClient
    from proxyless.xds.resources import UpstreamTls


class ClusterTls:
    """TLS settings for new connections to a cluster.

    Set by xds_cluster_impl, read by the connector of a subchannel.
    """

    __slots__ = ("__weakref__", "cluster", "providers", "tls", "warned_of")

    def __init__(
        self, providers: Mapping[str, CertificateProviderConfig], cluster: str = ""
    ) -> None:
        # For the log.
        self.cluster: Final = cluster
        # The certificate providers of the bootstrap.
        self.providers: Final = providers
        # None: the channel's fallback credentials secure the connection.
        self.tls: UpstreamTls | None = None
        # The settings for which a warning was logged.
        self.warned_of: UpstreamTls | None = None


# Settings may be reachable from their client, by calls of its loop whose deadline is still queued:
# a client that was referenced here would never be freed.
_shared_tls: Final[WeakKeyDictionary[XdsClient, WeakValueDictionary[str, ClusterTls]]] = (
    WeakKeyDictionary()
)


def cluster_tls(client: XdsClient, cluster: str) -> ClusterTls:
    """The settings of a cluster: one object for all channels of its client."""
    new = ClusterTls(client.bootstrap.certificate_providers, cluster)
    by_name = _shared_tls.get(client)
    if by_name is None:
        by_name = _shared_tls.setdefault(client, WeakValueDictionary())
    return by_name.setdefault(cluster, new)


# Every endpoint of a cluster has this attribute, with TLS or without.
UPSTREAM_TLS: Final[Key[ClusterTls]] = Key("upstream_tls")
