"""Explanations of outcomes that differ from ours: by case, then by outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_NODE_WAITS: Final = (
    "grpc-js: without a valid listener, routes or cluster, RPCs wait for one until their deadline."
)
_PROXY_CODES: Final = (
    "Envoy is a proxy: without a route it answers 404, which gRPC clients map to UNIMPLEMENTED; "
    "its timeouts, 504, are UNAVAILABLE."
)
_ENVOY_ACCEPTS: Final = "Envoy has no such rule; the resource is valid for it."
_ENVOY_HEADERS: Final = (
    "Envoy matches headers as they are on the wire: user-agent, pseudo-headers and binary headers "
    "as well. A31 excludes them for clients."
)
_WAITS: Final = (
    "D22: wait-for-ready RPCs stay queued on a cluster that does not exist; A31 and we drop them."
)
_NO_DEFAULT: Final = (
    "D20: today's gRPC has no default timeout and ignores `timeout`; the 15 s are A31's. An "
    "option, a variable or the bootstrap turns them off."
)
_NO_SESSIONS: Final = "This client has no session affinity (A55), so the filter is unknown to it."
_NO_WAITING: Final = "Envoy does not wait: wait-for-ready is of the client in front of it."
_ACTIONS: Final = (
    "grpc-java rejects routes without an action, or with one that it does not support."
)
_SAME_TURN: Final = (
    "grpc-js counts an RPC when its stream starts: RPCs that start in one turn are not limited."
)
_JAVA_RING: Final = (
    "grpc-java hashes `/10.0.0.1:80`, Java's text of an address, where all others hash "
    "`10.0.0.1:80`, so its clients have another ring in the same mesh."
)
_D27: Final = "D27: the policy of an aggregate is validated, though A75 ignores it."

NOTES: Final[Mapping[str, Mapping[str, str]]] = {
    "domain_case": {
        "UNAVAILABLE": "grpc-go compares the domains of the config with their case.",
        "DEADLINE_EXCEEDED": "grpc-js compares domains with their case as well; RPCs wait.",
    },
    "domain_twice": {"NACK, UNIMPLEMENTED": "Envoy rejects a domain in two virtual hosts."},
    "no_virtual_host": {"DEADLINE_EXCEEDED": _NODE_WAITS, "UNIMPLEMENTED": _PROXY_CODES},
    "no_route": {"UNIMPLEMENTED": _PROXY_CODES},
    "query_parameters": {
        "a": "grpc-js ignores the matcher instead of the route.",
    },
    "cluster_header": {"a": "Envoy supports it; gRPC ignores such routes."},
    "redirect": {
        "NACK, UNAVAILABLE": _ACTIONS,
        "NACK, DEADLINE_EXCEEDED": _NODE_WAITS,
        "UNKNOWN": "Envoy redirects: the answer is 301, which is no gRPC status.",
    },
    "header_absent": {"a, b": "grpc-js treats `present_match: false` as true."},
    "header_inverted": {
        "b, a": "grpc-js inverts the result for an absent header as well; Envoy, C-core and we do "
        "not match a header that is absent.",
    },
    "header_range": {"a, a, a, b": "grpc-java includes the end of the range."},
    "header_twice": {"b": "Envoy compares one value, not the joined ones."},
    "header_binary": {"a": _ENVOY_HEADERS},
    "header_content_type": {
        "b": "grpc-go adds the header after it has chosen the route.",
    },
    "header_user_agent": {"a": _ENVOY_HEADERS},
    "header_path": {
        "a": "C-core and Envoy match pseudo-headers as well; for A31 they are no metadata.",
    },
    "weights_zero": {
        "NACK, DEADLINE_EXCEEDED": _NODE_WAITS,
        "NACK, UNIMPLEMENTED": _PROXY_CODES,
    },
    "no_action": {
        "NACK, UNAVAILABLE": _ACTIONS,
        "NACK, DEADLINE_EXCEEDED": _NODE_WAITS,
        "NACK, UNIMPLEMENTED": _PROXY_CODES,
    },
    "default_timeout": {"a": _NO_DEFAULT, "UNAVAILABLE": _PROXY_CODES},
    "route_timeout": {"a": _NO_DEFAULT, "UNAVAILABLE": _PROXY_CODES},
    "listener_duration": {"a": "grpc-js ignores the listener's max_stream_duration."},
    "retry_many": {
        "a, 10 attempts": "grpc-go does not apply the limit of 5 attempts (A6) to xDS; Envoy has "
        "no such limit.",
    },
    "retry_zero": {
        "UNKNOWN": "grpc-java accepts the route, and then fails to make a service config of it.",
        "NACK, DEADLINE_EXCEEDED": _NODE_WAITS,
        "a": _ENVOY_ACCEPTS,
    },
    "fault_abort_ok": {
        "a": "D37: C-core does not abort with OK, so the backend answers.",
        "UNKNOWN": "The status OK without a response is an error of the client: UNKNOWN in "
        "grpc-go, UNIMPLEMENTED in ours.",
        "OK": "grpc-java and grpc-js end the call with OK and without a response.",
    },
    "session": {"NACK, UNAVAILABLE": _NO_SESSIONS, "NACK, DEADLINE_EXCEEDED": _NO_SESSIONS},
    "session_draining": {
        "NACK, UNAVAILABLE": _NO_SESSIONS,
        "NACK, DEADLINE_EXCEEDED": _NO_SESSIONS,
    },
    "no_cluster_wait": {"DEADLINE_EXCEEDED": _WAITS},
    "unreachable_wait": {"UNAVAILABLE": _NO_WAITING},
    "unreachable_priority": {
        "UNAVAILABLE": "Envoy changes the priority for health, not for failed connections: it "
        "needs health checks or outlier detection.",
    },
    "priority_gap": {"NACK, DEADLINE_EXCEEDED": _NODE_WAITS, "a": _ENVOY_ACCEPTS},
    "locality_twice": {"NACK, DEADLINE_EXCEEDED": _NODE_WAITS, "a": _ENVOY_ACCEPTS},
    "endpoint_twice": {
        "NACK, DEADLINE_EXCEEDED": _NODE_WAITS,
        "a": "Envoy and grpc-java accept it.",
    },
    "endpoint_weight_zero": {
        "a, b": "grpc-java and grpc-js do not validate the weights of endpoints.",
    },
    "logical_dns_missing": {"DEADLINE_EXCEEDED": _NODE_WAITS},
    "strict_dns": {"a": "Envoy supports it; gRPC does not."},
    "aggregate_missing": {
        "UNAVAILABLE": "D24: grpc-go fails the aggregate if one of its clusters does not exist.",
    },
    "aggregate_and_leaf": {
        "b, a": "A bug of grpcio 1.85: a cluster that a route names as well is left out of the "
        "aggregate.",
    },
    "aggregate_policy": {"NACK, UNAVAILABLE": _D27},
    "least_request_enum": {
        "NACK, UNAVAILABLE": "D33: C-core and grpc-js refuse the enum's LEAST_REQUEST.",
    },
    "maglev_enum": {"a": "Envoy supports it; gRPC does not."},
    "unknown_policy_first": {
        "NACK, UNAVAILABLE": "The known policy is round_robin inside wrr_locality; Envoy's "
        "wrr_locality takes only client_side_weighted_round_robin.",
    },
    "aggregate_loop": {"INTERNAL": "grpc-java ends the RPCs of a circular aggregate so."},
    "ring_keys": {"another ring": _JAVA_RING},
    "ring_small": {"another ring": _JAVA_RING},
    "ring_endpoint_keys": {
        "another ring": "D31: C-core uses it with "
        "GRPC_XDS_ENDPOINT_HASH_KEY_BACKWARD_COMPAT=false; grpc-java and grpc-js do not have it.",
    },
    "ring_too_large": {
        "1 backend": "grpc-java accepts the size.",
        "UNAVAILABLE": "grpc-go accepts the cluster, and then fails to configure ring_hash.",
    },
    "ring_channel": {
        "3 backends": "The channel's id is gRPC's; for Envoy the RPCs have no hash.",
    },
    "ring_min_over_max": {
        "1 backend": "grpc-js does not compare the sizes.",
        "UNAVAILABLE": "grpc-go accepts the cluster, and then fails to configure ring_hash.",
    },
    "breaker": {
        "5 a": "grpc-java counts RPCs in flight only in clusters with `lrs_server`; grpc-js when "
        "their streams start, so RPCs that start in one turn are not limited.",
    },
    "breaker_with_reports": {"5 a": _SAME_TURN},
    "no_listener": {"DEADLINE_EXCEEDED": _NODE_WAITS},
    "no_api_listener": {
        "NACK, DEADLINE_EXCEEDED": _NODE_WAITS,
        "UNAVAILABLE": "grpc-java accepts it as a listener of a server.",
    },
    "required_filter": {"NACK, DEADLINE_EXCEEDED": _NODE_WAITS},
    "no_router": {
        "a": "grpc-js does not require the router filter.",
        "DEADLINE_EXCEEDED": "Envoy accepts a listener without a router, which never answers.",
    },
    "trusted_hops": {"a": "A proxy's field: valid for Envoy, not validated by grpc-js."},
    "invalid_cluster": {"ACK, a": "MAGLEV is valid for Envoy."},
    "remove_endpoints": {
        "a": "grpc-java uses the old endpoints if a new list is empty, for 8 s at least.",
    },
    "delete_cluster_wait": {"DEADLINE_EXCEEDED": _WAITS},
    "change_to_aggregate": {
        "the process crashes": "A bug of grpcio 1.85: the process ends with SIGSEGV.",
    },
}
