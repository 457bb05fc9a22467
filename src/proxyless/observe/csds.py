"""CSDS messages: the dump of xDS clients as a ClientStatusResponse, and its decoding into rows.

Specs: A40 (CSDS), A71 (client_scope), A88 (statuses).

A decoded response may come from any implementation. The service is in `csds_service`.

A dump may be large, so it is encoded in slices of bounded work, between which a loop can do other
things.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen
from proxyless.protos import Proto, message_class
from proxyless.runtime.work_queue import finish
from proxyless.xds.view import encode_node

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from proxyless.xds.bootstrap import Node
    from proxyless.xds.view import ResourceDump

LOGGER: Final = logging.getLogger("proxyless.observe")

RESPONSE: Final = "envoy.service.status.v3.ClientStatusResponse"
_CLIENT_CONFIG: Final = "envoy.service.status.v3.ClientConfig"

# What is dumped or encoded in one turn of a loop: about two milliseconds of work.
SLICE_RESOURCES: Final = 256
SLICE_BYTES: Final = 512 * 1024
# Contents of one response. The response is sent as one piece, which takes a turn of the loop, and
# clients accept 4 MB unless they are configured for more.
CONTENT_BYTES_MAX: Final = 8 * 1024 * 1024

_NANOS: Final = 1_000_000_000
# The field `config` of the response: number 1, length-delimited.
_CONFIG_TAG: Final = b"\x0a"


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
    """One ClientConfig per client; without contents, resources have no bytes.

    Resources beyond `CONTENT_BYTES_MAX` have none either.
    """
    serialized = finish(encode_in_slices(views, has_contents=has_contents))
    return message_class(RESPONSE).FromString(serialized)


def encode_in_slices(
    views: Iterable[ClientView], *, has_contents: bool = True
) -> Generator[None, None, bytes]:
    """The serialized response. Yields between slices."""
    parts: list[bytes] = []
    left_bytes = CONTENT_BYTES_MAX if has_contents else -1
    left_out = 0
    for view in views:
        config = message_class(_CLIENT_CONFIG)(client_scope=view.scope)
        config.node.CopyFrom(encode_node(view.node))
        # Concatenated messages are the message with all their fields.
        pieces: list[bytes] = []
        size_bytes = 0
        for dump in view.resources:
            has_content = len(dump.serialized) <= left_bytes
            _fill(config.generic_xds_configs.add(), dump, view.epoch_offset_s, has_content)
            if has_content:
                size_bytes += len(dump.serialized)
                left_bytes -= len(dump.serialized)
            elif has_contents:
                left_out += 1
            if len(config.generic_xds_configs) >= SLICE_RESOURCES or size_bytes >= SLICE_BYTES:
                pieces.append(config.SerializeToString())
                config.Clear()
                size_bytes = 0
                yield
        pieces.append(config.SerializeToString())
        parts += (_CONFIG_TAG, _encode_varint(sum(map(len, pieces))), *pieces)
        yield
    if left_out:
        text = "CSDS leaves out the contents of %d resources: there are more than %d bytes"
        LOGGER.warning(text, left_out, CONTENT_BYTES_MAX)
    return b"".join(parts)


def _encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits per byte
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _fill(entry: Proto, dump: ResourceDump, epoch_offset_s: float, has_content: bool) -> None:
    entry.type_url = dump.type_url
    entry.name = dump.name
    entry.client_status = dump.status.value
    entry.version_info = dump.version
    if dump.serialized:
        # A resource from the config cache was last updated by an earlier process.
        updated_s = dump.updated_s + epoch_offset_s if dump.saved_s is None else dump.saved_s
        _set_time(entry.last_updated, updated_s)
        if has_content:
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

    @property
    def is_left_out(self) -> bool:
        """Whether the process has the resource, and has not sent it."""
        return bool(self.updated) and not self.value


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
    return ResourceRow(
        entry.type_url,
        entry.name,
        known.name if known is not None else f"status {entry.client_status}",
        entry.version_info,
        _show_time(entry.last_updated) if entry.HasField("last_updated") else "",
        entry.error_state.details,
        entry.error_state.version_info,
        entry.xds_config.value,
    )


def _show_time(timestamp: Proto) -> str:
    try:
        return str(timestamp.ToJsonString())
    except ValueError:  # It is out of range.
        return ""
