"""Requests and responses of ADS on the wire.

Specs: xDS transport protocol (v3, both variants), A27 (node, features), xRFC TP3.

Only this module and `lrs_codec` use protobuf in this package. Resources stay bytes.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from proxyless.base.frozen import frozen
from proxyless.protos import DECODE_ERRORS, Proto, message_class
from proxyless.protos.merging import PART_BYTES_MAX, merge_in_steps
from proxyless.runtime.work_queue import finish
from proxyless.version import __version__

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from proxyless.xds.bootstrap import Node

ADS_PATH: Final = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
DELTA_PATH: Final = (
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
)

# "does_not_support_overprovisioning" - A27; wrapped resources - xDS transport protocol.
ADS_FEATURES: Final = ("envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw")
USER_AGENT_NAME: Final = "proxyless"
REQUEST_NAME: Final = "envoy.service.discovery.v3.DiscoveryRequest"

# Resources, and errors instead of them, in one response.
RESPONSE_RESOURCES_MAX: Final = 100_000
# Unpacking one takes about a microsecond.
_RESOURCES_PER_STEP: Final = 500

_WRAPPER_URL: Final = "type.googleapis.com/envoy.service.discovery.v3.Resource"
_INVALID_ARGUMENT: Final = 3
_STATUS_CODE_MAX: Final = 16
_UNKNOWN: Final = 2


@frozen
class DiscoveryRequest:
    """One request of an ADS stream. With an error it is a NACK."""

    type_url: str
    resource_names: tuple[str, ...]
    version: str = ""
    nonce: str = ""
    error: str = ""
    # Present on the first request of a stream.
    node: Node | None = None


@frozen
class DeltaRequest:
    """One request of an incremental ADS stream. With a nonce it is an ACK, with an error a NACK."""

    type_url: str
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    # Versions that the client has, by name; on the first request of a type.
    initial_versions: Mapping[str, str] = field(default_factory=dict)
    nonce: str = ""
    error: str = ""
    # Present on the first request of a stream.
    node: Node | None = None

    @property
    def resource_names(self) -> tuple[str, ...]:
        return self.subscribe

    @property
    def version(self) -> str:
        return ""


AnyRequest: TypeAlias = DiscoveryRequest | DeltaRequest


class RawResource(NamedTuple):
    """One resource of a response, without its wrapper."""

    type_url: str
    serialized: bytes
    # Empty unless the resource had a wrapper.
    name: str = ""
    # Version of the resource itself; only in incremental responses.
    version: str = ""


@frozen
class ResourceError:
    """Error that a control plane sends instead of a resource (xRFC TP3)."""

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
    # Reason for which the whole response is rejected; empty if there is none.
    rejection: str = ""
    # Incremental: it has only changes, and the names of resources that do not exist.
    is_delta: bool = False
    removed: Sequence[str] = ()


def encode_request(request: DiscoveryRequest) -> bytes:
    message = message_class(REQUEST_NAME)(
        version_info=request.version,
        resource_names=request.resource_names,
        type_url=request.type_url,
        response_nonce=request.nonce,
    )
    if request.node is not None or request.error:
        _add_node_and_error(message, request)
    serialized: bytes = message.SerializeToString()
    return serialized


def _add_node_and_error(message: Proto, request: AnyRequest) -> None:
    if request.node is not None:
        message.node.CopyFrom(encode_node(request.node, ADS_FEATURES))
    if request.error:
        message.error_detail.code = _INVALID_ARGUMENT
        message.error_detail.message = _utf8(request.error)


def decode_response(serialized: bytes) -> DiscoveryResponse | None:
    """Decode a response; None if the bytes are not one."""
    message = message_class("envoy.service.discovery.v3.DiscoveryResponse")()
    try:
        message.ParseFromString(serialized)
    except DECODE_ERRORS:
        return None
    return DiscoveryResponse(
        message.type_url,
        message.version_info,
        message.nonce,
        [_unwrap(each.type_url, each.value) for each in message.resources],
        [_read_error(each) for each in message.resource_errors],
    )


def decode_response_in_steps(
    serialized: bytes,
) -> Generator[int, None, DiscoveryResponse | None]:
    """Like `decode_response`, for large messages; yields the work of each step."""
    message = message_class("envoy.service.discovery.v3.DiscoveryResponse")()
    resources: list[RawResource] = []
    try:
        yield from merge_in_steps(message, serialized)
        count = len(message.resources) + len(message.resource_errors)
        if count > RESPONSE_RESOURCES_MAX:
            text = f"response has {count} resources, wanted at most {RESPONSE_RESOURCES_MAX}"
            return DiscoveryResponse(
                message.type_url, message.version_info, message.nonce, (), rejection=text
            )
        for each in message.resources:
            type_url, value = each.type_url, each.value
            if type_url == _WRAPPER_URL and len(value) > PART_BYTES_MAX:
                resources.append((yield from _unwrap_in_steps(value)))
            else:
                resources.append(_unwrap(type_url, value))
            if not len(resources) % _RESOURCES_PER_STEP:
                yield _RESOURCES_PER_STEP
        errors = yield from _read_errors_in_steps(message)
    except DECODE_ERRORS:
        return None
    return DiscoveryResponse(
        message.type_url, message.version_info, message.nonce, resources, errors
    )


def encode_delta_request(request: DeltaRequest) -> bytes:
    message = message_class("envoy.service.discovery.v3.DeltaDiscoveryRequest")(
        type_url=request.type_url,
        resource_names_subscribe=request.subscribe,
        resource_names_unsubscribe=request.unsubscribe,
        initial_resource_versions=request.initial_versions,
        response_nonce=request.nonce,
    )
    if request.node is not None or request.error:
        _add_node_and_error(message, request)
    serialized: bytes = message.SerializeToString()
    return serialized


def decode_delta_response(serialized: bytes) -> DiscoveryResponse | None:
    """Decode an incremental response; None if the bytes are not one."""
    return finish(decode_delta_response_in_steps(serialized))


def decode_delta_response_in_steps(
    serialized: bytes,
) -> Generator[int, None, DiscoveryResponse | None]:
    """Like `decode_delta_response`, for large messages; yields the work of each step."""
    message = message_class("envoy.service.discovery.v3.DeltaDiscoveryResponse")()
    resources: list[RawResource] = []
    try:
        yield from merge_in_steps(message, serialized)
    except DECODE_ERRORS:
        return None
    kind, version, nonce = message.type_url, message.system_version_info, message.nonce
    lists = (message.resources, message.resource_errors, message.removed_resources)
    count = sum(map(len, lists))
    if count > RESPONSE_RESOURCES_MAX:
        text = f"response has {count} resources, wanted at most {RESPONSE_RESOURCES_MAX}"
        return DiscoveryResponse(kind, version, nonce, (), rejection=text, is_delta=True)
    for each in message.resources:
        body = each.resource
        resources.append(RawResource(body.type_url, body.value, each.name, each.version))
        if not len(resources) % _RESOURCES_PER_STEP:
            yield _RESOURCES_PER_STEP
    errors = yield from _read_errors_in_steps(message)
    removed = tuple(message.removed_resources)
    return DiscoveryResponse(
        kind, version, nonce, resources, errors, is_delta=True, removed=removed
    )


def encode_members(members: Iterable[tuple[str, str, bytes]]) -> bytes:
    """Members of a collection (name, version, bytes) in one message, as they are saved."""
    message = message_class("envoy.service.discovery.v3.DeltaDiscoveryResponse")()
    for name, version, serialized in members:
        message.resources.add(name=name, version=version).resource.value = serialized
    encoded: bytes = message.SerializeToString()
    return encoded


def decode_members_in_steps(
    serialized: bytes,
) -> Generator[int, None, list[tuple[str, bytes]] | None]:
    """Names and bytes of saved members; None if these bytes are not a collection."""
    response = yield from decode_delta_response_in_steps(serialized)
    if response is None or response.rejection:
        return None
    return [(each.name, each.serialized) for each in response.resources]


def _read_errors_in_steps(message: Proto) -> Generator[int, None, list[ResourceError]]:
    errors: list[ResourceError] = []
    for each in message.resource_errors:
        errors.append(_read_error(each))
        if not len(errors) % _RESOURCES_PER_STEP:
            yield _RESOURCES_PER_STEP
    return errors


def _unwrap_in_steps(value: bytes) -> Generator[int, None, RawResource]:
    wrapper = message_class("envoy.service.discovery.v3.Resource")()
    try:
        yield from merge_in_steps(wrapper, value)
    except DECODE_ERRORS:
        return RawResource(_WRAPPER_URL, value)
    return RawResource(wrapper.resource.type_url, wrapper.resource.value, wrapper.name)


def _unwrap(type_url: str, value: bytes) -> RawResource:
    if type_url != _WRAPPER_URL:
        return RawResource(type_url, value)
    wrapper = message_class("envoy.service.discovery.v3.Resource")()
    try:
        wrapper.ParseFromString(value)
    except DECODE_ERRORS:
        # Its type is not the requested one, so it is rejected.
        return RawResource(type_url, value)
    return RawResource(wrapper.resource.type_url, wrapper.resource.value, wrapper.name)


def _read_error(error: Proto) -> ResourceError:
    code = error.error_detail.code
    valid_code = code if 0 < code <= _STATUS_CODE_MAX else _UNKNOWN
    return ResourceError(error.resource_name.name, valid_code, error.error_detail.message)


def encode_node(node: Node, features: Sequence[str]) -> Proto:
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
    """Copy JSON with real dictionaries and lists: a Struct accepts no other mappings."""
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
    """Replace lone surrogates, which JSON can have and protobuf cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
