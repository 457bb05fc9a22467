"""Channels to targets that cannot be resolved, ours beside grpcio's.

grpcio makes a channel to any text, and its RPCs fail: with UNKNOWN at once if the scheme rejects
the target; with UNAVAILABLE if it is an invalid DNS name, unless they are wait-for-ready.
"""

import socket
from types import ModuleType
from typing import Any, Final

import grpc
import grpc.aio
import pytest

import proxyless
import proxyless.aio
from tests.interop.drop_in_sync import until_sync

PATH: Final = "/proxyless.Test/Look"
# Long enough for a look-up that fails on this machine, short enough to wait for its end.
WAIT_S: Final = 0.1
PATIENCE_S: Final = 10.0
PATIENT_OR_NOT: Final[tuple[dict[str, Any], ...]] = (
    {"timeout": PATIENCE_S},
    {"timeout": WAIT_S, "wait_for_ready": True},
)

BLOCKING: Final[dict[str, ModuleType]] = {"grpcio": grpc, "proxyless": proxyless}
ASYNCIO: Final[dict[str, ModuleType]] = {"grpcio": grpc.aio, "proxyless": proxyless.aio}

# The scheme refuses these.
MALFORMED: Final = (
    "",
    "dns:",
    "dns:///",
    "dns://localhost:1",
    "xds:",
    "xds:///",
    "xds:///name/",
    "ipv4:127.0.0",
    "ipv4:localhost:1",
    "ipv4:127.0.0.1:99999",
    "ipv4:127.0.0.1:abc",
    "ipv4:127.0.0.1:1,nothing",
    "ipv4://authority/127.0.0.1:1",
    "ipv4:[::1]:1",
    "ipv6:127.0.0.1:1",
    "ipv6:[::1:1",
    "unix://nothing",
    "unix://authority/path",
    "unix-abstract://name",
)
# A socket's address has room for 107 bytes.
TOO_LONG: Final = ("unix:/" + 107 * "x", "unix:/short,/" + 107 * "x", "unix-abstract:" + 108 * "x")
JUST_SHORT_ENOUGH: Final = ("unix:/" + 106 * "x", "unix-abstract:" + 107 * "x")
# Targets that are parsed as DNS names, and are invalid as such.
UNRESOLVABLE: Final = (
    ":50051",
    ":",
    " ",
    "://",
    "[::1",
    "http://localhost:1",
    "https://localhost",
    "nosuch:///name",
    "nosuch:name",
    "localhost:abc",
    "one:two:three",
    "vsock:1:2",
    "host name:1",
    "user@localhost:1",
    "one\ntwo",
    "dns:///:50051",
    "dns:///localhost:abc",
    "dns:///%ff",
    "xds:///name",  # There is no bootstrap.
    "xds://authority/name",
)
# Valid targets without a server.
REFUSED: Final = (
    "localhost:1",
    b"localhost:1",
    "local%68ost:1",
    "localhost:1?query#fragment",
    "127.0.0.1:1",
    "[::1]:1",
    "ipv4:127.0.0.1:1,",
    "ipv4:///127.0.0.1:1",
    "ipv6:[::1]:1",
    "unix:relative/nothing",
    "unix:/proxyless/nothing,/proxyless/neither",
    "unix:///proxyless/nothing",
    "unix-abstract:proxyless/nothing",
)


@pytest.fixture(autouse=True)
def _no_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPC_XDS_BOOTSTRAP", raising=False)
    monkeypatch.delenv("GRPC_XDS_BOOTSTRAP_CONFIG", raising=False)


def tell_blocking(stack: ModuleType, target: str | bytes) -> list[object]:
    """States and RPC errors of a blocking channel to this target."""
    seen: list[object] = []
    with stack.insecure_channel(target) as channel:
        states: list[grpc.ChannelConnectivity] = []
        channel.subscribe(states.append)
        until_sync(lambda: states, "the first state")
        call = channel.unary_unary(PATH)
        for said in PATIENT_OR_NOT:
            with pytest.raises(grpc.RpcError) as caught:
                call(b"", **said)
            seen.append(caught.value.code())
        failing = grpc.ChannelConnectivity.TRANSIENT_FAILURE
        until_sync(lambda: states[-1] is failing, "the channel to fail")
        # States between the first and the last may be too short to be observed.
        return [*seen, states[0]]


def details_of(target: str) -> list[str]:
    """The errors of RPCs of both."""
    details = []
    for stack in BLOCKING.values():
        with (
            stack.insecure_channel(target) as channel,
            pytest.raises(grpc.RpcError) as caught,
        ):
            channel.unary_unary(PATH)(b"", timeout=PATIENCE_S)
        details.append(caught.value.details() or "")
    return details


