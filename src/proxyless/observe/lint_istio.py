"""Istio's settings behind fields of which gRPC clients use nothing, or not all.

Istio 1.31 makes the routes of gRPC clients with its generator for sidecars, so a VirtualService may
have settings that only a proxy has. Its clusters for gRPC clients have what gRPC reads: other
settings of a DestinationRule are not sent at all, and no resource shows them.

`ISTIO_SETTINGS` has the setting of a field that is always ignored. A rule of `ISTIO_RULES` checks a
message of which some values count and others do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.observe import parsed_fields
from proxyless.observe.findings import Audience, Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from proxyless.protos import Proto

_HEADERS: Final = "VirtualService http.headers"
_REWRITE: Final = "VirtualService http.rewrite"
_RETRIES: Final = "VirtualService http.retries"
_HASH: Final = "DestinationRule loadBalancer.consistentHash"
_CHANGES_HEADERS: Final = (
    parsed_fields.ROUTE,
    parsed_fields.CLUSTER_WEIGHT,
    parsed_fields.VIRTUAL_HOST,
)
_DEFAULT_RETRY_ON: Final = (
    "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes"
)
_MAGLEV: Final = 5

ISTIO_SETTINGS: Final[Mapping[tuple[str, str], str]] = {
    **{
        (message, f"{kind}_headers_to_{change}"): f"{_HEADERS}.{kind}: the application does it"
        for message in _CHANGES_HEADERS
        for kind in ("request", "response")
        for change in ("add", "remove")
    },
    (parsed_fields.ROUTE_ACTION, "prefix_rewrite"): f"{_REWRITE}.uri",
    (parsed_fields.ROUTE_ACTION, "regex_rewrite"): f"{_REWRITE}.uriRegexRewrite",
    (parsed_fields.ROUTE_ACTION, "host_rewrite_literal"): (
        f"{_REWRITE}.authority: set grpc.default_authority in the application"
    ),
    (parsed_fields.ROUTE_ACTION, "append_x_forwarded_host"): (
        "Istio's defaults: there is no proxy to add the header"
    ),
    (parsed_fields.ROUTE_ACTION, "cluster_not_found_response_code"): (
        "Istio's defaults: an RPC to a cluster that does not exist ends with UNAVAILABLE"
    ),
    (f"{parsed_fields.ROUTE_ACTION}.RequestMirrorPolicy", "trace_sampled"): (
        "Istio's defaults: copies have no spans"
    ),
    (parsed_fields.ROUTE, "decorator"): "Istio's defaults: it names the spans of a proxy",
    (parsed_fields.ROUTE, "stat_prefix"): "VirtualService http.match.statPrefix",
    (parsed_fields.RETRY_POLICY, "per_try_timeout"): f"{_RETRIES}.perTryTimeout",
    (parsed_fields.RETRY_POLICY, "retriable_status_codes"): (
        f"{_RETRIES}.retryOn with numbers: a gRPC client sees no HTTP status, wanted names of codes"
    ),
    (parsed_fields.RETRY_POLICY, "retry_host_predicate"): (
        "Istio's defaults: a retry may go to the backend of the first attempt"
    ),
    (parsed_fields.RETRY_POLICY, "host_selection_retry_max_attempts"): (
        "Istio's defaults: it counts only with retry_host_predicate"
    ),
    (parsed_fields.RETRY_POLICY, "retry_priority"): (
        f"{_RETRIES}.retryRemoteLocalities: priorities change when connections fail"
    ),
    (parsed_fields.VIRTUAL_HOST, "include_request_attempt_count"): (
        "Istio's defaults: gRPC sends grpc-previous-rpc-attempts"
    ),
    (parsed_fields.CLUSTER, "connect_timeout"): "DestinationRule connectionPool.tcp.connectTimeout",
    (parsed_fields.CLUSTER, "health_checks"): "an EnvoyFilter",
}


def _check_route(message: Proto) -> Iterator[Finding]:
    settings = {"redirect": "http.redirect", "direct_response": "http.directResponse"}
    action = str(message.WhichOneof("action"))
    if action in settings:
        yield _note(action, f"VirtualService {settings[action]}: RPCs that match fail")
    for name in message.typed_per_filter_config:
        if name.endswith(".cors"):
            path = f'typed_per_filter_config["{name}"]'
            yield _note(path, "VirtualService http.corsPolicy, which is for browsers")


def _check_retry(message: Proto) -> Iterator[Finding]:
    if message.retry_on == _DEFAULT_RETRY_ON:
        text = f"Istio's defaults, without {_RETRIES}: UNAVAILABLE and CANCELLED are retried"
        yield _note("retry_on", f"{text} {message.num_retries.value} times")


def _check_hash(message: Proto) -> Iterator[Finding]:
    settings = {
        "cookie": "httpCookie",
        "connection_properties": "useSourceIp",
        "query_parameter": "httpQueryParameterName",
    }
    kind = str(message.WhichOneof("policy_specifier"))
    if kind in settings:
        text = "each RPC has a random hash, wanted httpHeaderName"
        yield _note(kind, f"{_HASH}.{settings[kind]}: {text}")


def _check_cluster(message: Proto) -> Iterator[Finding]:
    if message.lb_policy == _MAGLEV:
        yield _note("lb_policy", f"{_HASH}.maglev: the cluster is refused, wanted ringHash")


ISTIO_RULES: Final[Mapping[str, Callable[[Proto], Iterator[Finding]]]] = {
    parsed_fields.ROUTE: _check_route,
    parsed_fields.RETRY_POLICY: _check_retry,
    parsed_fields.HASH_POLICY: _check_hash,
    parsed_fields.CLUSTER: _check_cluster,
}


def describe_setting(message: str, field: str) -> str | None:
    """The origin of an ignored field, or None if Istio does not send it."""
    setting = ISTIO_SETTINGS.get((message, field))
    return None if setting is None else f"comes from {setting}"


def _note(path: str, text: str) -> Finding:
    return Finding(Severity.NOTE, path, f"comes from {text}", Audience.ISTIO)
