"""Small things that applications see of a call or a channel, on our channels and on grpcio's.

Debug strings, metadata that cannot be sent, options that are not pairs, the user agent.
"""

import asyncio
from collections.abc import Callable

import grpc
import grpc.aio
import pytest

import proxyless
import proxyless.aio
from tests.generated_protos import Protos
from tests.interop.drop_in import (
    HANG,
    KINDS,
    Both,
    Stage,
    Untyped,
    collect,
    finish,
    on_proxyless,
    outcome_of,
    start,
)
from tests.interop.drop_in_sync import BothSync, SyncStage
from tests.worlds.transports import PATIENCE_S

# Keys and values that HTTP/2 or gRPC do not allow, and our error texts.
NOT_SENDABLE = [
    ((("Upper", "x"),), "metadata key 'Upper' is not valid"),
    ((("with space", "x"),), "metadata key 'with space' is not valid"),
    (((":path", "x"),), "metadata key ':path' is not valid"),
    ((("", "x"),), "metadata key '' is not valid"),
    ((("x-line", "a\nb"),), "metadata value of 'x-line' is not printable ASCII"),
    ((("x-accent", "é"),), "metadata value of 'x-accent' is not printable ASCII"),
]


@pytest.fixture
def both_sync(protos: Protos) -> BothSync:
    return BothSync(protos)


# Debug strings


