"""Encoding of views as messages of channelz (`grpc.channelz.v1`).

Specs: A14. What this client does not count is left at its default: messages and windows of sockets,
and which streams of a socket succeeded. The RPCs of a subchannel are those of all channels to its
address.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from proxyless.base import State
from proxyless.observe.flight.recording import to_plain
from proxyless.observe.live.messages import set_time
from proxyless.observe.live.views import NAME_MAX, CountsView, short
from proxyless.protos import Proto, message_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.observe.flight import Entry
    from proxyless.observe.live.views import LiveChannel, SocketView, SubchannelView

PACKAGE: Final = "grpc.channelz.v1"
# Refs of one channel.
SUBCHANNELS_MAX: Final = 10_000
EVENTS_MAX: Final = 20


def channelz_class(name: str) -> type[Proto]:
    """The class of a message of channelz."""
    return message_class(f"{PACKAGE}.{name}")


def encode_channel(channel: LiveChannel, into: Proto) -> None:
    target = short(channel.target, NAME_MAX)
    into.ref.channel_id = channel.id
    into.ref.name = into.data.target = target
    into.data.state.state = _state_number(channel.state.name)
    _encode_calls(channel.rpcs, into.data)
    for number, address in channel.subchannels[:SUBCHANNELS_MAX]:
        ref = into.subchannel_ref.add()
        ref.subchannel_id, ref.name = number, short(address, NAME_MAX)


def encode_trace(created: float | None, changes: Sequence[Entry], into: Proto) -> None:
    """The creation of a channel and the last changes of its state."""
    set_time(into.creation_timestamp, created)
    into.num_events_logged = len(changes)
    for change in changes[-EVENTS_MAX:]:
        event = into.events.add()
        state = to_plain(change.fields.get("state"))
        event.description = short(f"state is {state}")
        is_failure = state == State.TRANSIENT_FAILURE.name
        event.severity = event.CT_WARNING if is_failure else event.CT_INFO
        set_time(event.timestamp, change.time)


def encode_subchannel(subchannel: SubchannelView, rpcs: CountsView, into: Proto) -> None:
    name = short(subchannel.address, NAME_MAX)
    into.ref.subchannel_id = subchannel.id
    into.ref.name = into.data.target = name
    into.data.state.state = _state_number(subchannel.state.name)
    _encode_calls(rpcs, into.data)
    for socket in subchannel.sockets:
        ref = into.socket_ref.add()
        ref.socket_id, ref.name = socket.id, name


def encode_socket(socket: SocketView, into: Proto) -> None:
    into.ref.socket_id = socket.id
    into.ref.name = into.remote_name = short(socket.address, NAME_MAX)
    into.data.streams_started = socket.streams_started
    _encode_address(socket.local, into.local)
    _encode_address(socket.remote, into.remote)
    if socket.tls_cipher:
        into.security.tls.standard_name = short(socket.tls_cipher, NAME_MAX)


def _state_number(name: str) -> int:
    values = channelz_class("ChannelConnectivityState").DESCRIPTOR.enum_types_by_name["State"]
    number: int = values.values_by_name[name].number
    return number


def _encode_calls(counts: CountsView, into: Proto) -> None:
    into.calls_started = counts.started
    into.calls_succeeded = counts.succeeded
    into.calls_failed = counts.failed
    set_time(into.last_call_started_timestamp, counts.last_started)


def _encode_address(name: object, into: Proto) -> None:
    """A name of a socket: host and port, or the path of a Unix socket."""
    match name:
        case (str(host), int(port), *_):
            try:
                # The zone of a link-local address is not part of it.
                into.tcpip_address.ip_address = ipaddress.ip_address(host.partition("%")[0]).packed
            except ValueError:
                into.other_address.name = short(host, NAME_MAX)
            else:
                into.tcpip_address.port = port
        case str(path) if path:
            into.uds_address.filename = short(path, NAME_MAX)
        case bytes(path) if path:
            into.uds_address.filename = short(path.decode("utf-8", "replace"), NAME_MAX)
