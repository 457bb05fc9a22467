"""Unit tests of proxyless.observe.live.channelz. Tests with a server are in tests/interop."""

from __future__ import annotations

import pytest

from proxyless.base import State
from proxyless.observe.flight import Entry
from proxyless.observe.live.channelz import channelz_class, encode_socket, encode_trace
from proxyless.observe.live.views import SocketView


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        (("127.0.0.1", 80), "tcpip_address", bytes([127, 0, 0, 1])),
        (("fe80::1%eth0", 80, 0, 2), "tcpip_address", bytes.fromhex("fe80" + "0" * 27 + "1")),
        (("nonsense", 80), "other_address", "nonsense"),
        ("/run/app.sock", "uds_address", "/run/app.sock"),
        (b"\0abstract", "uds_address", r"\x00abstract"),
        (None, None, None),
        ("", None, None),
    ],
)
def test_address_of_a_socket_is_encoded_by_its_family(
    name: object, kind: str | None, expected: object
) -> None:
    socket = channelz_class("Socket")()
    encode_socket(SocketView(9, "10.0.0.1:80", name, None, 4, "TLS_AES"), socket)
    assert socket.local.WhichOneof("address") == kind
    if kind is not None:
        address = getattr(socket.local, kind)
        fields = ("ip_address", "name", "filename")
        found = [getattr(address, each) for each in fields if hasattr(address, each)]
        assert found == [expected]
    assert (socket.ref.socket_id, socket.data.streams_started) == (9, 4)
    assert socket.security.tls.standard_name == "TLS_AES"


def test_trace_has_the_last_changes_and_how_many_there_were() -> None:
    states = [State.CONNECTING, State.TRANSIENT_FAILURE] * 15
    changes = [
        Entry(number, float(number), 1, "channel.state", {"state": state})
        for number, state in enumerate(states)
    ]
    trace = channelz_class("ChannelTrace")()
    encode_trace(1.5, changes, trace)
    assert (trace.num_events_logged, len(trace.events)) == (30, 20)
    last = trace.events[-1]
    assert (last.description, last.severity) == ("state is TRANSIENT_FAILURE", last.CT_WARNING)
    assert trace.creation_timestamp.ToMilliseconds() == 1500