class Answers(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Makes up the response."""

    async def intercept_unary_unary(
        self, go_on: Untyped, details: Untyped, request: Untyped
    ) -> Untyped:
        return request


class HandsOn(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Changes nothing."""

    async def intercept_unary_unary(
        self, go_on: Untyped, details: Untyped, request: Untyped
    ) -> Untyped:
        return await go_on(details, request)


@pytest.mark.parametrize("kind", KINDS)
async def test_debug_string_is_empty_when_rpc_ends_with_ok(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        call = start(stage, kind)
        await finish(kind, call)
        return await call.debug_error_string()

    assert await both(scenario) == ""


async def test_debug_string_is_none_when_call_was_cancelled(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = start(stage, "unary_unary")
        call.cancel()
        return await call.debug_error_string()

    assert await both(scenario) is None


async def test_debug_string_of_an_intercepted_call(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        strings = []
        for interceptor in (Answers(), HandsOn()):
            stub = stage.greeter_on(stage.open(interceptors=[interceptor]))
            call = stub.SayHello(stage.hello())
            await call
            strings.append(await call.debug_error_string())
        return strings

    assert await both(scenario) == [None, ""]


def test_debug_string_of_a_blocking_call_is_empty_when_rpc_ends_with_ok(
    both_sync: BothSync,
) -> None:
    def scenario(stage: SyncStage) -> object:
        _, call = stage.greeter.SayHello.with_call(stage.hello(), timeout=PATIENCE_S)
        future = stage.greeter.SayHello.future(stage.hello(), timeout=PATIENCE_S)
        future.result()
        stream = stage.guide.ListPlaces(stage.way(1), timeout=PATIENCE_S)
        list(stream)
        return [each.debug_error_string() for each in (call, future, stream)]

    assert both_sync(scenario) == ["", "", ""]


def test_debug_string_of_a_cancelled_blocking_call_returns(both_sync: BothSync) -> None:
    """grpcio waits for it and never returns."""

    def scenario(stage: SyncStage) -> object:
        calls = [
            stage.greeter.SayHello.future(stage.hello(), metadata=HANG),
            stage.guide.ListPlaces(stage.way(1), metadata=HANG),
        ]
        for call in calls:
            call.cancel()
        return [call.debug_error_string() for call in calls]

    assert both_sync.ours(scenario) == ["CANCELLED: Locally cancelled by application!"] * 2


# Metadata


async def failure_of(kind: str, begin: Callable[[], Untyped]) -> Untyped:
    """The step in which a call fails, its code, and the beginning of its details."""
    try:
        call = begin()
    except Exception as error:
        return "call", type(error).__name__
    _, code, details, *_ = await finish(kind, call)
    return "result", code, details.partition(":")[0]


@pytest.mark.parametrize(("pairs", "text"), NOT_SENDABLE)
@pytest.mark.parametrize("kind", KINDS)
async def test_rpc_fails_when_its_metadata_cannot_be_sent(
    both: Both, protos: Protos, kind: str, pairs: Untyped, text: str
) -> None:
    """grpcio's unary call raises an error of its C++ layer instead."""

    async def scenario(stage: Stage) -> object:
        return await failure_of(kind, lambda: start(stage, kind, metadata=pairs))

    async def details(stage: Stage) -> object:
        return await start(stage, kind, metadata=pairs).details()

    seen = await (on_proxyless(protos, scenario) if kind == "unary_unary" else both(scenario))
    assert seen == ("result", grpc.StatusCode.INTERNAL, "Invalid metadata")
    assert f"Invalid metadata: {text}" in await on_proxyless(protos, details)


@pytest.mark.parametrize("kind", ["stream_unary", "stream_stream"])
async def test_write_raises_when_metadata_cannot_be_sent(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        method = stage.guide.MeasureWay if kind == "stream_unary" else stage.guide.Chat
        call = method(metadata=(("Upper", "x"),))
        request = stage.point() if kind == "stream_unary" else stage.note("a")
        return (await outcome_of(call.write(request)))[:2]

    assert await both(scenario) == ("AioRpcError", grpc.StatusCode.INTERNAL)


FORMS: dict[str, Callable[[SyncStage, Untyped], Untyped]] = {
    "unary": lambda stage, pairs: stage.greeter.SayHello(stage.hello(), metadata=pairs),
    "unary with_call": lambda stage, pairs: stage.greeter.SayHello.with_call(
        stage.hello(), metadata=pairs
    ),
    "unary future": lambda stage, pairs: stage.greeter.SayHello.future(
        stage.hello(), metadata=pairs
    ),
    "unary stream": lambda stage, pairs: stage.guide.ListPlaces(stage.way(1), metadata=pairs),
    "stream": lambda stage, pairs: stage.guide.MeasureWay(stage.points(1), metadata=pairs),
    "stream with_call": lambda stage, pairs: stage.guide.MeasureWay.with_call(
        stage.points(1), metadata=pairs
    ),
    "stream future": lambda stage, pairs: stage.guide.MeasureWay.future(
        stage.points(1), metadata=pairs
    ),
    "stream stream": lambda stage, pairs: stage.guide.Chat(stage.notes("a"), metadata=pairs),
}


@pytest.mark.parametrize(("pairs", "text"), NOT_SENDABLE)
@pytest.mark.parametrize("form", FORMS)
def test_blocking_rpc_fails_when_its_metadata_cannot_be_sent(
    both_sync: BothSync, form: str, pairs: Untyped, text: str
) -> None:
    texts = []

    def scenario(stage: SyncStage) -> object:
        where = "call"
        try:
            call = FORMS[form](stage, pairs)
            where = "result"
            call.result() if "future" in form else list(call)
        except grpc.RpcError as error:
            texts.append(error.details())
            return where, error.code(), error.details().partition(":")[0]
        return where

    where = "result" if form.endswith(("future", "unary stream", "stream stream")) else "call"
    assert both_sync(scenario) == (where, grpc.StatusCode.INTERNAL, "Invalid metadata")
    assert any(f"Invalid metadata: {text}" in each for each in texts)


WRONG_TYPES = [(("a-bin", "text"),), (("a", 5),), ((5, "a"),)]


@pytest.mark.parametrize("pairs", WRONG_TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_blocking_call_raises_when_metadata_is_of_the_wrong_type(
    both_sync: BothSync, form: str, pairs: Untyped
) -> None:
    def scenario(stage: SyncStage) -> None:
        with pytest.raises(TypeError):
            FORMS[form](stage, pairs)

    both_sync(scenario)


@pytest.mark.parametrize("pairs", WRONG_TYPES)
@pytest.mark.parametrize("kind", KINDS)
async def test_stub_raises_when_metadata_is_of_the_wrong_type(
    protos: Protos, kind: str, pairs: Untyped
) -> None:
    """grpcio's call raises it when it is awaited, and its `write` never returns."""

    async def scenario(stage: Stage) -> None:
        with pytest.raises(TypeError, match=r"metadata (value of 'a|key 5)"):
            start(stage, kind, metadata=pairs)

    await on_proxyless(protos, scenario)


async def test_host_is_sent_as_metadata(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        metadata = (("host", "other.test"), ("te", "left out"))
        return sorted((await stage.greeter.Describe(stage.hello(), metadata=metadata)).keys)

    assert await both(scenario) == ["host", "user-agent"]


async def test_proxyless_omits_headers_that_http2_forbids(protos: Protos) -> None:
    """grpcio sends it; a server that follows RFC 9113 resets the stream."""

    async def scenario(stage: Stage) -> object:
        metadata = (("connection", "close"), ("upgrade", "h2c"), ("x-own", "1"))
        return sorted((await stage.greeter.Describe(stage.hello(), metadata=metadata)).keys)

    assert await on_proxyless(protos, scenario) == ["user-agent", "x-own"]


# Options

STACKS = [(grpc, proxyless), (grpc.aio, proxyless.aio)]


def error_of(stack: Untyped, options: Untyped) -> str:
    """The type of the error with which options are refused; of none, none."""
    try:
        stack.insecure_channel("127.0.0.1:1", options=options)
    except Exception as error:
        return type(error).__name__
    return ""


@pytest.mark.parametrize("stacks", STACKS, ids=["blocking", "asyncio"])
async def test_malformed_options_are_refused_with_grpcios_exceptions(
    stacks: tuple[Untyped, Untyped],
) -> None:
    cases: dict[str, tuple[Untyped, str]] = {
        "a mapping": ({"foo": "bar"}, "ValueError"),
        "a name alone": ((("key",),), "ValueError"),
        "three values": ((("key", 1, 2),), "ValueError"),
        "a string": ("str", "ValueError"),
        "no sequence": (5, "TypeError"),
        "a number for a name": (((5, 1),), "TypeError"),
        "bytes for a name": (((b"some.option", 1),), ""),
    }
    for case, (options, error) in cases.items():
        assert [error_of(stack, options) for stack in stacks] == [error, error], case


async def test_option_counts_when_its_name_is_bytes(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.open(options=[(b"grpc.max_send_message_length", 1)])
        return (await outcome_of(stage.greeter_on(channel).SayHello(stage.hello())))[1]

    assert await both(scenario) is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_user_agent_has_all_parts_of_the_application_in_their_order(both: Both) -> None:
    options = [
        ("grpc.secondary_user_agent", "s/1"),
        ("grpc.primary_user_agent", "p/1"),
        ("grpc.primary_user_agent", "p/2"),
        ("grpc.secondary_user_agent", "s/2"),
    ]

    async def scenario(stage: Stage) -> object:
        channel = stage.open(options=options)
        user_agent = (await stage.greeter_on(channel).Describe(stage.hello())).user_agent
        before, _, after = user_agent.partition("grpc-python-")
        return before, " ".join(after.split(" ")[-2:])

    assert await both(scenario) == ("p/1 p/2 ", "s/1 s/2")


async def test_user_agent_names_this_package(protos: Protos) -> None:
    async def scenario(stage: Stage) -> object:
        return (await stage.greeter.Describe(stage.hello())).user_agent

    expected = f"grpc-python-proxyless/{proxyless.__version__}"
    assert await on_proxyless(protos, scenario) == expected


# The loop


def loop_of(channel: Untyped) -> Untyped:
    return channel._loop  # noqa: SLF001 - grpcio's name, which applications read


async def test_channel_has_its_loop(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        before = loop_of(stage.channel) is asyncio.get_running_loop()
        await collect(stage.guide.ListPlaces(stage.way(1)))
        return before, loop_of(stage.channel) is asyncio.get_running_loop()

    assert await both(scenario) == (True, True)


def test_channel_has_a_loop_attribute_before_there_is_a_loop() -> None:
    """grpcio makes a loop then; ours belongs to the loop of its first use."""
    assert loop_of(proxyless.aio.insecure_channel("127.0.0.1:1")) is None
