"""Explanation of a cluster: leaves, priorities, localities, endpoints, drops, limits.

Specs: A27-21..24, A32, A37, A50, A55, A56, A75.

It is based on resources alone; connections are in `explain_lb`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, assert_never

from proxyless.base import quote
from proxyless.base.explanation import Explanation
from proxyless.base.texts import count
from proxyless.observe.explain_lb import count_more, name_problems
from proxyless.observe.explain_tls import explain_tls
from proxyless.xds.error_texts import NO_ENDPOINT, name_cluster, name_endpoints
from proxyless.xds.resources import (
    AggregateCluster,
    EdsCluster,
    HealthStatus,
    LogicalDnsCluster,
)
from proxyless.xds.view import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.xds.resources import (
        EndpointInfo,
        EndpointResource,
        LocalityEndpoints,
    )
    from proxyless.xds.view import ClusterConfig, ClusterResult

_MILLION: Final = 1_000_000
# Per locality; more are counted, not shown.
ENDPOINTS_SHOWN_MAX: Final = 20


def explain_cluster(name: str, result: ClusterResult | None, share: str = "") -> Explanation:
    """A cluster that a route names, with its share of the route's RPCs."""
    title = f"{name_cluster(name)}{share}"
    if result is None:
        problem = f"{name_cluster(name)}: is not in the config"
        return Explanation("cluster", problem, {"name": name}, problem=problem)
    if isinstance(result, ClusterError):
        problem = result.status.details
        facts = {"name": name, "does_not_exist": result.does_not_exist}
        text = f"{title}: {problem.removeprefix(f'{name_cluster(name)}: ')}"
        return Explanation("cluster", text, facts, problem=problem)
    first, *leaves = result
    if not isinstance(first.cluster.discovery, AggregateCluster):
        return _explain_leaf(first, "cluster", title)
    parts = tuple(
        _explain_leaf(leaf, "leaf", f"leaf {number}: {name_cluster(leaf.cluster_name)}")
        for number, leaf in enumerate(leaves)
    )
    used = parts[leaves.index(choose_leaf(leaves))]
    text = f"{title}: aggregate of {count(len(leaves), 'leaf', 'leaves')}, the first "
    text += "that can be reached is used"
    if first.resolution_note:
        text += f" ({first.resolution_note})"
    facts = {"name": name, "type": "aggregate", "barrier": used.facts["barrier"]}
    return Explanation("cluster", text, facts, parts, used.problem)


def choose_leaf(leaves: Sequence[ClusterConfig]) -> ClusterConfig:
    """The leaf of an aggregate that is used if all endpoints are reachable.

    That is the first leaf with endpoints, or that drops every RPC; else the last one (A56, A75).
    """
    usable = (leaf for leaf in leaves if _drops_all(leaf) or not _lacks_endpoints(leaf))
    return next(usable, leaves[-1])


def _explain_leaf(entry: ClusterConfig, kind: str, title: str) -> Explanation:
    cluster, limit = entry.cluster, entry.cluster.max_concurrent_requests
    source, facts = _describe_discovery(entry)
    endpoints = entry.endpoints
    barrier = _find_barrier(entry)
    reason = name_problems(barrier, _lacks_endpoints(entry))
    parts = [
        Explanation("lb_policy", f"LB policy {describe_policy(cluster.lb_config.json)}"),
        Explanation(
            "circuit_breaker",
            f"circuit breaker: at most {count(limit, 'RPC')} at a time",
            {"max_requests": limit},
        ),
    ]
    if cluster.outlier_detection is not None:
        parts.append(Explanation("outlier_detection", "outlier detection is on"))
    if cluster.tls is not None:
        parts.append(explain_tls(cluster.tls))
    if endpoints is not None:
        parts += _explain_drops(endpoints)
        parts += _explain_priorities(endpoints)
    problem = f"{name_cluster(entry.cluster_name)}: {reason}" if reason else ""
    text = f"{title}: {reason or source}"
    facts = {"name": entry.cluster_name, **facts, "note": entry.resolution_note}
    facts["barrier"] = barrier
    facts["drops"] = [part.text for part in parts if part.facts.get("per_million")]
    return Explanation(kind, text, facts, tuple(parts), problem)


def _describe_discovery(entry: ClusterConfig) -> tuple[str, dict[str, object]]:
    match entry.cluster.discovery:
        case EdsCluster(service_name):
            name = service_name or entry.cluster_name
            return f"endpoints from EDS resource {quote(name)}", {
                "type": "EDS",
                "eds_service": name,
            }
        case LogicalDnsCluster(host, port):
            name = f"{host}:{port}"
            return f"one endpoint, DNS name {name}", {"type": "LOGICAL_DNS", "dns_name": name}
        case AggregateCluster(clusters):
            return "aggregate", {"type": "aggregate", "clusters": list(clusters)}
        case other:
            assert_never(other)