async def tell_asyncio(stack: ModuleType, target: str | bytes) -> list[object]:
    """The same of a channel for asyncio."""
    seen: list[object] = []
    async with stack.insecure_channel(target) as channel:
        seen.append(channel.get_state())
        call = channel.unary_unary(PATH)
        for said in PATIENT_OR_NOT:
            with pytest.raises(grpc.RpcError) as caught:
                await call(b"", **said)
            seen.append(caught.value.code())
        return [*seen, channel.get_state()]


@pytest.mark.parametrize("target", [*MALFORMED, *UNRESOLVABLE, *REFUSED])
def test_blocking_channel_fails_rpcs_as_grpcios_does(target: str | bytes) -> None:
    theirs, ours = (tell_blocking(stack, target) for stack in BLOCKING.values())
    assert ours == theirs


@pytest.mark.parametrize("target", [*MALFORMED, *UNRESOLVABLE, *REFUSED])
async def test_asyncio_channel_fails_rpcs_as_grpcios_does(target: str | bytes) -> None:
    theirs, ours = [await tell_asyncio(stack, target) for stack in ASYNCIO.values()]
    assert ours == theirs


@pytest.mark.parametrize("target", TOO_LONG, ids=len)
def test_path_that_is_too_long_for_a_socket_is_malformed(target: str) -> None:
    theirs, ours = (tell_blocking(stack, target) for stack in BLOCKING.values())
    assert ours == theirs
    assert theirs[0] is grpc.StatusCode.UNKNOWN


@pytest.mark.parametrize("target", JUST_SHORT_ENOUGH, ids=len)
def test_path_that_is_just_short_enough_for_a_socket_is_dialled(target: str) -> None:
    theirs, ours = (tell_blocking(stack, target) for stack in BLOCKING.values())
    assert ours == theirs
    assert theirs[0] is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("kind", ["unary_stream", "stream_unary", "stream_stream"])
def test_streams_to_a_malformed_target_fail_as_grpcios_do(kind: str) -> None:
    request = (lambda: iter([b""])) if kind.startswith("stream") else lambda: b""
    codes = []
    for stack in BLOCKING.values():
        with stack.insecure_channel("ipv4:127.0.0") as channel:
            call = getattr(channel, kind)(PATH)
            call = call if kind.endswith("stream") else call.future
            codes.append(call(request(), timeout=PATIENCE_S).code())
    assert codes == [grpc.StatusCode.UNKNOWN] * 2


@pytest.mark.parametrize("target", ["localhost:65537", "127.0.0.1:65537"])
def test_port_out_of_range_is_refused_where_grpcio_connects_to_another(target: str) -> None:
    """grpcio takes it modulo 65,536."""
    theirs, ours = details_of(target)
    assert "127.0.0.1:1:" in theirs
    assert "has port '65537': wanted 0 to 65535" in ours


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
@pytest.mark.parametrize("target", ["ipv4:", "ipv6:", "unix:", "unix-abstract:"])
def test_list_without_an_address_is_malformed_where_grpcios_is_resolved(target: str) -> None:
    theirs, ours = (tell_blocking(stack, target) for stack in BLOCKING.values())
    failing = grpc.ChannelConnectivity.TRANSIENT_FAILURE
    assert theirs[:2] == [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED]
    assert ours == [grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNKNOWN, failing]


@pytest.mark.parametrize("target", ["ipv4:127.0.0.1", "ipv6:[::1]"])
def test_address_without_a_port_is_taken_where_grpcios_is_malformed(target: str) -> None:
    """Port 443 of the test machine has no server."""
    theirs, ours = details_of(target)
    assert "the target uri is not valid" in theirs
    assert ":443: connection refused" in ours


def test_name_server_of_a_target_is_rejected_where_grpcio_queries_it() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as name_server:
        name_server.bind(("127.0.0.1", 0))
        name_server.settimeout(PATIENCE_S)
        target = f"dns://127.0.0.1:{name_server.getsockname()[1]}/nothing.test:1"
        with grpc.insecure_channel(target) as channel:
            call = channel.unary_unary(PATH).future(b"", timeout=PATIENCE_S)
            assert b"\x07nothing\x04test" in name_server.recv(512)
            call.cancel()
        with (
            proxyless.insecure_channel(target) as channel,
            pytest.raises(
                grpc.RpcError, match="since the system's name servers are asked"
            ) as caught,
        ):
            channel.unary_unary(PATH)(b"", timeout=PATIENCE_S)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
