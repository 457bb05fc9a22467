"""Facts of a mesh: its resources as short sentences, so that two meshes can be compared.

A fact has a subject (a listener, route, cluster, locality or endpoint), an aspect (its clusters,
its timeout) and a value. Fields that have no words here are facts with the field's path, so that no
change is left out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from google.protobuf import json_format

from proxyless.base.texts import count
from proxyless.observe import parsed_fields
from proxyless.protos import DECODE_ERRORS, Proto, descriptor_pool_of_envoy, message_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Aspects whose values are lists of fields: a change shows only those that differ.
FIELD_LISTS: Final = frozenset({"outlier detection", "circuit breaker", "TLS"})
SEPARATOR: Final = ", "

# By subject: values by aspect, in order. The aspect "" is what the subject is.
Facts: TypeAlias = dict[str, dict[str, str]]

_ALL: Final = ("", "/")
_PERCENT: Final = 100
_DENOMINATORS: Final = (100, 10_000, 1_000_000)


def collect_facts(messages: Iterable[Proto]) -> Facts:
    """The facts of all resources, in their order."""
    facts: Facts = {}
    for message in messages:
        name = message.DESCRIPTOR.full_name
        if name == parsed_fields.LISTENER:
            _add_listener(message, facts)
        elif name == parsed_fields.ROUTE_CONFIG:
            _add_routes(message, message.name, facts)
        elif name == parsed_fields.CLUSTER:
            _add_cluster(message, facts)
        elif name == parsed_fields.CLUSTER_LOAD_ASSIGNMENT:
            _add_endpoints(message, facts)
        else:
            subject = f"{message.DESCRIPTOR.name} {getattr(message, 'name', '')!r:.200}"
            facts[subject] = {"": "exists", **_flatten(_to_dict(message))}
    return facts


# Listeners and routes


def _add_listener(message: Proto, facts: Facts) -> None:
    subject = f"listener {message.name!r}"
    document = _to_dict(message)
    manager = document.get("api_listener", {}).get("api_listener", {})
    inline = manager.pop("route_config", None)
    document.pop("name", None)
    facts[subject] = {"": f"target xds:///{message.name}", **_flatten(document)}
    if inline is None:
        return
    packed = message.api_listener.api_listener
    try:
        found = message_class(parsed_fields.MANAGER).FromString(packed.value)
    except DECODE_ERRORS:
        return
    _add_routes(found.route_config, message.name, facts)


def _add_routes(message: Proto, owner: str, facts: Facts) -> None:
    order = []
    for host in message.virtual_hosts:
        domains = ", ".join(host.domains)
        of = f"{owner!r}" if domains == "*" else f"{owner!r}, domains {domains}"
        for route in host.routes:
            subject = _unused(f"route {_describe_match(route.match)} of {of}", facts)
            order.append(_describe_match(route.match))
            facts[subject] = _describe_route(route)
        rest = _to_dict(host)
        for field in ("name", "domains", "routes"):
            rest.pop(field, None)
        if rest:
            facts[_unused(f"virtual host of {of}", facts)] = {"": "exists", **_flatten(rest)}
    facts[f"routes of {owner!r}"] = {"": count(len(order), "route"), "order": "; ".join(order)}


def _unused(subject: str, facts: Facts) -> str:
    """The subject, with a number if it is there already."""
    number, unused = 1, subject
    while unused in facts:
        number += 1
        unused = f"{subject} ({number})"
    return unused


def _describe_match(match: Proto) -> str:
    kind = match.WhichOneof("path_specifier")
    if kind == "prefix":
        text = "of all RPCs" if match.prefix in _ALL else f"{match.prefix}*"
    elif kind == "path":
        text = match.path
    else:
        text = f"regex {match.safe_regex.regex}"
    conditions = [_describe_header(each) for each in match.headers]
    if match.HasField("runtime_fraction"):
        conditions.append(f"{_percent(match.runtime_fraction.default_value)} of them")
    return f"{text} with {' and '.join(conditions)}" if conditions else text


def _describe_header(header: Proto) -> str:
    if header.HasField("string_match") and header.string_match.HasField("exact"):
        sign = "!=" if header.invert_match else "="
        return f"{header.name}{sign}{header.string_match.exact}"
    document = _to_dict(header)
    document.pop("name", None)
    return f"{header.name} {json.dumps(document, sort_keys=True)}"


def _describe_route(route: Proto) -> dict[str, str]:
    """The aspects of a route, without its match and its name."""
    action = _to_dict(route).get("route", {})
    facts = {"": "exists", "clusters": _describe_clusters(route.route)}
    duration = action.pop("max_stream_duration", {})
    facts["timeout"] = duration.pop("max_stream_duration", None) or action.pop("timeout", "none")
    facts["retry"] = _describe_retry(action.pop("retry_policy", None))
    for field in ("cluster", "weighted_clusters"):
        action.pop(field, None)
    rest = _to_dict(route)
    for field in ("match", "route", "name"):
        rest.pop(field, None)
    return {**facts, **_flatten(duration), **_flatten(action), **_flatten(rest)}


def _describe_clusters(action: Proto) -> str:
    if action.HasField("cluster"):
        return f"{action.cluster} 100 %"
    weights = {each.name: each.weight.value for each in action.weighted_clusters.clusters}
    total = sum(weights.values())
    if not total:
        return "none"
    return ", ".join(
        f"{name} {_PERCENT * weight / total:.3g} %" for name, weight in weights.items()
    )


def _describe_retry(policy: dict[str, Any] | None) -> str:
    if policy is None:
        return "none"
    times = policy.pop("num_retries", 1)
    text = f"{count(int(times), 'retry', 'retries')} on {policy.pop('retry_on', 'nothing')}"
    rest = _flatten(policy)
    return ", ".join([text, *(f"{name} {value}" for name, value in rest.items())])


def _percent(fraction: Proto) -> str:
    if not 0 <= fraction.denominator < len(_DENOMINATORS):
        return "an unknown share"
    share = _PERCENT * fraction.numerator / _DENOMINATORS[fraction.denominator]
    return f"{share:.4g} %"


# Clusters and endpoints


def _add_cluster(message: Proto, facts: Facts) -> None:
    document = _to_dict(message)
    for field in ("name", "type", "cluster_type", "load_assignment"):
        document.pop(field, None)
    found = {"": "exists", "kind": _describe_kind(message)}
    if not message.HasField("load_balancing_policy") and not message.HasField("cluster_type"):
        found["policy"] = document.pop("lb_policy", "ROUND_ROBIN")
    for field, words in (
        ("outlier_detection", "outlier detection"),
        ("circuit_breakers", "circuit breaker"),
        ("transport_socket", "TLS"),
    ):
        given = document.pop(field, None)
        found[words] = "none" if given is None else _join(given)
    facts[f"cluster {message.name!r}"] = {**found, **_flatten(document)}


def _describe_kind(message: Proto) -> str:
    if message.HasField("cluster_type"):
        names = _to_dict(message.cluster_type).get("typed_config", {}).get("clusters", [])
        return f"aggregate of {', '.join(names)}"
    if message.type == message.LOGICAL_DNS:
        names = [
            f"{each.endpoint.address.socket_address.address}"
            f":{each.endpoint.address.socket_address.port_value}"
            for group in message.load_assignment.endpoints
            for each in group.lb_endpoints
        ]
        return f"DNS name {', '.join(names)}"
    return str(type(message).DiscoveryType.Name(message.type))


def _add_endpoints(message: Proto, facts: Facts) -> None:
    name = message.cluster_name
    for group in message.endpoints:
        place = ", ".join(
            f"{field} {value}"
            for field in ("region", "zone", "sub_zone")
            if (value := getattr(group.locality, field))
        )
        where = f"{place or 'no zone'}, priority {group.priority}"
        weight = str(group.load_balancing_weight.value)
        facts[_unused(f"locality {where} of {name!r}", facts)] = {
            "": count(len(group.lb_endpoints), "endpoint"),
            "weight": weight,
        }
        if group.HasField("leds_cluster_locality_config"):
            collection = group.leds_cluster_locality_config.leds_collection_name
            facts[next(reversed(facts))][""] = f"endpoints of {collection!r}"
        for each in group.lb_endpoints:
            _add_endpoint(each, where, name, facts)
    drops = [
        f"{each.category} {_percent(each.drop_percentage)}"
        for each in message.policy.drop_overloads
    ]
    facts[f"endpoints of {name!r}"] = {"": "exists", "drops": ", ".join(drops) or "none"}


def _add_endpoint(endpoint: Proto, where: str, name: str, facts: Facts) -> None:
    document = _to_dict(endpoint)
    address = document.get("endpoint", {}).pop("address", {})
    socket = address.get("socket_address", {})
    shown = f"{socket.get('address')}:{socket.get('port_value')}" if socket else _join(address)
    health = document.pop("health_status", "UNKNOWN")
    subject = _unused(f"endpoint {shown} of {name!r}", facts)
    facts[subject] = {"": where, "locality": where, "health": health, **_flatten(document)}


# Fields


def _to_dict(message: Proto) -> dict[str, Any]:
    text = json_format.MessageToJson(
        message, preserving_proto_field_name=True, descriptor_pool=descriptor_pool_of_envoy()
    )
    found: dict[str, Any] = json.loads(text)
    return found


def _join(value: dict[str, Any]) -> str:
    return SEPARATOR.join(f"{name} {text}" for name, text in _flatten(value).items()) or "default"


def _flatten(value: dict[str, Any]) -> dict[str, str]:
    """Values by their paths."""
    return dict(_walk(value, ""))


def _walk(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _walk(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from _walk(inner, f"{path}[{number}]")
    elif path:
        yield path, value if isinstance(value, str) else json.dumps(value)
