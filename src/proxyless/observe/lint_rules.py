"""Lint rules: fields whose effect depends on other fields, or on the client.

Specs: A27-20..23, A28, A31 with D20, A32, A42, A44, A48, A52, A55, A75, A81, A82, A86.

A rule checks one message: where this client drops or skips it, and where, by their sources and
documents, grpcio or Envoy interpret a field differently. Fields that are always ignored are in
`parsed_fields`, rules about lists of routes and about retries in `lint_routes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from proxyless.observe import parsed_fields
from proxyless.observe.findings import Audience, Finding, Severity
from proxyless.observe.lint_routes import (
    check_retry,
    check_retry_time,
    check_route_config,
    check_virtual_host,
)
from proxyless.xds.view import (
    HTTP_CONNECT_GUARD,
    LB_POLICY_TYPES,
    has_http_proxies,
    is_usable_health,
    unmatchable_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from proxyless.protos import Proto

# The paths of its findings are relative to the message.
Rule: TypeAlias = "Callable[[Proto], Iterator[Finding]]"

_WARNING, _NOTE, _ERROR = Severity.WARNING, Severity.NOTE, Severity.ERROR
_DEFAULT_PRIORITY: Final = 0
_DRAINING: Final = 3
_CHANNEL_ID: Final = "io.grpc.channel_id"


def _warning(path: str, text: str) -> Finding:
    return Finding(_WARNING, path, text)


def _note(path: str, text: str) -> Finding:
    return Finding(_NOTE, path, text)


def _grpcio(severity: Severity, path: str, text: str) -> Finding:
    return Finding(severity, path, text, Audience.GRPCIO)


def _envoy(severity: Severity, path: str, text: str) -> Finding:
    return Finding(severity, path, text, Audience.ENVOY)


def _check_listener(message: Proto) -> Iterator[Finding]:
    if not message.HasField("api_listener"):
        yield _warning("", "is a socket listener, which no gRPC client can use")
        return
    yield _envoy(
        _WARNING, "api_listener", "is taken from Envoy's own bootstrap only, wanted address"
    )


def _check_manager(message: Proto) -> Iterator[Finding]:
    if message.common_http_protocol_options.HasField("idle_timeout"):
        text = "is ignored: the idle timeout is an option of the channel"
        yield _note("common_http_protocol_options.idle_timeout", text)


def _check_http_filter(message: Proto) -> Iterator[Finding]:
    if message.is_optional:
        yield _note("is_optional", "a client that does not support the filter leaves it out")


def _check_route(message: Proto) -> Iterator[Finding]:
    action = message.WhichOneof("action")
    if action != "route":
        what = action or "action"
        yield _warning(what, "RPCs that match fail with UNAVAILABLE: a client only forwards")


def _check_match(message: Proto) -> Iterator[Finding]:
    if message.query_parameters:
        yield _warning("query_parameters", "gRPC has none: the route is dropped")
    path = unmatchable_path(message)
    if path is not None:
        text = f"is {path!r}, and no /service/method is like that: the route is dropped"
        yield _warning(str(message.WhichOneof("path_specifier")), text)


def _check_header(message: Proto) -> Iterator[Finding]:
    if message.name.endswith("-bin"):
        yield _warning("name", f"is {message.name!r}: a binary header counts as absent")


def _check_action(message: Proto) -> Iterator[Finding]:
    kind = message.WhichOneof("cluster_specifier")
    if kind not in ("cluster", "weighted_clusters", "cluster_specifier_plugin"):
        yield _warning(kind or "cluster_specifier", "is not supported: the route is dropped")
    if message.auto_host_rewrite.value:
        text = "counts for endpoints that have a hostname, and only if the bootstrap gives the"
        yield _note("auto_host_rewrite", f"{text} server the feature trusted_xds_server")
    if message.request_mirror_policies:
        yield _note("request_mirror_policies", "RPCs with a stream of requests are not mirrored")
        yield _grpcio(_WARNING, "request_mirror_policies", "is ignored: nothing is mirrored")
    yield from _check_timeouts(message)
    yield from check_retry_time(message)


def _check_timeouts(message: Proto) -> Iterator[Finding]:
    for field in ("timeout", "max_grpc_timeout"):
        if not message.HasField(field):
            continue
        if message.HasField("max_stream_duration"):
            yield _warning(field, "is ignored, because max_stream_duration is set")
        elif field == "timeout" and message.HasField("max_grpc_timeout"):
            yield _warning(field, "is ignored, because max_grpc_timeout is set")
        yield _grpcio(_WARNING, field, "is ignored, wanted max_stream_duration")
    if not any(map(message.HasField, ("timeout", "max_grpc_timeout", "max_stream_duration"))):
        text = "is unset, as are timeout and max_grpc_timeout: RPCs end after"
        yield _note("max_stream_duration", f"{text} 15 s unless the listener has a timeout")
        yield _grpcio(_NOTE, "max_stream_duration", "is unset: RPCs have no time limit")


def _check_weight(message: Proto) -> Iterator[Finding]:
    if message.HasField("weight") and not message.weight.value:
        yield _note("weight", "is 0: the cluster is neither chosen nor requested")


def _check_hash(message: Proto) -> Iterator[Finding]:
    kind = message.WhichOneof("policy_specifier")
    if kind == "header" or (kind == "filter_state" and message.filter_state.key == _CHANNEL_ID):
        return
    yield _warning(kind or "policy_specifier", "never has a result, wanted header or channel id")


def _check_cluster(message: Proto) -> Iterator[Finding]:
    kind = type(message)
    is_aggregate = message.HasField("cluster_type")
    if message.HasField("load_assignment") and (is_aggregate or message.type != kind.LOGICAL_DNS):
        yield _warning(
            "load_assignment", "is ignored: endpoints of this cluster come from elsewhere"
        )
    if message.HasField("eds_cluster_config") and (is_aggregate or message.type != kind.EDS):
        yield _warning("eds_cluster_config", "is ignored: the cluster is not of type EDS")
    yield from _check_policy(message, is_aggregate)
    for index, threshold in enumerate(message.circuit_breakers.thresholds):
        if threshold.priority != _DEFAULT_PRIORITY:
            text = "is ignored: RPCs have the priority DEFAULT"
            yield _note(f"circuit_breakers.thresholds[{index}]", text)
    if has_http_proxies(message.transport_socket, {}):
        text = f"has proxies, for which the cluster is refused unless {HTTP_CONNECT_GUARD}=true"
        yield _grpcio(_WARNING, "transport_socket", text)
    yield from _check_cluster_for_envoy(message)


def _check_policy(message: Proto, is_aggregate: bool) -> Iterator[Finding]:
    kind = type(message)
    has_list = message.HasField("load_balancing_policy")
    if is_aggregate:
        if has_list:
            yield _note("load_balancing_policy", "is ignored: the leaves' own policies count")
        else:
            yield from _check_aggregate_for_others(message)
        return
    if has_list and message.lb_policy != kind.ROUND_ROBIN:
        yield _note("lb_policy", "is ignored, because load_balancing_policy is set")
    for field, wanted in (
        ("ring_hash_lb_config", kind.RING_HASH),
        ("least_request_lb_config", kind.LEAST_REQUEST),
    ):
        if message.HasField(field) and (has_list or message.lb_policy != wanted):
            yield _warning(field, "is ignored: it is not the policy of this cluster")
    if not has_list and message.lb_policy == kind.LEAST_REQUEST:
        yield _grpcio(_ERROR, "lb_policy", "is LEAST_REQUEST, for which the cluster is refused")


def _check_aggregate_for_others(message: Proto) -> Iterator[Finding]:
    """Envoy requires CLUSTER_PROVIDED, which grpcio rejects."""
    kind = type(message)
    name = kind.LbPolicy.Name(message.lb_policy)
    if message.lb_policy != kind.CLUSTER_PROVIDED:
        text = f"is {name}, wanted CLUSTER_PROVIDED: the cluster is refused"
        yield _envoy(_ERROR, "lb_policy", text)
    if message.lb_policy not in (kind.ROUND_ROBIN, kind.RING_HASH):
        yield _grpcio(_ERROR, "lb_policy", f"is {name}, for which the cluster is refused")


def _check_upstream_options(message: Proto) -> Iterator[Finding]:
    if message.common_http_protocol_options.HasField("max_stream_duration"):
        text = "is ignored: that of the listener and of the route counts"
        yield _warning("common_http_protocol_options.max_stream_duration", text)


def _check_cluster_for_envoy(message: Proto) -> Iterator[Finding]:
    options = message.typed_extension_protocol_options
    uses_http2 = bool(options) or message.HasField("http2_protocol_options")
    if not message.HasField("cluster_type") and not uses_http2:
        text = "is unset, so Envoy uses HTTP/1.1 to the endpoints, and gRPC fails"
        yield _envoy(_WARNING, "typed_extension_protocol_options", text)
    if message.HasField("upstream_config"):
        text = "names a connection factory in Envoy: options in it only cause errors in the log"
        yield _envoy(_WARNING, "upstream_config", text)


def _check_upstream_tls(message: Proto) -> Iterator[Finding]:
    """System roots trust every public authority, so a server needs a check of its name (A82)."""
    context = message.common_tls_context
    path = str(context.WhichOneof("validation_context_type"))
    validation = context.validation_context
    has_provider = validation.HasField("ca_certificate_provider_instance")
    if path == "combined_validation_context":
        combined = context.combined_validation_context
        validation = combined.default_validation_context
        path += ".default_validation_context"
        has_provider = combined.HasField("validation_context_certificate_provider_instance")
        has_provider |= validation.HasField("ca_certificate_provider_instance")
    has_matchers = validation.match_subject_alt_names or validation.match_typed_subject_alt_names
    if has_provider or has_matchers or not validation.HasField("system_root_certs"):
        return
    field = f"common_tls_context.{path}.system_root_certs"
    text = "accepts every server with a certificate of a public authority"
    if not message.auto_sni_san_validation or not (message.sni or message.auto_host_sni):
        wanted = "match_subject_alt_names, or auto_sni_san_validation with sni"
        yield _warning(field, f"{text}, wanted {wanted}")
    elif not message.sni:
        yield _warning(field, f"{text} if the endpoint has no hostname, wanted sni")


def _check_policies(message: Proto) -> Iterator[Finding]:
    for index, entry in enumerate(message.policies):
        url = entry.typed_extension_config.typed_config.type_url
        name = url.rpartition("/")[2]
        path = f"policies[{index}]"
        if name.endswith((".LeastRequest", ".Random")):
            yield _grpcio(_WARNING, path, "is skipped, and if nothing follows, the cluster refused")
        if name in LB_POLICY_TYPES:
            for later in range(index + 1, len(message.policies)):
                yield _note(f"policies[{later}]", f"is ignored: {path} is used")
            return
        if not name.endswith(".TypedStruct"):  # It may name a policy of the application.
            yield _note(path, f"is skipped: {name} is not known")


def _check_locality(message: Proto) -> Iterator[Finding]:
    if not message.load_balancing_weight.value:
        yield _warning("load_balancing_weight", "is unset or 0: the locality is left out")
        return
    text = "counts only if the cluster has common_lb_config.locality_weighted_lb_config"
    yield _envoy(_NOTE, "load_balancing_weight", text)
    if message.HasField("leds_cluster_locality_config"):
        text = "needs the server feature delta in the bootstrap of clients"
        yield _note("leds_cluster_locality_config", text)
        text = "is ignored: the locality has no endpoints"
        yield _grpcio(_WARNING, "leds_cluster_locality_config", text)


def _check_endpoint(message: Proto) -> Iterator[Finding]:
    if not is_usable_health(message.health_status):
        yield _note("health_status", "is not healthy: the endpoint is left out")
    elif message.health_status == _DRAINING:
        yield _note("health_status", "is DRAINING: the endpoint only keeps sessions that it has")


def _check_endpoints(message: Proto) -> Iterator[Finding]:
    usable = (
        endpoint
        for locality in message.endpoints
        if locality.load_balancing_weight.value
        for endpoint in locality.lb_endpoints
        if is_usable_health(endpoint.health_status) and endpoint.health_status != _DRAINING
    )
    has_collections = any(
        locality.HasField("leds_cluster_locality_config") for locality in message.endpoints
    )
    if not has_collections and not any(True for _ in usable):
        text = "has no endpoint that can be used: RPCs to it fail"
        yield Finding(_WARNING, "endpoints", text, rule="no-endpoints")
    if len(message.policy.drop_overloads) > 1:
        text = f"has {len(message.policy.drop_overloads)} categories, wanted one: it is refused"
        yield _envoy(_ERROR, "policy.drop_overloads", text)


RULES: Final[Mapping[str, Rule]] = {
    parsed_fields.LISTENER: _check_listener,
    parsed_fields.MANAGER: _check_manager,
    parsed_fields.HTTP_FILTER: _check_http_filter,
    parsed_fields.ROUTE: _check_route,
    parsed_fields.ROUTE_MATCH: _check_match,
    parsed_fields.HEADER_MATCHER: _check_header,
    parsed_fields.ROUTE_ACTION: _check_action,
    parsed_fields.CLUSTER_WEIGHT: _check_weight,
    parsed_fields.RETRY_POLICY: check_retry,
    parsed_fields.VIRTUAL_HOST: check_virtual_host,
    parsed_fields.ROUTE_CONFIG: check_route_config,
    parsed_fields.HASH_POLICY: _check_hash,
    parsed_fields.CLUSTER: _check_cluster,
    parsed_fields.UPSTREAM_OPTIONS: _check_upstream_options,
    parsed_fields.UPSTREAM_TLS: _check_upstream_tls,
    parsed_fields.LB_POLICIES: _check_policies,
    parsed_fields.LOCALITY_LB_ENDPOINTS: _check_locality,
    parsed_fields.LB_ENDPOINT: _check_endpoint,
    parsed_fields.CLUSTER_LOAD_ASSIGNMENT: _check_endpoints,
}
