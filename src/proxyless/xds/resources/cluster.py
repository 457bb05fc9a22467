"""What is a cluster, and how is it reached?

Specs: A27, A37 (discovery), A52 (LB policies), A50, A32, A29, A75 (idle_timeout), A55 (override).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from proxyless.base.frozen import frozen
from proxyless.xds.resources.endpoint import HealthStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.xds.bootstrap import ServerConfig
    from proxyless.xds.resources.matcher import StringMatcher

MAX_REQUESTS_DEFAULT: Final = 1024
IDLE_TIMEOUT_DEFAULT_S: Final = 3600.0
# "unset -> {UNKNOWN, HEALTHY}" (A55-05)
OVERRIDE_HOST_STATUS_DEFAULT: Final = frozenset({HealthStatus.UNKNOWN, HealthStatus.HEALTHY})


@frozen
class EdsCluster:
    """Endpoints come from an EDS resource."""

    # Empty: the resource has the cluster's own name.
    service_name: str = ""


@frozen
class LogicalDnsCluster:
    """Endpoints come from DNS: one endpoint with all addresses of this name."""

    host: str
    port: int


@frozen
class AggregateCluster:
    """Other clusters, the preferred one first."""

    clusters: tuple[str, ...]


Discovery = EdsCluster | LogicalDnsCluster | AggregateCluster


@frozen
class OutlierDetection:
    """The JSON config of outlier_detection without its child policy; compares by content."""

    # Durations are texts such as "10s", as the policy's own config has them.
    config: Mapping[str, object]


@frozen
class CertificateInstance:
    """A certificate provider of the bootstrap, and which of its certificates."""

    instance_name: str
    certificate_name: str = ""


SanType = Literal["DNS", "URI", "email", "IP"]


@frozen
class SanMatcher:
    """What a name of one type is compared with."""

    san_type: SanType
    matcher: StringMatcher


@frozen
class UpstreamTls:
    """How connections to the cluster are secured (A29)."""

    # Who vouches for servers. None: the system's roots (A82).
    ca: CertificateInstance | None
    # What we show. None: nothing.
    identity: CertificateInstance | None = None
    # A server's certificate shows a name that one of them accepts, of any type unless the matcher
    # is for a certain one; empty: not checked further.
    san_matchers: tuple[StringMatcher | SanMatcher, ...] = ()
    # Sent to the server if not empty.
    sni: str = ""
    # A101: the endpoint's hostname, if it has one, is sent in place of `sni`.
    auto_host_sni: bool = False
    # A101: what was sent has to be a DNS name of the certificate, in place of `san_matchers`.
    auto_sni_san_validation: bool = False


@frozen(kw_only=True)
class Cluster:
    """A CDS resource."""

    name: str
    discovery: Discovery
    # The cluster's LB policy as a LoadBalancingConfig list in JSON: exactly one policy, one that we
    # know. Empty for an aggregate whose policy was not looked at (D27).
    lb_config: tuple[Mapping[str, object], ...] = ()
    # None: a policy that does nothing still stands in the tree (A50-01).
    outlier_detection: OutlierDetection | None = None
    max_concurrent_requests: int = MAX_REQUESTS_DEFAULT
    tls: UpstreamTls | None = None
    # Endpoints that have an HTTP proxy are reached through it (A86).
    has_http_proxies: bool = False
    # Where load reports go: to the server that the cluster came from. None: nowhere.
    lrs_server: ServerConfig | None = None
    idle_timeout_s: float = IDLE_TIMEOUT_DEFAULT_S
    override_host_status: frozenset[HealthStatus] = OVERRIDE_HOST_STATUS_DEFAULT
    # Names and values of metadata.filter_metadata["com.google.csm.telemetry_labels"], for metrics.
    telemetry_labels: tuple[tuple[str, str], ...] = ()
