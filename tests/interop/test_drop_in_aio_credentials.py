"""grpcio's credentials on our asyncio channel and on grpcio's."""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from threading import Thread

import grpc
import grpc.aio
import grpc.experimental
import pytest

import proxyless
from proxyless.channel.pool import CLOSE_TIMEOUT_S
from proxyless.front import (
    composite_channel_credentials,
    local_channel_credentials,
    ssl_channel_credentials,
)
from tests.certificates import CertificateAuthority
from tests.generated_protos import Protos
from tests.interop.drop_in import (
    HANG,
    Both,
    Stage,
    Untyped,
    describe,
    on_proxyless,
    outcome_of,
    run_scenario,
)

NAME = [("grpc.ssl_target_name_override", "api.test")]
TOKEN = (("x-token", "secret"), ("x-blob-bin", b"\0\xff"))


class Plugin(grpc.AuthMetadataPlugin):  # type: ignore[misc]
    """A plugin that calls a function with the callback, and records the contexts."""

    def __init__(self, answer: Callable[[Untyped], None]) -> None:
        self._answer = answer
        self.requests: list[tuple[str, str]] = []

    def __call__(self, context: Untyped, callback: Untyped) -> None:
        self.requests.append((context.service_url, context.method_name))
        self._answer(callback)


def give_token(callback: Untyped) -> None:
    callback(TOKEN, None)


def give_token_in_a_thread(callback: Untyped) -> None:
    Thread(target=callback, args=(TOKEN, None)).start()


def call_credentials(answer: Callable[[Untyped], None] = give_token) -> Untyped:
    return grpc.metadata_call_credentials(Plugin(answer))


@pytest.fixture(scope="session")
def server_credentials(authority: CertificateAuthority) -> Untyped:
    certificate, key = authority.issue(["api.test", "localhost"])
    return grpc.ssl_server_credentials([(key, certificate)])


@pytest.fixture
def roots(authority: CertificateAuthority) -> Untyped:
    return grpc.ssl_channel_credentials(authority.certificate_pem)


# TLS


async def test_a_call_over_tls(both: Both, server_credentials: Untyped, roots: Untyped) -> None:
    async def scenario(stage: Stage) -> object:
        by_name = stage.open_secure(roots, options=NAME)
        by_target = stage.open_secure(roots, target=stage.server.target_by_name)
        return [
            await outcome_of(stage.greeter_on(each).SayHello(stage.hello()))
            for each in (by_name, by_target)
        ]

    assert [name for name, _ in await both(scenario, credentials=server_credentials)] == [
        "returned",
        "returned",
    ]


async def test_a_server_that_cannot_be_trusted(
    both: Both, server_credentials: Untyped, roots: Untyped
) -> None:
    others = grpc.ssl_channel_credentials(CertificateAuthority().certificate_pem)

    async def scenario(stage: Stage) -> object:
        channels = (
            stage.open_secure(others, options=NAME),
            stage.open_secure(roots, options=[("grpc.ssl_target_name_override", "other.test")]),
            stage.open(),
        )
        return [
            (await outcome_of(stage.greeter_on(each).SayHello(stage.hello())))[:2]
            for each in channels
        ]

    outcomes = await both(scenario, credentials=server_credentials)
    assert set(outcomes) == {("AioRpcError", grpc.StatusCode.UNAVAILABLE)}


async def test_a_client_shows_its_certificate(both: Both, authority: CertificateAuthority) -> None:
    certificate, key = authority.issue(["api.test"])
    server = grpc.ssl_server_credentials(
        [(key, certificate)], authority.certificate_pem, require_client_auth=True
    )
    identity, identity_key = authority.issue(["client.test"], client=True)

    async def scenario(stage: Stage) -> object:
        known = grpc.ssl_channel_credentials(authority.certificate_pem, identity_key, identity)
        unknown = grpc.ssl_channel_credentials(authority.certificate_pem)
        return [
            (await outcome_of(stage.greeter_on(channel).SayHello(stage.hello())))[:2]
            for channel in (
                stage.open_secure(known, options=NAME),
                stage.open_secure(unknown, options=NAME),
            )
        ]

    good, bad = await both(scenario, credentials=server)
    assert good[0] == "returned"
    assert bad == ("AioRpcError", grpc.StatusCode.UNAVAILABLE)


