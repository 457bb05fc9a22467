"""Requests and responses of ADS and LRS on the wire.

Specs: xDS transport protocol (v3, state of the world), LRS v3, A27 (node, features), xRFC TP3.

The only module of this package with protobuf: bytes on one side, plain dataclasses on the other. A
resource stays bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from google.protobuf.message import DecodeError

from proxyless.base.frozen import frozen
from proxyless.protos import Proto, message_class
from proxyless.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxyless.xds.bootstrap import Node

ADS_PATH: Final = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
LRS_PATH: Final = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"

# "does_not_support_overprovisioning" - A27; wrapped resources - xDS transport protocol.
ADS_FEATURES: Final = ("envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw")
LRS_FEATURES: Final = ("envoy.lrs.supports_send_all_clusters",)
USER_AGENT_NAME: Final = "proxyless"

_WRAPPER_URL: Final = "type.googleapis.com/envoy.service.discovery.v3.Resource"
_INVALID_ARGUMENT: Final = 3
_STATUS_CODE_MAX: Final = 16
_UNKNOWN: Final = 2

# ---------------------------------------------------------------------------------------------
# ADS


@frozen
class DiscoveryRequest:
    """One request of an ADS stream. With an error it is a NACK."""

    type_url: str
    resource_names: tuple[str, ...]
    version: str = ""
    nonce: str = ""
    error: str = ""
    # Only on the first request of a stream.
    node: Node | None = None


class RawResource(NamedTuple):
    """One resource of a response, out of its wrapper if it had one."""

    type_url: str
    serialized: bytes
    # Only a wrapper says it.
    name: str = ""


@frozen
class ResourceError:
    """A control plane says why it does not send a resource (xRFC TP3)."""

    name: str
    code: int
    text: str


@frozen
class DiscoveryResponse:
    """One response of an ADS stream."""

    type_url: str
    version: str
    nonce: str
    resources: Sequence[RawResource]
    errors: Sequence[ResourceError] = ()


def encode_request(request: DiscoveryRequest) -> bytes:
    """The serialized request."""
    message = message_class("envoy.service.discovery.v3.DiscoveryRequest")(
        version_info=request.version,
        resource_names=request.resource_names,
        type_url=request.type_url,
        response_nonce=request.nonce,
    )
    if request.node is not None:
        message.node.CopyFrom(encode_node(request.node, ADS_FEATURES))
    if request.error:
        message.error_detail.code = _INVALID_ARGUMENT
        message.error_detail.message = _utf8(request.error)
    serialized: bytes = message.SerializeToString()
    return serialized


def decode_response(serialized: bytes) -> DiscoveryResponse | None:
    """The response, or None if the bytes are not one."""
    message = message_class("envoy.service.discovery.v3.DiscoveryResponse")()
    try:
        message.ParseFromString(serialized)
    except DecodeError:
        return None
    return DiscoveryResponse(
        message.type_url,
        message.version_info,
        message.nonce,
        [_unwrap(each.type_url, each.value) for each in message.resources],
        [_read_error(each) for each in message.resource_errors],
    )


def _unwrap(type_url: str, value: bytes) -> RawResource:
    if type_url != _WRAPPER_URL:
        return RawResource(type_url, value)
    wrapper = message_class("envoy.service.discovery.v3.Resource")()
    try:
        wrapper.ParseFromString(value)
    except DecodeError:
        # Not of the type that was asked for, so it ends in the NACK.
        return RawResource(type_url, value)
    return RawResource(wrapper.resource.type_url, wrapper.resource.value, wrapper.name)


def _read_error(error: Proto) -> ResourceError:
    code = error.error_detail.code
    known = code if 0 < code <= _STATUS_CODE_MAX else _UNKNOWN
    return ResourceError(error.resource_name.name, known, error.error_detail.message)


def encode_node(node: Node, features: Sequence[str]) -> Proto:
    """The node as a message, for control planes and for CSDS."""
    message = message_class("envoy.config.core.v3.Node")(
        id=_utf8(node.id),
        cluster=_utf8(node.cluster),
        user_agent_name=USER_AGENT_NAME,
        user_agent_version=__version__,
        client_features=features,
    )
    locality = node.locality
    if locality.region or locality.zone or locality.sub_zone:
        message.locality.region = _utf8(locality.region)
        message.locality.zone = _utf8(locality.zone)
        message.locality.sub_zone = _utf8(locality.sub_zone)
    if node.metadata:
        message.metadata.update(_plain(node.metadata))
    return message


def _plain(value: object) -> Proto:
    """JSON as protobuf's Struct takes it: dictionaries and lists, nothing that only acts so."""
    match value:
        case str():
            return _utf8(value)
        case None | bool() | int() | float():
            return value
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            mapping: Mapping[str, object] = value  # type: ignore[assignment]
            return {_utf8(key): _plain(each) for key, each in mapping.items()}


