"""Fields of Envoy's messages that this client reads.

Specs: A27, A28, A29, A31, A32, A33, A37, A39, A42, A44, A50, A52, A55, A58, A61, A74, A75, A82,
A86, A101.

`PARSED_FIELDS` has the fields that the parsers of `xds.parsing` and `xds.filters` read or reject,
by message. Other fields of these messages are ignored, as in other gRPC clients. Messages that are
not in the table are values, such as durations and fractions.

`IGNORED_FIELD_NOTES` explains the effect of ignoring a field, `HARMLESS` has the fields that can be
ignored without an effect on RPCs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.lb.connection_limit import XDS_GUARD as SCALING_GUARD
from proxyless.observe.findings import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLUSTER: Final = "envoy.config.cluster.v3"
_CORE: Final = "envoy.config.core.v3"
_ENDPOINT: Final = "envoy.config.endpoint.v3"
_LISTENER: Final = "envoy.config.listener.v3"
_ROUTE: Final = "envoy.config.route.v3"
_MATCHER: Final = "envoy.type.matcher.v3"
_HCM: Final = "envoy.extensions.filters.network.http_connection_manager.v3"
_TLS: Final = "envoy.extensions.transport_sockets.tls.v3"
_HTTP_11_PROXY: Final = "envoy.extensions.transport_sockets.http_11_proxy.v3"
_LB: Final = "envoy.extensions.load_balancing_policies"
_HTTP_FILTERS: Final = "envoy.extensions.filters.http"

# Messages that other modules use.
CLUSTER: Final = f"{_CLUSTER}.Cluster"
LISTENER: Final = f"{_LISTENER}.Listener"
ROUTE_CONFIG: Final = f"{_ROUTE}.RouteConfiguration"
VIRTUAL_HOST: Final = f"{_ROUTE}.VirtualHost"
ROUTE: Final = f"{_ROUTE}.Route"
ROUTE_ACTION: Final = f"{_ROUTE}.RouteAction"
ROUTE_MATCH: Final = f"{_ROUTE}.RouteMatch"
CLUSTER_WEIGHT: Final = f"{_ROUTE}.WeightedCluster.ClusterWeight"
RETRY_POLICY: Final = f"{_ROUTE}.RetryPolicy"
HASH_POLICY: Final = f"{ROUTE_ACTION}.HashPolicy"
HTTP_FILTER: Final = f"{_HCM}.HttpFilter"
HEADER_MATCHER: Final = f"{_ROUTE}.HeaderMatcher"
MANAGER: Final = f"{_HCM}.HttpConnectionManager"
STATEFUL_SESSION: Final = f"{_HTTP_FILTERS}.stateful_session.v3.StatefulSession"
UPSTREAM_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
UPSTREAM_TLS: Final = f"{_TLS}.UpstreamTlsContext"
LB_POLICIES: Final = f"{_CLUSTER}.LoadBalancingPolicy"
CLUSTER_LOAD_ASSIGNMENT: Final = f"{_ENDPOINT}.ClusterLoadAssignment"
LOCALITY_LB_ENDPOINTS: Final = f"{_ENDPOINT}.LocalityLbEndpoints"
LB_ENDPOINT: Final = f"{_ENDPOINT}.LbEndpoint"


def _fields(text: str) -> frozenset[str]:
    return frozenset(text.split())


PARSED_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    # Listeners
    LISTENER: _fields("name address api_listener"),
    f"{_LISTENER}.ApiListener": _fields("api_listener"),
    MANAGER: _fields(
        "rds route_config http_filters common_http_protocol_options"
        " xff_num_trusted_hops original_ip_detection_extensions scoped_routes"
    ),
    f"{_HCM}.Rds": _fields("config_source route_config_name"),
    HTTP_FILTER: _fields("name typed_config config_discovery is_optional disabled"),
    f"{_CORE}.ConfigSource": _fields("ads self path path_config_source api_config_source"),
    f"{_CORE}.HttpProtocolOptions": _fields("idle_timeout max_stream_duration"),
    # Filters
    f"{_HTTP_FILTERS}.router.v3.Router": frozenset(),
    f"{_HTTP_FILTERS}.fault.v3.HTTPFault": _fields("delay abort max_active_faults"),
    f"{_HTTP_FILTERS}.fault.v3.FaultAbort": _fields(
        "http_status grpc_status header_abort percentage"
    ),
    "envoy.extensions.filters.common.fault.v3.FaultDelay": _fields(
        "fixed_delay header_delay percentage"
    ),
    STATEFUL_SESSION: _fields("session_state"),
    f"{_HTTP_FILTERS}.stateful_session.v3.StatefulSessionPerRoute": _fields(
        "stateful_session disabled"
    ),
    "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState": _fields("cookie"),
    "envoy.type.http.v3.Cookie": _fields("name ttl path"),
    f"{_ROUTE}.FilterConfig": _fields("config is_optional disabled"),
    # Routes
    ROUTE_CONFIG: _fields("name virtual_hosts cluster_specifier_plugins"),
    f"{_ROUTE}.ClusterSpecifierPlugin": _fields("extension is_optional"),
    VIRTUAL_HOST: _fields("name domains routes retry_policy typed_per_filter_config"),
    ROUTE: _fields(
        "name match route typed_per_filter_config"
        " redirect direct_response filter_action non_forwarding_action"
    ),
    ROUTE_MATCH: _fields(
        "prefix path safe_regex case_sensitive headers runtime_fraction query_parameters"
        " connect_matcher path_separated_prefix path_match_policy"
    ),
    HEADER_MATCHER: _fields(
        "name exact_match safe_regex_match range_match present_match prefix_match suffix_match"
        " contains_match string_match invert_match"
    ),
    f"{_MATCHER}.StringMatcher": _fields(
        "exact prefix suffix safe_regex contains custom ignore_case"
    ),
    f"{_MATCHER}.RegexMatcher": _fields("regex google_re2"),
    f"{_CORE}.RuntimeFractionalPercent": _fields("default_value"),
    ROUTE_ACTION: _fields(
        "cluster weighted_clusters cluster_specifier_plugin timeout max_grpc_timeout"
        " max_stream_duration retry_policy hash_policy auto_host_rewrite"
        " cluster_header inline_cluster_specifier_plugin request_mirror_policies"
    ),
    f"{ROUTE_ACTION}.RequestMirrorPolicy": _fields(
        "cluster runtime_fraction disable_shadow_host_suffix_append"
    ),
    f"{ROUTE_ACTION}.MaxStreamDuration": _fields("max_stream_duration grpc_timeout_header_max"),
    HASH_POLICY: _fields(
        "header filter_state terminal cookie connection_properties query_parameter"
    ),
    f"{HASH_POLICY}.Header": _fields("header_name regex_rewrite"),
    f"{HASH_POLICY}.FilterState": _fields("key"),
    f"{_MATCHER}.RegexMatchAndSubstitute": _fields("pattern substitution"),
    RETRY_POLICY: _fields("retry_on num_retries retry_back_off"),
    f"{RETRY_POLICY}.RetryBackOff": _fields("base_interval max_interval"),
    f"{_ROUTE}.WeightedCluster": _fields("clusters"),
    CLUSTER_WEIGHT: _fields("name weight typed_per_filter_config"),
    # Clusters
    CLUSTER: _fields(
        "name type cluster_type eds_cluster_config load_assignment lb_policy load_balancing_policy"
        " ring_hash_lb_config least_request_lb_config outlier_detection circuit_breakers"
        " transport_socket transport_socket_matches lrs_server lrs_report_endpoint_metrics"
        " upstream_config common_lb_config metadata"
    ),
    f"{CLUSTER}.CustomClusterType": _fields("name typed_config"),
    f"{CLUSTER}.EdsClusterConfig": _fields("eds_config service_name"),
    f"{CLUSTER}.RingHashLbConfig": _fields("minimum_ring_size maximum_ring_size hash_function"),
    f"{CLUSTER}.LeastRequestLbConfig": _fields("choice_count"),
    f"{CLUSTER}.CommonLbConfig": _fields("override_host_status"),
    f"{_CLUSTER}.CircuitBreakers": _fields("thresholds"),
    f"{_CLUSTER}.CircuitBreakers.Thresholds": _fields("priority max_requests"),
    f"{_CLUSTER}.OutlierDetection": _fields(
        "interval base_ejection_time max_ejection_time max_ejection_percent"
        " enforcing_success_rate success_rate_minimum_hosts success_rate_request_volume"
        " success_rate_stdev_factor failure_percentage_threshold enforcing_failure_percentage"
        " failure_percentage_minimum_hosts failure_percentage_request_volume"
    ),
    f"{_CORE}.TypedExtensionConfig": _fields("name typed_config"),
    f"{_CORE}.TransportSocket": _fields("name typed_config"),
    UPSTREAM_OPTIONS: _fields("common_http_protocol_options"),
    # LB policies
    LB_POLICIES: _fields("policies"),
    f"{LB_POLICIES}.Policy": _fields("typed_extension_config"),
    f"{_LB}.round_robin.v3.RoundRobin": frozenset(),
    f"{_LB}.random.v3.Random": frozenset(),
    f"{_LB}.pick_first.v3.PickFirst": _fields("shuffle_address_list"),
    f"{_LB}.wrr_locality.v3.WrrLocality": _fields("endpoint_picking_policy"),
    f"{_LB}.least_request.v3.LeastRequest": _fields("choice_count"),
    f"{_LB}.ring_hash.v3.RingHash": _fields("hash_function minimum_ring_size maximum_ring_size"),
    f"{_LB}.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin": _fields(
        "enable_oob_load_report oob_reporting_period blackout_period weight_expiration_period"
        " weight_update_period error_utilization_penalty metric_names_for_computing_utilization"
        " slow_start_config"
    ),
    f"{_LB}.common.v3.SlowStartConfig": _fields("slow_start_window aggression min_weight_percent"),
    # Proxies and TLS
    f"{_HTTP_11_PROXY}.Http11ProxyUpstreamTransport": _fields("transport_socket"),
    UPSTREAM_TLS: _fields("common_tls_context sni auto_host_sni auto_sni_san_validation"),
    f"{_TLS}.CommonTlsContext": _fields(
        "tls_params custom_handshaker tls_certificates tls_certificate_sds_secret_configs"
        " tls_certificate_provider_instance tls_certificate_certificate_provider_instance"
        " validation_context combined_validation_context validation_context_sds_secret_config"
    ),
    f"{_TLS}.CommonTlsContext.CombinedCertificateValidationContext": _fields(
        "default_validation_context validation_context_certificate_provider_instance"
    ),
    f"{_TLS}.CertificateValidationContext": _fields(
        "ca_certificate_provider_instance system_root_certs match_subject_alt_names"
        " match_typed_subject_alt_names verify_certificate_spki verify_certificate_hash"
        " require_signed_certificate_timestamp crl custom_validator_config"
    ),
    f"{_TLS}.SubjectAltNameMatcher": _fields("san_type matcher"),
    # Endpoints
    CLUSTER_LOAD_ASSIGNMENT: _fields("cluster_name endpoints policy"),
    f"{CLUSTER_LOAD_ASSIGNMENT}.Policy": _fields("drop_overloads"),
    f"{CLUSTER_LOAD_ASSIGNMENT}.Policy.DropOverload": _fields("category drop_percentage"),
    LOCALITY_LB_ENDPOINTS: _fields(
        "locality lb_endpoints leds_cluster_locality_config load_balancing_weight priority metadata"
    ),
    f"{_ENDPOINT}.LedsClusterLocalityConfig": _fields("leds_config leds_collection_name"),
    LB_ENDPOINT: _fields("endpoint health_status load_balancing_weight metadata"),
    f"{_ENDPOINT}.Endpoint": _fields("address additional_addresses hostname"),
    f"{_ENDPOINT}.Endpoint.AdditionalAddress": _fields("address"),
    f"{_CORE}.Address": _fields("socket_address pipe envoy_internal_address"),
    f"{_CORE}.SocketAddress": _fields("address port_value resolver_name"),
}

# Messages in these fields are not checked: of a LOGICAL_DNS endpoint only the name counts.
OPAQUE_FIELDS: Final = frozenset({(CLUSTER, "load_assignment")})

IGNORED_FIELD_NOTES: Final[Mapping[tuple[str, str], str]] = {
    (CLUSTER, "health_checks"): "endpoints are not probed: health comes from EDS and connections",
    (CLUSTER, "lb_subset_config"): "subsets are not made: RPCs go to all endpoints",
    (CLUSTER, "connect_timeout"): "an attempt to connect has 20 s, or the time until the next one",
    (CLUSTER, "dns_lookup_family"): "addresses of both families are used",
    (f"{_CLUSTER}.CircuitBreakers", "per_host_thresholds"): (
        f"an endpoint has one connection, unless {SCALING_GUARD}=true"
    ),
    (f"{CLUSTER}.CommonLbConfig", "healthy_panic_threshold"): (
        "there is no panic mode: unhealthy endpoints get nothing"
    ),
    (f"{CLUSTER}.CommonLbConfig", "zone_aware_lb_config"): "RPCs go to zones by their weights",
    (f"{CLUSTER_LOAD_ASSIGNMENT}.Policy", "overprovisioning_factor"): (
        "a priority is left only when nothing in it can be reached"
    ),
    (f"{ROUTE_ACTION}.RequestMirrorPolicy", "cluster_header"): (
        "nothing is mirrored: wanted cluster"
    ),
    (f"{ROUTE_ACTION}.RequestMirrorPolicy", "request_headers_mutations"): (
        "nothing is mirrored: copies have the metadata of the RPC"
    ),
    (f"{ROUTE_ACTION}.RequestMirrorPolicy", "trace_sampled"): "copies have no spans",
    (ROUTE_ACTION, "prefix_rewrite"): "the path is sent as it is",
    (ROUTE_ACTION, "regex_rewrite"): "the path is sent as it is",
    (ROUTE_ACTION, "host_rewrite_literal"): "only auto_host_rewrite changes the authority",
    (ROUTE_ACTION, "metadata_match"): "subsets are not made: RPCs go to all endpoints",
    (ROUTE_ACTION, "hedge_policy"): "nothing is hedged",
    (ROUTE_MATCH, "grpc"): "every request is gRPC",
    (ROUTE_MATCH, "tls_context"): "the route takes RPCs that it is not meant for",
    (ROUTE_MATCH, "dynamic_metadata"): "the route takes RPCs that it is not meant for",
    (ROUTE_MATCH, "filter_state"): "the route takes RPCs that it is not meant for",
    (RETRY_POLICY, "per_try_timeout"): "only the RPC as a whole has a deadline",
    (RETRY_POLICY, "retriable_status_codes"): "codes that are retried are those of retry_on",
    (RETRY_POLICY, "retry_host_predicate"): "a retry may go to the same endpoint",
    (RETRY_POLICY, "host_selection_retry_max_attempts"): "an attempt has one pick",
    (RETRY_POLICY, "retry_priority"): "an attempt uses the priority of all RPCs",
    (ROUTE, "request_headers_to_add"): "RPCs have the application's metadata",
    (ROUTE, "request_headers_to_remove"): "RPCs have the application's metadata",
    (ROUTE, "response_headers_to_add"): "the application gets the server's metadata",
    (ROUTE, "response_headers_to_remove"): "the application gets the server's metadata",
    (VIRTUAL_HOST, "require_tls"): "nothing is redirected",
    (HEADER_MATCHER, "treat_missing_header_as_empty"): (
        "a header that is absent matches nothing but present_match"
    ),
    (VIRTUAL_HOST, "matcher"): "only routes are looked at",
    (LOCALITY_LB_ENDPOINTS, "load_balancer_endpoints"): "only lb_endpoints are used",
    (STATEFUL_SESSION, "strict"): "an RPC whose host is gone goes to another",
    (f"{_ROUTE}.WeightedCluster", "total_weight"): "weights are parts of their sum",
    (f"{_ROUTE}.WeightedCluster", "use_hash_policy"): "each RPC draws its cluster",
}

# Names, statistics and logs, and fields that only matter to a proxy.
HARMLESS: Final = _fields(
    "access_log alpn_protocols alt_stat_name cleanup_interval codec_type connect_timeout decorator"
    " dns_refresh_rate generate_request_id grpc http2_protocol_options"
    " http_protocol_options initial_fetch_timeout locality_weighted_lb_config"
    " max_request_headers_kb metadata normalize_path overprovisioning_factor"
    " per_connection_buffer_limit_bytes"
    " resource_api_version respect_dns_ttl runtime_key server_name stat_prefix total_weight"
    " trace_sampled tracing track_cluster_stats typed_extension_protocol_options upgrade_configs"
    " use_remote_address validate_clusters validation_context_sds_secret_config"
    " wait_for_warm_on_init protocol"
)


def describe_ignored(message: str, field: str) -> tuple[Severity, str]:
    note = IGNORED_FIELD_NOTES.get((message, field))
    severity = Severity.NOTE if field in HARMLESS else Severity.WARNING
    return severity, f"is ignored: {note}" if note else "is ignored"
