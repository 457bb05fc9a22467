"""CSDS messages: the dump of xDS clients as a ClientStatusResponse, and its decoding into rows.

Specs: A40 (CSDS), A71 (client_scope), A88 (statuses).

A decoded response may come from any implementation. The service is in `csds_service`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.protos import Proto, message_class
from proxyless.xds.view import encode_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proxyless.xds.bootstrap import Node
    from proxyless.xds.view import ResourceDump

RESPONSE: Final = "envoy.service.status.v3.ClientStatusResponse"

_NANOS: Final = 1_000_000_000


@frozen
class ClientView:
    """State of one xDS client."""

    # "client_scope": the data-plane target; empty if all targets share the client.
    scope: str
    node: Node
    resources: Sequence[ResourceDump]
    # Difference between seconds since 1970 and the client's clock.
    epoch_offset_s: float


def encode_status(views: Iterable[ClientView], *, has_contents: bool = True) -> Proto:
    """One ClientConfig per client; without contents, resources have no bytes."""
    response = message_class(RESPONSE)()
    for view in views:
        config = response.config.add(client_scope=view.scope)
        config.node.CopyFrom(encode_node(view.node))
        for dump in view.resources:
            _fill(config.generic_xds_configs.add(), dump, view.epoch_offset_s, has_contents)
    return response


def _fill(entry: Proto, dump: ResourceDump, epoch_offset_s: float, has_contents: bool) -> None:
    entry.type_url = dump.type_url
    entry.name = dump.name
    entry.client_status = dump.status.value
    entry.version_info = dump.version
    if dump.serialized:
        _set_time(entry.last_updated, dump.updated_s + epoch_offset_s)
        if has_contents:
            entry.xds_config.type_url = dump.type_url
            entry.xds_config.value = dump.serialized
    # This includes connection errors, which explain why there is no newer version.
    if not dump.error.is_ok:
        entry.error_state.details = dump.error.details
        entry.error_state.version_info = dump.failed_version
        if dump.failed_version:
            _set_time(entry.error_state.last_update_attempt, dump.failed_s + epoch_offset_s)


def _set_time(timestamp: Proto, epoch_s: float) -> None:
    timestamp.FromNanoseconds(int(epoch_s * _NANOS))


@frozen
class ResourceRow:
    """State of one resource in a client."""

    type_url: str
    name: str
    # Name of the CSDS status, such as `ACKED`.
    status: str
    version: str
    # RFC 3339; empty if the resource was never received.
    updated: str
    error: str
    # Version of the rejected update, if there is one.
    failed_version: str
    # The serialized resource; empty if there is none, or it was not requested.
    value: bytes


@frozen
class ClientStatus:
    """State of one xDS client, decoded."""

    scope: str
    node_id: str
    user_agent: str
    resources: tuple[ResourceRow, ...]


def read_status(response: Proto) -> list[ClientStatus]:
    return [
        ClientStatus(
            config.client_scope,
            config.node.id,
            f"{config.node.user_agent_name} {config.node.user_agent_version}".strip(),
            tuple(_read_row(entry) for entry in config.generic_xds_configs),
        )
        for config in response.config
    ]


def _read_row(entry: Proto) -> ResourceRow:
    status = entry.DESCRIPTOR.fields_by_name["client_status"].enum_type.values_by_number
    known = status.get(entry.client_status)
    has_time = entry.HasField("last_updated")
    return ResourceRow(
        entry.type_url,
        entry.name,
        known.name if known is not None else f"status {entry.client_status}",
        entry.version_info,
        entry.last_updated.ToJsonString() if has_time else "",
        entry.error_state.details,
        entry.error_state.version_info,
        entry.xds_config.value,
    )
