"""Subjects and node ids of error texts.

The same text goes to the NACK, to the log and to `details()` of failed RPCs. It begins with its
subject, such as `listener "a"` or `xds server "b:443"`, and ends with the node id, by which
operators find this process at their control plane.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from proxyless.base import quote
from proxyless.base.endpoint import join_host_port

# Error of a ClusterLoadAssignment without healthy endpoints.
NO_ENDPOINT: Final = "has no endpoint that may be used"

# Names of resource types in texts, by the last part of the message's full name.
_WORDS: Final = {
    "Listener": "listener",
    "RouteConfiguration": "route configuration",
    "Cluster": "cluster",
    "ClusterLoadAssignment": "endpoints",
    "LbEndpoint": "endpoint",
}


def name_type(type_url: str) -> str:
    """Name of a resource type, given its URL or full name: `route configuration`."""
    message = type_url.rpartition("/")[2].rpartition(".")[2]
    return _WORDS.get(message, message or type_url)


def name_resource(type_url: str, name: str) -> str:
    """Subject of texts about a resource: `listener "orders"`."""
    return f"{name_type(type_url)} {quote(name)}"


def name_listener(name: str) -> str:
    return f"listener {quote(name)}"


def name_route_config(name: str) -> str:
    return f"route configuration {quote(name)}"


def name_cluster(name: str) -> str:
    return f"cluster {quote(name)}"


def name_endpoints(name: str) -> str:
    return f"endpoints {quote(name)}"


def name_collection(name: str) -> str:
    """Name of a collection of endpoints (LEDS), which is one of the type LbEndpoint."""
    return f"endpoint {quote(name)}"


def name_dns(host: str, port: int) -> str:
    """Name of a LOGICAL_DNS cluster, as in texts of the DNS resolver."""
    return f"dns name {quote(join_host_port(host, port))}"


def name_server(uri: str) -> str:
    return f"xds server {quote(uri)}"


def format_time(unix_s: float) -> str:
    """Unix time: `2026-11-17 05:48:31 UTC`."""
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def about(subject: str, text: str) -> str:
    """Put the subject in front of the text, unless the text begins with it."""
    return text if text.startswith(subject) else f"{subject}: {text}"


# A process has one node id, and every cluster of every config has this text.
@lru_cache(maxsize=8)
def node_phrase(node_id: str) -> str:
    """Text with nothing but the node id, which may be empty (A88-04)."""
    return f"node id {quote(node_id)}" if node_id else ""


def with_node(text: str, node_id: str) -> str:
    """The text with the node id at its end, and nowhere else."""
    if not node_id:
        return text
    note = f" ({node_phrase(node_id)})"
    return f"{text.replace(note, '')}{note}"
