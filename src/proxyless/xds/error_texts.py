"""How does a text about xDS name what it is about, and who we are?

Every text is built once, where the trouble is found, and goes from there to the NACK, to the log
and to `details()` of the RPCs that fail because of it. It begins with the thing, as `listener "a"`
or `xds server "b:443"`, and ends with our node id, by which operators find this process at their
control plane. Texts are put into other texts on the way; the node id stays once, and last.
"""

from __future__ import annotations

from typing import Final

from proxyless.base import quote

# Said of endpoints, if there are none but such as are not healthy, or none at all.
NO_ENDPOINT: Final = "has no endpoint that may be used"

# What people call the types of resource; the last part of the message's full name.
_WORDS: Final = {
    "Listener": "listener",
    "RouteConfiguration": "route configuration",
    "Cluster": "cluster",
    "ClusterLoadAssignment": "endpoints",
}


def name_type(type_url: str) -> str:
    """What people call a type, given its URL or its full name: `route configuration`."""
    message = type_url.rpartition("/")[2].rpartition(".")[2]
    return _WORDS.get(message, message or type_url)


def name_resource(type_url: str, name: str) -> str:
    """A resource, as every text about it begins: `listener "orders"`."""
    return f"{name_type(type_url)} {quote(name)}"


def name_listener(name: str) -> str:
    return f"listener {quote(name)}"


def name_route_config(name: str) -> str:
    return f"route configuration {quote(name)}"


def name_cluster(name: str) -> str:
    return f"cluster {quote(name)}"


def name_endpoints(name: str) -> str:
    return f"endpoints {quote(name)}"


def name_dns(host: str, port: int) -> str:
    """A name of a LOGICAL_DNS cluster, as the DNS resolver calls it, too."""
    return f"dns name {quote(f'[{host}]:{port}' if ':' in host else f'{host}:{port}')}"


def name_server(uri: str) -> str:
    return f"xds server {quote(uri)}"


def about(subject: str, text: str) -> str:
    """The text with its subject in front; one that begins with it says it already."""
    return text if text.startswith(subject) else f"{subject}: {text}"


def node_note(node_id: str) -> str:
    """How every text ends; nothing if the bootstrap gives us no id."""
    return f" ({node_phrase(node_id)})" if node_id else ""


def node_phrase(node_id: str) -> str:
    """What is said about an update of which there is nothing else to say (A88-04)."""
    return f"node id {quote(node_id)}" if node_id else ""


def with_node(text: str, node_id: str) -> str:
    """The text with the node id at its end, and nowhere else."""
    note = node_note(node_id)
    return f"{text.replace(note, '')}{note}" if note else text
