"""Samples of a process that has CSDS only, such as one with channels of grpcio.

CSDS has resources only: states are those of resources and endpoints, and there are neither counts
nor connections nor LB trees.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxyless.base.texts import count, one_line
from proxyless.cli.top.samples import ChannelRow, ClusterRow, EndpointRow, Sample
from proxyless.protos import DECODE_ERRORS, message_class
from proxyless.xds.view import collection_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from proxyless.observe import ClientStatus, ResourceRow
    from proxyless.protos import Proto

SOURCE: Final = "CSDS"
NO_LIVE_SERVICE: Final = (
    "no live service: RPCs, connections, ejections and LB trees are not shown, "
    "and states are those of resources and endpoints"
)

_CLUSTER: Final = "envoy.config.cluster.v3.Cluster"
_ENDPOINTS: Final = "envoy.config.endpoint.v3.ClusterLoadAssignment"
_LB_ENDPOINT: Final = "envoy.config.endpoint.v3.LbEndpoint"


def read_clients(clients: Iterable[ClientStatus], now_s: float) -> Sample:
    """Sample of the resources that the xDS clients of a process hold."""
    found = list(clients)
    agents = sorted({one_line(client.user_agent) for client in found} - {""})
    channels = tuple(_read_client(index, client) for index, client in enumerate(found))
    return Sample(SOURCE, now_s, ", ".join(agents), channels, notes=(NO_LIVE_SERVICE,))


def _read_client(index: int, client: ClientStatus) -> ChannelRow:
    held = {(row.type_url.rpartition("/")[2], row.name): row for row in client.resources}
    clusters = [_read_resource(row, held) for (kind, _), row in held.items() if kind == _CLUSTER]
    bad = [row for row in client.resources if row.error or row.status not in {"ACKED", "REQUESTED"}]
    problem = "; ".join(f"{row.name}: {row.error or row.status}" for row in bad[:1])
    if len(bad) > 1:
        problem += f"; and {count(len(bad) - 1, 'more resource')}"
    statuses = {row.status for row in client.resources}
    state = "ACKED" if statuses == {"ACKED"} else ", ".join(sorted(statuses - {"ACKED"}))
    return ChannelRow(
        str(index + 1),
        one_line(client.scope or "(all targets)"),
        one_line(state),
        one_line(problem),
        clusters=tuple(sorted(clusters, key=lambda cluster: cluster.name)),
    )


def _read_resource(row: ResourceRow, held: Mapping[tuple[str, str], ResourceRow]) -> ClusterRow:
    """A cluster, with the endpoints of its EDS resource or its own."""
    base = ClusterRow(one_line(row.name), one_line(row.status), one_line(row.error))
    try:
        cluster = message_class(_CLUSTER).FromString(row.value)
        service = cluster.eds_cluster_config.service_name or row.name
        assignment, eds = cluster.load_assignment, held.get((_ENDPOINTS, service))
        if eds is not None:
            assignment = message_class(_ENDPOINTS).FromString(eds.value)
    except DECODE_ERRORS:
        return replace(base, problem=base.problem or "its contents cannot be read")
    endpoints = tuple(_read_assignment(assignment, held))
    priorities = {endpoint.priority for endpoint in endpoints}
    return replace(base, priorities=len(priorities), total=len(endpoints), endpoints=endpoints)


def _find_endpoints(group: Proto, held: Mapping[tuple[str, str], ResourceRow]) -> Iterable[Proto]:
    """The endpoints of a locality, or the members of its collection."""
    if not group.HasField("leds_cluster_locality_config"):
        yield from group.lb_endpoints
        return
    collection = group.leds_cluster_locality_config.leds_collection_name
    for (kind, name), row in held.items():
        if kind == _LB_ENDPOINT and row.value and collection_of(name) == collection:
            with suppress(*DECODE_ERRORS):
                yield message_class(_LB_ENDPOINT).FromString(row.value)


def _read_assignment(
    assignment: Proto, held: Mapping[tuple[str, str], ResourceRow]
) -> Iterable[EndpointRow]:
    for group in assignment.endpoints:
        place = group.locality
        locality = "/".join((place.region, place.zone, place.sub_zone)).strip("/")
        for each in _find_endpoints(group, held):
            socket = each.endpoint.address.socket_address
            health = type(each).DESCRIPTOR.fields_by_name["health_status"].enum_type
            state = health.values_by_number.get(each.health_status)
            # UNKNOWN is as good as HEALTHY.
            name = "HEALTHY" if state is None or not each.health_status else state.name
            address = f"{socket.address}:{socket.port_value}"
            yield EndpointRow(one_line(address), name, group.priority, one_line(locality))
