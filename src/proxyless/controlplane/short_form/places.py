"""Places of the short form: from a field of a resource to the key of the document it comes from."""

from __future__ import annotations

import json
import re
from typing import Final

_ROUTE: Final = r"virtual_hosts\[0\]\.routes\[(\d+)\]"
_RETRY: Final = rf"{_ROUTE}\.route\.retry_policy"

# By type: patterns of fields of a resource, and paths in the document. The first pattern that the
# beginning of a field matches counts.
_LISTENER_FIELDS: Final = ((r".*StatefulSession", ".session"),)
_ROUTE_FIELDS: Final = (
    (r"virtual_hosts\[0\]\.domains", ".domains"),
    (rf"{_ROUTE}\.match\.headers", r".routes[\1].match.headers"),
    (rf"{_ROUTE}\.match\.runtime_fraction", r".routes[\1].match.share"),
    (rf"{_ROUTE}\.match", r".routes[\1].match"),
    (rf"{_ROUTE}\.route\.(?:weighted_clusters|cluster)", r".routes[\1].to"),
    (rf"{_ROUTE}\.route\.max_stream_duration", r".routes[\1].timeout"),
    (rf"{_RETRY}\.retry_on", r".routes[\1].retry.codes"),
    (rf"{_RETRY}\.num_retries", r".routes[\1].retry.times"),
    (rf"{_RETRY}\.retry_back_off\.max_interval", r".routes[\1].retry.max_backoff"),
    (rf"{_RETRY}\.retry_back_off", r".routes[\1].retry.backoff"),
    (_RETRY, r".routes[\1].retry"),
    (rf"{_ROUTE}\.route\.hash_policy", r".routes[\1].hash_on"),
    (rf'{_ROUTE}\.typed_per_filter_config\["fault"\]', r".routes[\1].fault"),
    (rf'{_ROUTE}\.typed_per_filter_config\["session"\]', r".routes[\1].session"),
    (_ROUTE, r".routes[\1]"),
)
_CLUSTER_FIELDS: Final = (
    (r"cluster_type\.typed_config\.clusters\[(\d+)\]", r".aggregate[\1]"),
    (r"cluster_type", ".aggregate"),
    (r"eds_cluster_config", ".eds"),
    (r"load_assignment", ".dns"),
    (r"lb_policy|ring_hash_lb_config|least_request_lb_config|load_balancing_policy", ".policy"),
    (r"outlier_detection\.(failure_percentage|success_rate)", r".outlier_detection.\1"),
    (r"outlier_detection\.enforcing_(\w+)", r".outlier_detection.\1"),
    (r"outlier_detection", ".outlier_detection"),
    (r"circuit_breakers", ".circuit_breaker"),
    (r"common_lb_config|upstream_config", ".session"),
    (r"transport_socket", ".tls"),
)
_ENDPOINT_FIELDS: Final = (
    (r"policy\.drop_overloads", ".drops"),
    (r"endpoints\[(\d+)\]\.lb_endpoints\[(\d+)\]", r".endpoints[\1].addresses[\2]"),
    (r"endpoints\[(\d+)\]\.priority", r".endpoints[\1].priority"),
    (r"endpoints\[(\d+)\]\.load_balancing_weight", r".endpoints[\1].weight"),
    (r"endpoints\[(\d+)\]\.locality", r".endpoints[\1].zone"),
    (r"endpoints\[(\d+)\]", r".endpoints[\1]"),
)
_KEY: Final = r'\["(?:[^"\\]|\\.)*"\]'
# Patterns of places: what the paths of fields begin with, and the rest of the place.
_FIELDS: Final = (
    (re.compile(r"(\[\d+\])(\.service)"), _LISTENER_FIELDS),
    (re.compile(r"(\[\d+\])(\.routes)"), _ROUTE_FIELDS),
    (re.compile(rf"(\[\d+\]\.clusters{_KEY})()"), _CLUSTER_FIELDS),
    (re.compile(rf"(\[\d+\]\.clusters{_KEY})(\.endpoints)"), _ENDPOINT_FIELDS),
)


def cluster_place(name: str) -> str:
    """The path of a cluster in its document."""
    return f".clusters[{json.dumps(name)}]"


def is_short_place(place: str) -> bool:
    """Whether a path in a file is that of a resource in the short form."""
    return any(pattern.fullmatch(place) for pattern, _ in _FIELDS)


def place_of_field(place: str, field: str) -> str:
    """The path in a file of a field of the resource at `place`, in the short form or not.

    `place` is a path of `parse_documents`, with the number of its document.
    """
    for pattern, fields in _FIELDS:
        found = pattern.fullmatch(place)
        if found is not None:
            return found[1] + _translate(field, fields, default=found[2])
    return f"{place}.{field}" if field else place


def _translate(field: str, patterns: tuple[tuple[str, str], ...], default: str) -> str:
    for pattern, path in patterns:
        found = re.match(pattern, field)
        if found is not None:
            return found.expand(path)
    return default
