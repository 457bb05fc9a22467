"""Resumption of TLS sessions with the option `grpc.ssl_session_cache`, ours beside grpcio's.

A server of grpcio's reports for each connection whether its session was resumed.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, Final

import grpc
import grpc.aio
import pytest
from grpc.experimental import session_cache

import proxyless
import proxyless.aio
from tests.certificates import CertificateAuthority

ON_BOTH_LOOPS = True

NAME: Final = "api.test"
PATH: Final = "/proxyless.Test/IsReused"
PATIENCE_S: Final = 10.0
BLOCKING: Final[dict[str, ModuleType]] = {"grpcio": grpc, "proxyless": proxyless}
ASYNCIO: Final[dict[str, ModuleType]] = {"grpcio": grpc.aio, "proxyless": proxyless.aio}

NEW, RESUMED = b"false", b"true"
Start = Callable[..., str]
Options = tuple[tuple[str, Any], ...]


def is_reused(_: bytes, context: grpc.ServicerContext) -> bytes:
    """Whether the server resumed the session of the RPC's connection."""
    reused: bytes = context.auth_context()["ssl_session_reused"][0]
    return reused


METHODS: Final = grpc.method_handlers_generic_handler(
    "proxyless.Test", {"IsReused": grpc.unary_unary_rpc_method_handler(is_reused)}
)


@pytest.fixture
def start(authority: CertificateAuthority) -> Iterator[Start]:
    servers: list[grpc.Server] = []

    def start(signer: CertificateAuthority = authority, name: str = NAME) -> str:
        server = grpc.server(ThreadPoolExecutor(1), [METHODS])
        certificate, key = signer.issue([name])
        credentials = grpc.ssl_server_credentials([(key, certificate)])
        port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(None).wait()


@pytest.fixture
def credentials(authority: CertificateAuthority) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(authority.certificate_pem)


def options_with(cache: object, name: str = NAME) -> Options:
    return (("grpc.ssl_target_name_override", name), ("grpc.ssl_session_cache", cache))


def ask(target: str, credentials: object, options: Options, stack: ModuleType = proxyless) -> bytes:
    """Whether the server resumed the session of a new blocking channel."""
    with stack.secure_channel(target, credentials, options) as channel:
        answer: bytes = channel.unary_unary(PATH)(b"", timeout=PATIENCE_S)
        return answer


async def ask_aio(
    target: str, credentials: object, options: Options, stack: ModuleType = proxyless.aio
) -> bytes:
    """The same of a channel for asyncio."""
    async with stack.secure_channel(target, credentials, options) as channel:
        answer: bytes = await channel.unary_unary(PATH)(b"", timeout=PATIENCE_S)
        return answer


EXPECTED: Final = [NEW, RESUMED, RESUMED, NEW, RESUMED, NEW]


def test_blocking_channels_resume_sessions_as_grpcios_do(
    start: Start, credentials: grpc.ChannelCredentials
) -> None:
    for stack in BLOCKING.values():
        one, other = start(), start()
        options = options_with(session_cache.ssl_session_cache_lru(1))
        # Sessions are kept by name, so those of the second server replace those of the first.
        targets = (one, one, one, other, other, one)
        assert [ask(each, credentials, options, stack) for each in targets] == EXPECTED


async def test_asyncio_channels_resume_sessions_as_grpcios_do(
    start: Start, credentials: grpc.ChannelCredentials
) -> None:
    for stack in ASYNCIO.values():
        one, other = start(), start()
        options = options_with(session_cache.ssl_session_cache_lru(1))
        targets = (one, one, one, other, other, one)
        assert [await ask_aio(each, credentials, options, stack) for each in targets] == EXPECTED


@pytest.mark.parametrize("stack", BLOCKING.values(), ids=BLOCKING)
def test_channels_without_a_cache_do_not_resume_sessions(
    start: Start, credentials: grpc.ChannelCredentials, stack: ModuleType
) -> None:
    target, options = start(), options_with(None)[:1]
    assert [ask(target, credentials, options, stack) for _ in range(3)] == [NEW] * 3


def test_blocking_and_asyncio_channels_share_a_cache(
    start: Start, credentials: grpc.ChannelCredentials
) -> None:
    target, options = start(), options_with(session_cache.ssl_session_cache_lru(1))
    assert ask(target, credentials, options) == NEW
    assert asyncio.run(ask_aio(target, credentials, options)) == RESUMED
    assert ask(target, credentials, options) == RESUMED


def test_session_is_not_resumed_with_other_credentials(
    start: Start, credentials: grpc.ChannelCredentials, authority: CertificateAuthority
) -> None:
    target, options = start(), options_with(session_cache.ssl_session_cache_lru(8))
    certificate, key = authority.issue(["client.test"], client=True)
    identified = grpc.ssl_channel_credentials(authority.certificate_pem, key, certificate)
    assert ask(target, credentials, options) == NEW
    assert ask(target, identified, options) == NEW


def test_session_of_one_name_does_not_vouch_for_another(
    start: Start, credentials: grpc.ChannelCredentials
) -> None:
    target, cache = start(), session_cache.ssl_session_cache_lru(8)
    assert ask(target, credentials, options_with(cache)) == NEW
    with pytest.raises(grpc.RpcError, match="certificate refused: Hostname mismatch") as caught:
        ask(target, credentials, options_with(cache, "other.test"))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_server_of_an_unknown_authority_is_refused_when_there_is_a_session_of_its_name(
    start: Start, credentials: grpc.ChannelCredentials
) -> None:
    good, bad = start(), start(CertificateAuthority("stranger"))
    options = options_with(session_cache.ssl_session_cache_lru(8))
    assert ask(good, credentials, options) == NEW
    with pytest.raises(grpc.RpcError, match="certificate refused") as caught:
        ask(bad, credentials, options)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_value_that_is_no_cache_is_refused(credentials: grpc.ChannelCredentials) -> None:
    wanted = r"wanted grpc\.experimental\.session_cache\.ssl_session_cache_lru\(\.\.\.\)"
    for make in (proxyless.secure_channel, proxyless.aio.secure_channel):
        with pytest.raises(TypeError, match=f"option 'grpc.ssl_session_cache' is 5, {wanted}"):
            make("localhost:1", credentials, options_with(5))