def _utf8(text: str) -> str:
    """The text as protobuf can hold it: JSON has escapes for halves of characters."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


# ---------------------------------------------------------------------------------------------
# LRS


@frozen
class LocalityStats:
    """What one report says about a locality: counts since the last one, but for in_progress."""

    region: str
    zone: str
    sub_zone: str
    issued: int
    succeeded: int
    errors: int
    in_progress: int
    # By name: how many requests brought a value, and the sum of the values.
    metrics: tuple[tuple[str, int, float], ...] = ()


@frozen
class ClusterStats:
    """What one report says about a cluster since the last one."""

    cluster: str
    eds_service: str
    localities: tuple[LocalityStats, ...]
    dropped_total: int
    dropped: tuple[tuple[str, int], ...]
    interval_s: float


@frozen
class LoadStatsResponse:
    """Clusters that a server requests reports of, and the interval."""

    interval_s: float
    # None: all there are.
    clusters: frozenset[str] | None


def encode_load_report(stats: Sequence[ClusterStats], node: Node | None = None) -> bytes:
    """A report; with the node and nothing else it is the first request of a stream."""
    message = message_class("envoy.service.load_stats.v3.LoadStatsRequest")()
    if node is not None:
        message.node.CopyFrom(encode_node(node, LRS_FEATURES))
    for each in stats:
        cluster = message.cluster_stats.add(
            cluster_name=each.cluster,
            cluster_service_name=each.eds_service,
            total_dropped_requests=each.dropped_total,
        )
        seconds = int(each.interval_s)
        cluster.load_report_interval.seconds = seconds
        cluster.load_report_interval.nanos = int((each.interval_s - seconds) * 1e9)
        for category, count in each.dropped:
            cluster.dropped_requests.add(category=category, dropped_count=count)
        for locality in each.localities:
            _add_locality(cluster, locality)
    serialized: bytes = message.SerializeToString()
    return serialized


def _add_locality(cluster: Proto, stats: LocalityStats) -> None:
    message = cluster.upstream_locality_stats.add(
        total_successful_requests=stats.succeeded,
        total_requests_in_progress=stats.in_progress,
        total_error_requests=stats.errors,
        total_issued_requests=stats.issued,
    )
    message.locality.region = stats.region
    message.locality.zone = stats.zone
    message.locality.sub_zone = stats.sub_zone
    for name, count, total in stats.metrics:
        message.load_metric_stats.add(
            metric_name=name,
            num_requests_finished_with_metric=count,
            total_metric_value=total,
        )


def decode_load_response(serialized: bytes) -> LoadStatsResponse | None:
    """What the server wants, or None if the bytes do not say it."""
    message = message_class("envoy.service.load_stats.v3.LoadStatsResponse")()
    try:
        message.ParseFromString(serialized)
    except DecodeError:
        return None
    interval = message.load_reporting_interval
    clusters = None if message.send_all_clusters else frozenset(message.clusters)
    return LoadStatsResponse(interval.seconds + interval.nanos / 1e9, clusters)