def _find_barrier(entry: ClusterConfig) -> str:
    """Reason why every RPC fails before an endpoint is picked; empty if there is none."""
    if name := _drops_all(entry):
        return f"drops every RPC, for {quote(name)}"
    if not entry.cluster.max_concurrent_requests:
        return "circuit breaker lets no RPC through: max_requests is 0"
    return ""


def _drops_all(entry: ClusterConfig) -> str:
    """The drop category that drops every RPC; empty if there is none."""
    drops = () if entry.endpoints is None else entry.endpoints.drops
    return next((drop.name for drop in drops if drop.per_million >= _MILLION), "")


def _lacks_endpoints(entry: ClusterConfig) -> str:
    """Reason why there is no endpoint to connect to; empty if there is one."""
    endpoints = entry.endpoints
    if endpoints is None:
        return entry.resolution_note or "its endpoints are not known"
    is_from_dns = isinstance(entry.cluster.discovery, LogicalDnsCluster)
    if not is_from_dns and not endpoints.has_endpoints:
        return f"{name_endpoints(endpoints.name)}: {NO_ENDPOINT}"
    return ""


def _is_active(endpoint: EndpointInfo) -> bool:
    """Whether RPCs without a session may use the endpoint (A55)."""
    return endpoint.health is not HealthStatus.DRAINING


def _explain_drops(endpoints: EndpointResource) -> Iterator[Explanation]:
    for drop in endpoints.drops:
        text = f"drops {_percent(drop.per_million, _MILLION)} of RPCs, for {quote(drop.name)}"
        facts = {"category": drop.name, "per_million": drop.per_million}
        yield Explanation("drop", text, facts)


def _explain_priorities(endpoints: EndpointResource) -> Iterator[Explanation]:
    for number, localities in enumerate(endpoints.priorities):
        total = sum(_active_weight(locality) for locality in localities)
        parts = tuple(_explain_locality(locality, total) for locality in localities)
        endpoints_in_all = sum(len(locality.endpoints) for locality in localities)
        text = f"priority {number}: {count(endpoints_in_all, 'endpoint')}"
        text += f" in {count(len(localities), 'locality', 'localities')}"
        yield Explanation("priority", text, {"priority": number}, parts)


def _explain_locality(locality: LocalityEndpoints, total: int) -> Explanation:
    shown = locality.endpoints[:ENDPOINTS_SHOWN_MAX]
    parts = [_explain_endpoint(endpoint) for endpoint in shown]
    parts += count_more(len(locality.endpoints) - len(shown))
    share = _percent(_active_weight(locality), total)
    where = locality.locality
    text = f"locality {where}: weight {locality.weight}, {share} of its priority"
    facts = {
        "region": where.region,
        "zone": where.zone,
        "sub_zone": where.sub_zone,
        "weight": locality.weight,
    }
    if locality.collection:
        text += f", endpoints of collection {quote(locality.collection)}"
        facts["collection"] = locality.collection
    return Explanation("locality", text, facts, tuple(parts))


def _active_weight(locality: LocalityEndpoints) -> int:
    """Weight of the locality; 0 if all its endpoints are draining."""
    return locality.weight if any(map(_is_active, locality.endpoints)) else 0


def _explain_endpoint(endpoint: EndpointInfo) -> Explanation:
    addresses = [str(address) for address in endpoint.addresses]
    health = endpoint.health.value
    text = f"{', '.join(addresses)}: {health}"
    if endpoint.weight != 1:
        text += f", weight {endpoint.weight}"
    if not _is_active(endpoint):
        text += ", only for sessions that it has"
    facts = {"addresses": addresses, "health": health, "weight": endpoint.weight}
    if endpoint.hostname:
        text += f", hostname {quote(endpoint.hostname)}"
        facts["hostname"] = endpoint.hostname
    return Explanation("endpoint", text, facts)


def describe_policy(lb_config: Sequence[object]) -> str:
    """The chain of policies down to the one that picks endpoints."""
    names: list[str] = []
    config: object = lb_config
    while isinstance(config, Sequence) and config and isinstance(config[0], Mapping):
        ((name, body),) = config[0].items()
        names.append(str(name))
        config = body.get("childPolicy") if isinstance(body, Mapping) else None
    return " → ".join(names) or "of the leaves"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.4g} %" if whole else "none"
