"""CDS resources: discovery of endpoints, LB policy, TLS and limits of a cluster.

Specs: A27, A37 (discovery), A52 (LB policies), A50, A32, A29, A75 (idle_timeout), A55 (override),
A85 (metrics in load reports).
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
NAMED_METRICS_PREFIX: Final = "named_metrics."


@frozen
class EdsCluster:
    """Endpoints come from an EDS resource."""

    # If empty, the EDS resource has the name of the cluster.
    service_name: str = ""


@frozen
class LogicalDnsCluster:
    """Endpoints come from DNS: one endpoint with all addresses of this name."""

    host: str
    port: int


@frozen
class AggregateCluster:
    """A list of clusters in the order of preference."""

    clusters: tuple[str, ...]


Discovery = EdsCluster | LogicalDnsCluster | AggregateCluster


@frozen
class OutlierDetection:
    """The JSON config of the outlier_detection policy, without its child policy."""

    config: Mapping[str, object]


@frozen
class CertificateInstance:
    """A certificate of a certificate provider in the bootstrap."""

    instance_name: str
    certificate_name: str = ""


SanType = Literal["DNS", "URI", "email", "IP"]


@frozen
class SanMatcher:
    """A matcher for subject alternative names of one type."""

    san_type: SanType
    matcher: StringMatcher


@frozen
class UpstreamTls:
    """TLS settings of connections to a cluster (A29)."""

    # The provider of the CA certificates. None: the system's roots (A82).
    ca: CertificateInstance | None
    # The client certificate, if any.
    identity: CertificateInstance | None = None
    # One of them must match a name in the server's certificate. Empty: no check.
    san_matchers: tuple[StringMatcher | SanMatcher, ...] = ()
    # Empty: no SNI is sent.
    sni: str = ""
    # Whether the endpoint's hostname, if it has one, is sent instead of `sni` (A101).
    auto_host_sni: bool = False
    # Whether the certificate must have the sent SNI, which replaces `san_matchers` (A101).
    auto_sni_san_validation: bool = False


@frozen
class BackendMetricPropagation:
    """Metrics of per-call ORCA reports that are copied to load reports (A85)."""

    # Fields that an ORCA report and UpstreamLocalityStats both have.
    utilization: tuple[str, ...] = ()
    # Keys of the map named_metrics. None: all.
    named_metrics: frozenset[str] | None = frozenset()
    # Prefix of the keys in load reports. A64 has none.
    prefix: str = NAMED_METRICS_PREFIX


# A64: all named metrics, under their own names.
LEGACY_PROPAGATION: Final = BackendMetricPropagation(named_metrics=None, prefix="")


@frozen
class LbConfig:
    """The LB policy as a LoadBalancingConfig list in JSON with one entry."""

    # Empty for an aggregate, whose policy is not parsed (D27).
    json: tuple[Mapping[str, object], ...] = ()
    # Whether ring_hash may be one of the policies, so that each RPC needs a hash.
    is_hashed: bool = False
    # Whether the policies may read `XDS_CONFIG`: only the cds policy does, by its own name or by
    # `cdsConfig` of xds_cluster_manager.
    reads_config: bool = False

    @classmethod
    def of(cls, json: tuple[Mapping[str, object], ...]) -> LbConfig:
        # Policies are at any depth, also in the configs of policies that are not gRPC's.
        text = str(json)
        return cls(json, "ring_hash_experimental" in text, "cds" in text)


@frozen(kw_only=True)
class Cluster:
    """A CDS resource."""

    name: str
    discovery: Discovery
    lb_config: LbConfig = LbConfig()
    # None: the outlier_detection policy is in the tree, as a no-op (A50-01).
    outlier_detection: OutlierDetection | None = None
    max_concurrent_requests: int = MAX_REQUESTS_DEFAULT
    # Connections to each endpoint (A105).
    max_connections_per_subchannel: int = 1
    tls: UpstreamTls | None = None
    # Whether connections use the HTTP proxies of endpoints that have one (A86).
    has_http_proxies: bool = False
    # The server for load reports, which is the one that sent the cluster. None: no reports.
    lrs_server: ServerConfig | None = None
    # None: load reports have no metrics of backends.
    metric_propagation: BackendMetricPropagation | None = None
    idle_timeout_s: float = IDLE_TIMEOUT_DEFAULT_S
    override_host_status: frozenset[HealthStatus] = OVERRIDE_HOST_STATUS_DEFAULT
    # From metadata.filter_metadata["com.google.csm.telemetry_labels"], for metrics.
    telemetry_labels: tuple[tuple[str, str], ...] = ()
