"""CDS: parser of Cluster resources.

Specs: A27, A37 (discovery), A52 (LB policy), A50 (outlier detection), A32 (circuit breaking),
A29 (TLS), A86 (HTTP CONNECT), A75 (idle_timeout, and the LB policy of an aggregate), A55-05,
LRS-03, A85 (metrics in load reports). Fields that gRPC does not support are ignored unless that
would weaken security.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, Final

from proxyless.base.endpoint import PORT_MAX
from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.lb.connection_limit import XDS_GUARD, is_scaling_enabled
from proxyless.runtime.work_queue import finish
from proxyless.xds.parsing.decoding import TYPE_URL_PREFIX, decode_resource
from proxyless.xds.parsing.endpoint import HEALTH_STATUSES
from proxyless.xds.parsing.http_proxy import has_http_proxies, parse_proxied_socket
from proxyless.xds.parsing.lb_policy import (
    DEFAULT_CONVERSIONS,
    Conversion,
    LbConfigConverter,
    name_enum_value,
    parse_duration_text,
)
from proxyless.xds.parsing.limits import CLUSTER_BYTES_MAX
from proxyless.xds.parsing.proto_fields import (
    add_error,
    check_config_source,
    decode_any_as,
    read_duration_s,
    read_uint32,
)
from proxyless.xds.parsing.route import ROUTING_TYPES
from proxyless.xds.resources import (
    AggregateCluster,
    Cluster,
    Discovery,
    EdsCluster,
    HealthStatus,
    LbConfig,
    LogicalDnsCluster,
    OutlierDetection,
)
from proxyless.xds.resources.cluster import (
    IDLE_TIMEOUT_DEFAULT_S,
    LEGACY_PROPAGATION,
    MAX_REQUESTS_DEFAULT,
    NAMED_METRICS_PREFIX,
    OVERRIDE_HOST_STATUS_DEFAULT,
    BackendMetricPropagation,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxyless.base import ValidationErrors
    from proxyless.lb import PolicyRegistry
    from proxyless.protos import Proto
    from proxyless.runtime.work_queue import Steps
    from proxyless.xds.client.api import DecodeContext, Decoded
    from proxyless.xds.resources import UpstreamTls

CLUSTER: Final = "envoy.config.cluster.v3.Cluster"
AGGREGATE: Final = "envoy.extensions.clusters.aggregate.v3.ClusterConfig"
HTTP_PROTOCOL_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

# If "true", leaf clusters use the LB policy of their aggregate, so it has to be valid (D27).
AGGREGATE_BACKWARD_COMPAT: Final = "GRPC_XDS_AGGREGATE_CLUSTER_BACKWARD_COMPAT"

TELEMETRY_LABELS: Final = "com.google.csm.telemetry_labels"

# If "false", load reports have the metrics of A64, not of A85 (D49).
PROPAGATION_GUARD: Final = "GRPC_EXPERIMENTAL_XDS_ORCA_LRS_PROPAGATION"

PERCENT_MAX: Final = 100

# DEFAULT of the enum envoy.config.core.v3.RoutingPriority.
_DEFAULT_PRIORITY: Final = 0

_MISSING: Final = "is missing"

_UTILIZATION: Final = ("cpu_utilization", "mem_utilization", "application_utilization")


@frozen
class ClusterType:
    """The CDS resource type."""

    policies: PolicyRegistry
    conversions: Sequence[Conversion] = DEFAULT_CONVERSIONS
    # Read for each resource.
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    type_url = f"{TYPE_URL_PREFIX}{CLUSTER}"
    is_full_state = True
    # Aggregate clusters name clusters, too, but these come in the same response.
    named_by = ROUTING_TYPES

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[Cluster]:
        return finish(self.decode_in_steps(serialized, context))

    def decode_in_steps(self, serialized: bytes, context: DecodeContext) -> Steps[Decoded[Cluster]]:
        def parse(message: Proto, errors: ValidationErrors) -> Steps[Cluster]:
            # A cluster is small, so it is one step.
            yield from ()
            return self.parse(message, errors, context)

        return decode_resource(CLUSTER, serialized, parse)

    def parse(self, message: Proto, errors: ValidationErrors, context: DecodeContext) -> Cluster:
        """A Cluster message. The result is valid only if no error was added."""
        if message.ByteSize() > CLUSTER_BYTES_MAX:
            errors.add(f"has {message.ByteSize()} bytes, wanted at most {CLUSTER_BYTES_MAX}")
            return Cluster(name=message.name, discovery=EdsCluster())
        return Cluster(
            name=message.name,
            discovery=parse_discovery(message, errors),
            lb_config=self._parse_lb_config(message, errors),
            outlier_detection=_parse_outlier_detection(message, errors),
            max_concurrent_requests=_parse_max_requests(message),
            max_connections_per_subchannel=self._parse_max_connections(message, errors),
            tls=self._parse_tls(message, context, errors),
            has_http_proxies=has_http_proxies(message.transport_socket, self.environ),
            lrs_server=context.server if _parse_has_lrs(message, errors) else None,
            metric_propagation=self._parse_metric_propagation(message),
            idle_timeout_s=_parse_idle_timeout_s(message, errors),
            override_host_status=_parse_override_host_status(message),
            telemetry_labels=_parse_telemetry_labels(message),
        )

    def _parse_max_connections(self, message: Proto, errors: ValidationErrors) -> int:
        """The limit in the first per-host threshold for the default priority (A105-03)."""
        if not is_scaling_enabled(self.environ, XDS_GUARD):
            return 1
        for index, threshold in enumerate(message.circuit_breakers.per_host_thresholds):
            if threshold.priority == _DEFAULT_PRIORITY:
                limit = read_uint32(threshold, "max_connections")
                path = f"circuit_breakers.per_host_thresholds[{index}].max_connections"
                if limit == 0:
                    with errors.field(path):
                        errors.add("is 0, wanted 1 or more")
                return limit or 1
        return 1

    def _parse_lb_config(self, message: Proto, errors: ValidationErrors) -> LbConfig:
        # The policy of an aggregate is not used, so it is not parsed (A75-12).
        is_aggregate = message.HasField("cluster_type")
        if is_aggregate and not read_flag(self.environ, AGGREGATE_BACKWARD_COMPAT, default=False):
            return LbConfig()
        converter = LbConfigConverter(self.policies, self.conversions, self.environ)
        return LbConfig.of(converter.convert_cluster(message, errors))

    def _parse_tls(
        self, message: Proto, context: DecodeContext, errors: ValidationErrors
    ) -> UpstreamTls | None:
        if message.transport_socket_matches:
            # "we don't (currently) support transport_socket_matches" - A29. Ignoring the field
            # would mean connections without the TLS that it configures.
            add_error(errors, "transport_socket_matches", "is set, which is not supported")
        if not message.HasField("transport_socket"):
            return None
        from proxyless.xds.parsing.tls import parse_transport_socket  # noqa: PLC0415 - only with TLS

        providers = context.bootstrap.certificate_providers

        def parse_tls(socket: Proto) -> UpstreamTls | None:
            return parse_transport_socket(socket, providers, self.environ, errors)

        with errors.field("transport_socket"):
            if has_http_proxies(message.transport_socket, self.environ):
                return parse_proxied_socket(message.transport_socket, parse_tls, errors)
            return parse_tls(message.transport_socket)

    def _parse_metric_propagation(self, message: Proto) -> BackendMetricPropagation | None:
        if not read_flag(self.environ, PROPAGATION_GUARD, default=True):
            return LEGACY_PROPAGATION
        # "implementations should ignore any strings that do not match a currently supported ORCA
        # field" - A85
        names = frozenset(message.lrs_report_endpoint_metrics)
        utilization = tuple(name for name in _UTILIZATION if name in names)
        if f"{NAMED_METRICS_PREFIX}*" in names:
            return BackendMetricPropagation(utilization, None)
        named = (name for name in names if name.startswith(NAMED_METRICS_PREFIX))
        keys = frozenset(name.removeprefix(NAMED_METRICS_PREFIX) for name in named)
        return BackendMetricPropagation(utilization, keys) if utilization or keys else None


# Discovery of endpoints: A37


def parse_discovery(message: Proto, errors: ValidationErrors) -> Discovery:
    if message.HasField("cluster_type"):
        with errors.field("cluster_type.typed_config"):
            return _parse_aggregate(message.cluster_type.typed_config, errors)
    kind = type(message)
    if message.type == kind.EDS:
        with errors.field("eds_cluster_config"):
            return _parse_eds(message, errors)
    if message.type == kind.LOGICAL_DNS:
        with errors.field("load_assignment"):
            return _parse_logical_dns(message, errors)
    got = name_enum_value(message, "DiscoveryType", message.type)
    add_error(errors, "type", f"is {got}, wanted EDS, LOGICAL_DNS or an aggregate cluster_type")
    return EdsCluster()


def _parse_eds(message: Proto, errors: ValidationErrors) -> EdsCluster:
    config = message.eds_cluster_config
    if not message.HasField("eds_cluster_config"):
        errors.add(_MISSING)
        return EdsCluster()
    with errors.field("eds_config"):
        check_config_source(config.eds_config, errors)
    # The xdstp name of a cluster has the resource type in it, so it cannot name endpoints (A47).
    if not config.service_name and message.name.startswith("xdstp:"):
        text = "is empty, wanted a name, as the cluster has an xdstp name"
        add_error(errors, "service_name", text)
    return EdsCluster(config.service_name)


def _parse_logical_dns(message: Proto, errors: ValidationErrors) -> LogicalDnsCluster:
    """The DNS name and port in the address of the only endpoint of the only locality."""
    invalid = LogicalDnsCluster("", 0)
    if not message.HasField("load_assignment"):
        errors.add(_MISSING)
        return invalid
    localities = message.load_assignment.endpoints
    if len(localities) != 1:
        add_error(errors, "endpoints", f"has {len(localities)} localities, wanted 1")
        return invalid
    endpoints = localities[0].lb_endpoints
    if len(endpoints) != 1:
        add_error(errors, "endpoints[0].lb_endpoints", f"has {len(endpoints)} endpoints, wanted 1")
        return invalid
    path = "endpoints[0].lb_endpoints[0].endpoint.address.socket_address"
    address = endpoints[0].endpoint.address
    if not address.HasField("socket_address"):
        add_error(errors, path, _MISSING)
        return invalid
    with errors.field(path):
        return _parse_dns_name(address.socket_address, errors)


def _parse_dns_name(socket_address: Proto, errors: ValidationErrors) -> LogicalDnsCluster:
    if socket_address.resolver_name:
        add_error(errors, "resolver_name", f"is {socket_address.resolver_name!r}, wanted none")
    if not socket_address.address:
        add_error(errors, "address", "is empty, wanted a name")
    if not socket_address.HasField("port_value"):
        add_error(errors, "port_value", _MISSING)
    elif socket_address.port_value > PORT_MAX:
        text = f"is {socket_address.port_value}, wanted at most {PORT_MAX}"
        add_error(errors, "port_value", text)
    return LogicalDnsCluster(socket_address.address, socket_address.port_value)


def _parse_aggregate(typed_config: Proto, errors: ValidationErrors) -> AggregateCluster:
    config = decode_any_as(AGGREGATE, typed_config, errors)
    if config is None:
        return AggregateCluster(())
    if not config.clusters:
        with errors.key(AGGREGATE):
            add_error(errors, "clusters", "is empty, wanted at least one cluster")
    return AggregateCluster(tuple(config.clusters))


# Connections and RPCs


def _parse_has_lrs(message: Proto, errors: ValidationErrors) -> bool:
    """Whether load is reported, which is possible only to the server that sent the cluster."""
    if not message.HasField("lrs_server"):
        return False
    kind = message.lrs_server.WhichOneof("config_source_specifier")
    if kind != "self":
        add_error(errors, "lrs_server", f"is {kind or 'unset'}, wanted self")
    return True


def _parse_idle_timeout_s(message: Proto, errors: ValidationErrors) -> float:
    if not message.HasField("upstream_config"):
        return IDLE_TIMEOUT_DEFAULT_S
    with errors.field("upstream_config.typed_config"):
        typed_config = message.upstream_config.typed_config
        options = decode_any_as(HTTP_PROTOCOL_OPTIONS, typed_config, errors)
        if options is None:
            return IDLE_TIMEOUT_DEFAULT_S
        with errors.key(HTTP_PROTOCOL_OPTIONS), errors.field("common_http_protocol_options"):
            common = options.common_http_protocol_options
            timeout_s = read_duration_s(common, "idle_timeout", errors)
    return IDLE_TIMEOUT_DEFAULT_S if timeout_s is None else timeout_s


def _parse_max_requests(message: Proto) -> int:
    """The limit in the first threshold for the default priority (A32-01)."""
    for threshold in message.circuit_breakers.thresholds:
        if threshold.priority == _DEFAULT_PRIORITY:
            limit = read_uint32(threshold, "max_requests")
            return MAX_REQUESTS_DEFAULT if limit is None else limit
    return MAX_REQUESTS_DEFAULT


def _parse_override_host_status(message: Proto) -> frozenset[HealthStatus]:
    common = message.common_lb_config
    if not common.HasField("override_host_status"):
        return OVERRIDE_HOST_STATUS_DEFAULT
    # "unsupported values ignored, not NACKed" (A55-05)
    statuses = map(HEALTH_STATUSES.get, common.override_host_status.statuses)
    return frozenset(status for status in statuses if status is not None)


def _parse_telemetry_labels(message: Proto) -> tuple[tuple[str, str], ...]:
    by_filter = message.metadata.filter_metadata
    if TELEMETRY_LABELS not in by_filter:
        return ()
    fields = by_filter[TELEMETRY_LABELS].fields
    texts = [name for name in fields if fields[name].HasField("string_value")]
    return tuple((name, fields[name].string_value) for name in sorted(texts))


# Outlier detection (A50)

# From fields of the message to fields of the policy's config, which has the defaults.
_DURATIONS: Final = {
    "interval": "interval",
    "base_ejection_time": "baseEjectionTime",
    "max_ejection_time": "maxEjectionTime",
}
_SUCCESS_RATE: Final = {
    "success_rate_stdev_factor": "stdevFactor",
    "enforcing_success_rate": "enforcementPercentage",
    "success_rate_minimum_hosts": "minimumHosts",
    "success_rate_request_volume": "requestVolume",
}
_FAILURE_PERCENTAGE: Final = {
    "failure_percentage_threshold": "threshold",
    "enforcing_failure_percentage": "enforcementPercentage",
    "failure_percentage_minimum_hosts": "minimumHosts",
    "failure_percentage_request_volume": "requestVolume",
}
_PERCENTAGES: Final = frozenset(
    {
        "max_ejection_percent",
        "enforcing_success_rate",
        "enforcing_failure_percentage",
        "failure_percentage_threshold",
    }
)


def _parse_outlier_detection(message: Proto, errors: ValidationErrors) -> OutlierDetection | None:
    if not message.HasField("outlier_detection"):
        return None
    detection = message.outlier_detection
    with errors.field("outlier_detection"):
        config: dict[str, object] = {}
        for source, name in _DURATIONS.items():
            if (text := parse_duration_text(detection, source, errors)) is not None:
                config[name] = text
        config |= _parse_numbers(detection, {"max_ejection_percent": "maxEjectionPercent"}, errors)
        # "if the enforcing_success_rate field is set to 0, the config success_rate_ejection field
        # will be null" - A50. The default is 100.
        if read_uint32(detection, "enforcing_success_rate") != 0:
            config["successRateEjection"] = _parse_numbers(detection, _SUCCESS_RATE, errors)
        # Failure percentage ejection is off "if set to 0 or null" - A50.
        if read_uint32(detection, "enforcing_failure_percentage"):
            numbers = _parse_numbers(detection, _FAILURE_PERCENTAGE, errors)
            config["failurePercentageEjection"] = numbers
    return OutlierDetection(config)


def _parse_numbers(
    message: Proto, fields: Mapping[str, str], errors: ValidationErrors
) -> dict[str, object]:
    """The fields that are set, by their names in the config."""
    numbers: dict[str, object] = {}
    for source, name in fields.items():
        value = read_uint32(message, source)
        if value is None:
            continue
        if source in _PERCENTAGES and value > PERCENT_MAX:
            add_error(errors, source, f"is {value}, wanted at most {PERCENT_MAX}")
        numbers[name] = value
    return numbers
