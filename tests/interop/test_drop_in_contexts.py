"""Context variables in request iterators, callbacks and plugins, on our channels and on grpcio's.

A plugin of call credentials runs in a thread of its own. Tracers and request-scoped settings reach
it as context variables: those of the context in which the credentials were made, as with grpcio,
and over them those of the call.
"""

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from threading import Event, Thread

import grpc
import pytest

from tests.certificates import CertificateAuthority
from tests.generated_protos import Protos
from tests.interop.drop_in import (
    KINDS,
    Both,
    Stage,
    Untyped,
    finish,
    hand_on,
    interceptors,
    on_proxyless,
    start,
)
from tests.interop.drop_in_sync import BothSync, SyncStage
from tests.worlds.transports import PATIENCE_S, until

NAME = [("grpc.ssl_target_name_override", "api.test")]
TENANT: ContextVar[str] = ContextVar("TENANT", default="none")
SPAN: ContextVar[str] = ContextVar("SPAN", default="none")


class Recorder(grpc.AuthMetadataPlugin):  # type: ignore[misc]
    """Records the context variables, and answers in a thread without them."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def __call__(self, context: Untyped, callback: Untyped) -> None:
        self.seen.append((TENANT.get(), SPAN.get()))
        Thread(target=callback, args=((), None)).start()


def in_new_context(function: Callable[[], Untyped], **variables: str) -> Untyped:
    """The result of a function in a context of its own, with these variables."""

    def run() -> Untyped:
        for variable in (TENANT, SPAN):
            if variable.name in variables:
                variable.set(variables[variable.name])
        return function()

    return copy_context().run(run)


def make(plugin: Recorder, **variables: str) -> Untyped:
    """Call credentials, made in a context with these variables."""
    return in_new_context(lambda: grpc.metadata_call_credentials(plugin), **variables)


@pytest.fixture(scope="session")
def server_credentials(authority: CertificateAuthority) -> Untyped:
    certificate, key = authority.issue(["api.test", "localhost"])
    return grpc.ssl_server_credentials([(key, certificate)])


@pytest.fixture
def roots(authority: CertificateAuthority) -> Untyped:
    return grpc.ssl_channel_credentials(authority.certificate_pem)


@pytest.fixture
def both_sync(protos: Protos) -> BothSync:
    return BothSync(protos)


def compose(roots: Untyped, *credentials: Untyped) -> Untyped:
    return grpc.composite_channel_credentials(roots, *credentials)


# asyncio


async def call(stage: Stage, channel_credentials: Untyped, **variables: str) -> None:
    """Make an RPC in a context with these variables."""
    channel = stage.open_secure(channel_credentials, options=NAME)
    stub = stage.greeter_on(channel)
    await in_new_context(lambda: stub.SayHello(stage.hello()), **variables)


async def test_plugin_runs_in_the_context_of_its_credentials(
    both: Both, server_credentials: Untyped, roots: Untyped
) -> None:
    async def scenario(stage: Stage) -> object:
        plugin = Recorder()
        await call(stage, compose(roots, make(plugin, TENANT="made")))
        return plugin.seen

    assert await both(scenario, credentials=server_credentials) == [("made", "none")]


async def test_plugin_runs_in_the_context_of_the_call(
    protos: Protos, server_credentials: Untyped, roots: Untyped
) -> None:
    """With grpcio it runs in the context in which it was made."""

    async def scenario(stage: Stage) -> object:
        first, second = Recorder(), Recorder()
        made = [make(first, TENANT="made", SPAN="made"), make(second, TENANT="made")]
        await call(stage, compose(roots, *made), SPAN="called")
        return first.seen, second.seen

    seen = await on_proxyless(protos, scenario, credentials=server_credentials)
    assert seen == ([("made", "called")], [("made", "called")])


async def test_plugin_does_not_change_the_context_of_the_call(
    protos: Protos, server_credentials: Untyped, roots: Untyped
) -> None:
    class Setter(Recorder):
        def __call__(self, context: Untyped, callback: Untyped) -> None:
            super().__call__(context, callback)
            SPAN.set("plugin's")

    async def scenario(stage: Stage) -> object:
        first, second = Setter(), Recorder()
        credentials = compose(roots, make(first), make(second))
        await call(stage, credentials, SPAN="called")
        return first.seen, second.seen, SPAN.get()

    seen = await on_proxyless(protos, scenario, credentials=server_credentials)
    assert seen == ([("none", "called")], [("none", "called")], "none")


@pytest.mark.parametrize("is_intercepted", [False, True], ids=["plain", "intercepted"])
@pytest.mark.parametrize("kind", KINDS)
async def test_done_callback_runs_in_the_context_of_the_call(
    both: Both, kind: str, is_intercepted: bool
) -> None:
    async def scenario(stage: Stage) -> object:
        used = interceptors(hand_on) if is_intercepted else []
        channel = stage.open(interceptors=used)
        # Makes the connection, in another context.
        await stage.greeter_on(channel).SayHello(stage.hello())
        seen: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def begin() -> Untyped:
            call = start(stage, kind, channel)
            call.add_done_callback(lambda _: seen.set_result(SPAN.get()))
            return call

        await finish(kind, in_new_context(begin, SPAN="called"))
        return await seen

    assert await both(scenario) == "called"


async def test_done_callback_runs_in_the_context_in_which_it_was_added(protos: Protos) -> None:
    """With grpcio it runs in that of the code which started the call."""

    async def scenario(stage: Stage) -> object:
        seen: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        call = in_new_context(lambda: stage.greeter.SayHello(stage.hello()), SPAN="called")
        in_new_context(
            lambda: call.add_done_callback(lambda _: seen.set_result(SPAN.get())), SPAN="added"
        )
        await call
        return await seen

    assert await on_proxyless(protos, scenario) == "added"


class RequestState:
    """Object that an application has for each of its requests."""


STATE: ContextVar[RequestState | None] = ContextVar("STATE", default=None)


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("timeout_s", [None, 100 * PATIENCE_S], ids=["no-timeout", "timeout"])
async def test_context_of_a_request_is_freed_while_its_connection_stays_open(
    both: Both, server_credentials: Untyped, roots: Untyped, has_tls: bool, timeout_s: float | None
) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.open_secure(roots, options=NAME) if has_tls else stage.open()
        greeter = stage.greeter_on(channel)
        states: list[weakref.ref[RequestState]] = []

        async def handle_request() -> None:
            state = RequestState()
            states.append(weakref.ref(state))
            STATE.set(state)
            # The first RPC makes the connection.
            await greeter.SayHello(stage.hello(), timeout=timeout_s)

        await asyncio.create_task(handle_request())
        await until(lambda: gc.collect() >= 0 and states[0]() is None, "the end of the context")
        return str(channel.get_state())

    await both(scenario, credentials=server_credentials if has_tls else None)


# Blocking


def call_sync(stage: SyncStage, channel_credentials: Untyped, **variables: str) -> None:
    """Make an RPC in a context with these variables."""
    channel = stage.open_secure(channel_credentials, options=NAME)
    stub = stage.greeter_on(channel)
    in_new_context(lambda: stub.SayHello(stage.hello(), timeout=PATIENCE_S), **variables)


def test_plugin_of_a_blocking_call_runs_in_the_context_of_its_credentials(
    both_sync: BothSync, server_credentials: Untyped, roots: Untyped
) -> None:
    def scenario(stage: SyncStage) -> object:
        plugin = Recorder()
        call_sync(stage, compose(roots, make(plugin, TENANT="made")))
        return plugin.seen

    assert both_sync(scenario, credentials=server_credentials) == [("made", "none")]


def test_plugin_of_a_blocking_call_runs_in_the_context_of_the_call(
    both_sync: BothSync, server_credentials: Untyped, roots: Untyped
) -> None:
    def scenario(stage: SyncStage) -> object:
        first, second = Recorder(), Recorder()
        made = [make(first, TENANT="made", SPAN="made"), make(second, TENANT="made")]
        call_sync(stage, compose(roots, *made), SPAN="called")
        return first.seen, second.seen

    seen = both_sync.ours(scenario, credentials=server_credentials)
    assert seen == ([("made", "called")], [("made", "called")])


def test_plugins_of_many_threads_run_in_the_context_of_their_call(
    both_sync: BothSync, server_credentials: Untyped, roots: Untyped
) -> None:
    def scenario(stage: SyncStage) -> object:
        plugin = Recorder()
        stub = stage.greeter_on(stage.open_secure(compose(roots, make(plugin)), options=NAME))

        def run(number: int) -> None:
            SPAN.set(f"span {number}")
            stub.SayHello(stage.hello(), timeout=PATIENCE_S)

        threads = [Thread(target=run, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(plugin.seen)

    seen = both_sync.ours(scenario, credentials=server_credentials)
    assert seen == [("none", f"span {number}") for number in range(8)]


def test_request_iterator_and_callbacks_run_in_the_context_of_the_call(
    both_sync: BothSync,
) -> None:
    def scenario(stage: SyncStage) -> object:
        seen: dict[str, str] = {}
        ended, ready = Event(), Event()
        guide = stage.guide_on(stage.channel)

        def requests() -> Iterator[Untyped]:
            seen["iterator"] = SPAN.get()
            yield from stage.points(1)
            # The callbacks are added before the RPC can end.
            assert added.wait(PATIENCE_S)

        def on_done(_call: Untyped) -> None:
            seen["done callback"] = SPAN.get()
            ended.set()

        def on_state(state: grpc.ChannelConnectivity) -> None:
            seen["state callback"] = SPAN.get()
            if state is grpc.ChannelConnectivity.READY:
                ready.set()

        added = Event()

        def run() -> None:
            stage.channel.subscribe(on_state)
            call = guide.MeasureWay.future(requests(), timeout=PATIENCE_S)
            call.add_callback(lambda: seen.update(callback=SPAN.get()))
            call.add_done_callback(on_done)
            added.set()
            call.result()

        in_new_context(run, SPAN="called")
        assert ended.wait(PATIENCE_S)
        assert ready.wait(PATIENCE_S)
        return seen

    names = ("iterator", "done callback", "state callback", "callback")
    assert both_sync(scenario) == dict.fromkeys(names, "called")