async def test_insecure_credentials_are_accepted(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.open_secure(grpc.experimental.insecure_channel_credentials())
        return await outcome_of(stage.greeter_on(channel).SayHello(stage.hello()))

    assert (await both(scenario))[0] == "returned"


async def test_local_credentials_send_call_credentials(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.open_secure(grpc.local_channel_credentials())
        call = stage.greeter_on(channel).SayHello(stage.hello(), credentials=call_credentials())
        return await outcome_of(call), await describe(call)

    outcome, described = await both(scenario, credentials=grpc.local_server_credentials())
    assert outcome[0] == "returned"
    assert len(described["initial"]) == 2


# Call credentials


@pytest.mark.parametrize("answer", [give_token, give_token_in_a_thread])
async def test_plugin_adds_metadata(
    both: Both, server_credentials: Untyped, roots: Untyped, answer: Callable[[Untyped], None]
) -> None:
    async def scenario(stage: Stage) -> object:
        plugin = Plugin(answer)
        credentials = grpc.metadata_call_credentials(plugin)
        own = stage.open_secure(roots, options=NAME)
        composite = grpc.composite_channel_credentials(roots, credentials)
        shared = stage.open_secure(composite, options=NAME)
        calls = [
            stage.greeter_on(own).SayHello(stage.hello(), credentials=credentials),
            stage.greeter_on(shared).SayHello(stage.hello(), metadata=[("x-own", "1")]),
            stage.guide_on(shared).FindPlace(stage.point(), credentials=credentials),
        ]
        for call in calls:
            await call
        return [(await describe(call))["initial"] for call in calls], sorted(plugin.requests)

    initial, requests = await both(scenario, credentials=server_credentials)
    assert [len(each) for each in initial] == [2, 3, 4]
    assert requests[0] == ("https://api.test/proxyless.test.helloworld.Greeter", "SayHello")


async def test_the_service_url_has_the_port(
    both: Both, server_credentials: Untyped, roots: Untyped
) -> None:
    async def scenario(stage: Stage) -> object:
        plugin = Plugin(give_token)
        target = stage.server.target_by_name
        channel = stage.open_secure(roots, target=target)
        credentials = grpc.metadata_call_credentials(plugin)
        await stage.greeter_on(channel).SayHello(stage.hello(), credentials=credentials)
        [(url, method)] = plugin.requests
        return url.replace(target, "TARGET"), method

    url, _ = await both(scenario, credentials=server_credentials)
    assert url == "https://TARGET/proxyless.test.helloworld.Greeter"


async def test_call_credentials_are_composed(
    both: Both, server_credentials: Untyped, roots: Untyped
) -> None:
    async def scenario(stage: Stage) -> object:
        composed = grpc.composite_call_credentials(
            call_credentials(), grpc.access_token_call_credentials("abc")
        )
        greeter = stage.greeter_on(stage.open_secure(roots, options=NAME))
        return sorted((await greeter.Describe(stage.hello(), credentials=composed)).keys)

    keys = await both(scenario, credentials=server_credentials)
    assert keys == ["authorization", "user-agent", "x-blob-bin", "x-token"]


def answers() -> Iterator[Callable[[Untyped], None]]:
    def fail(callback: Untyped) -> None:
        callback(None, ValueError("no token"))

    def break_down(_callback: Untyped) -> None:
        raise ValueError("no plugin")

    yield fail
    yield break_down


@pytest.mark.parametrize("answer", list(answers()))
async def test_error_of_a_plugin_is_in_the_log_and_not_in_details(
    protos: Protos,
    server_credentials: Untyped,
    roots: Untyped,
    answer: Callable[[Untyped], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """grpcio puts the text, which may have secrets in it, into the details of the RPC."""

    async def scenario(stage: Stage) -> Untyped:
        greeter = stage.greeter_on(stage.open_secure(roots, options=NAME))
        call = greeter.SayHello(stage.hello(), credentials=call_credentials(answer))
        return await outcome_of(call), await describe(call)

    failed = "Getting metadata from plugin failed with error: "
    (_, code, details, *_), _ = await run_scenario(
        scenario, grpc.aio, protos, credentials=server_credentials
    )
    assert code is grpc.StatusCode.UNAVAILABLE
    assert details.startswith(f"{failed}no ")
    with caplog.at_level(logging.DEBUG, "proxyless.channel"):
        (_, code, details, *_), described = await run_scenario(
            scenario, proxyless.aio, protos, credentials=server_credentials
        )
    assert code is grpc.StatusCode.UNAVAILABLE
    assert details == f"{failed}its text is logged by proxyless.channel at DEBUG"
    assert "no token" not in repr(described)
    assert "no plugin" not in repr(described)
    assert any(
        record.getMessage() in ("call credentials: no token", "call credentials: no plugin")
        for record in caplog.records
    )


async def test_plugin_adds_no_metadata(
    both: Both, server_credentials: Untyped, roots: Untyped
) -> None:
    async def scenario(stage: Stage) -> object:
        greeter = stage.greeter_on(stage.open_secure(roots, options=NAME))
        credentials = call_credentials(lambda callback: callback(None, None))
        return await outcome_of(greeter.SayHello(stage.hello(), credentials=credentials))

    assert (await both(scenario, credentials=server_credentials))[0] == "returned"


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
async def test_call_ends_at_its_deadline_when_a_plugin_never_answers(
    both: Both, server_credentials: Untyped, roots: Untyped
) -> None:
    async def scenario(stage: Stage) -> object:
        greeter = stage.greeter_on(stage.open_secure(roots, options=NAME))
        silent = call_credentials(lambda _: None)
        impatient = greeter.SayHello(stage.hello(), credentials=silent, timeout=0.1)
        cancelled = greeter.SayHello(stage.hello(), credentials=silent)
        await asyncio.sleep(0.01)
        cancelled.cancel()
        return await outcome_of(impatient), await outcome_of(cancelled)

    impatient, cancelled = await both(scenario, credentials=server_credentials)
    assert impatient[1] is grpc.StatusCode.DEADLINE_EXCEEDED
    assert cancelled == ("CancelledError",)


async def test_secrets_need_encryption(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        async def call() -> Untyped:
            return await stage.greeter.SayHello(stage.hello(), credentials=call_credentials())

        return await outcome_of(call())

    text = "Call credentials are only valid on secure channels"
    assert await both(scenario) == ("UsageError", text)


# Ours only


async def test_close_does_not_wait_for_the_servers_close_notify(
    protos: Protos, server_credentials: Untyped, roots: Untyped
) -> None:
    """grpcio's server sends no close_notify before the socket is closed."""

    async def scenario(stage: Stage) -> None:
        channel = stage.open_secure(roots, options=NAME)
        await stage.greeter_on(channel).SayHello(stage.hello())
        async with asyncio.timeout(CLOSE_TIMEOUT_S * 0.9):
            await channel.close()

    await on_proxyless(protos, scenario, credentials=server_credentials)


async def test_proxyless_accepts_its_own_credentials(
    protos: Protos, server_credentials: Untyped, authority: CertificateAuthority
) -> None:
    async def find_token(service_url: str, path: str) -> tuple[tuple[str, str], ...]:
        await asyncio.sleep(0)
        return (("x-requests", f"{service_url} {path}"),)

    async def scenario(stage: Stage) -> object:
        own = ssl_channel_credentials(authority.certificate_pem)
        greeter = stage.greeter_on(stage.open_secure(own, options=NAME))
        call = greeter.SayHello(stage.hello(), credentials=find_token)
        await call
        return (await call.initial_metadata())["x-requests"]

    assert await on_proxyless(protos, scenario, credentials=server_credentials) == (
        "https://api.test/proxyless.test.helloworld.Greeter"
        " /proxyless.test.helloworld.Greeter/SayHello"
    )


@pytest.mark.parametrize("how", ["cancel", "close", "drop"])
async def test_call_credentials_of_proxyless_are_cancelled_with_their_rpc(
    protos: Protos, how: str
) -> None:
    async def scenario(stage: Stage) -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        async def slow(_service_url: str, _path: str) -> tuple[tuple[str, str], ...]:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError("it is cancelled before")

        own = composite_channel_credentials(local_channel_credentials(), slow)
        channel = stage.open_secure(own)
        call = stage.guide_on(channel).ListPlaces(stage.way(1))
        await began.wait()
        if how == "cancel":
            call.cancel()
        elif how == "close":
            await channel.close()
        del call
        gc.collect()
        await ended.wait()

    await on_proxyless(protos, scenario, credentials=grpc.local_server_credentials())


async def test_proxyless_names_the_invalid_metadata_of_a_plugin(
    protos: Protos, server_credentials: Untyped, roots: Untyped
) -> None:
    """The details of grpcio are "Illegal metadata"."""

    async def scenario(stage: Stage) -> object:
        greeter = stage.greeter_on(stage.open_secure(roots, options=NAME))
        credentials = call_credentials(lambda callback: callback((("Bad Key", "x"),), None))
        call = greeter.SayHello(stage.hello(), credentials=credentials, metadata=HANG)
        return await outcome_of(call)

    _, code, details, *_ = await on_proxyless(protos, scenario, credentials=server_credentials)
    assert code is grpc.StatusCode.UNAVAILABLE
    assert "metadata key 'Bad Key' is not valid" in details
