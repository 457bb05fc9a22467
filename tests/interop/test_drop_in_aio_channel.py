"""Our asyncio channel and grpcio's: options, states, closing."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence

import grpc
import grpc.aio
import pytest

import proxyless.aio
from proxyless.assembly import stack_of_running_loop
from proxyless.base import IpAddress
from proxyless.transport import Server, ServerCall
from tests.generated_protos import Protos
from tests.interop.drop_in import (
    ABORT,
    HANG,
    KINDS,
    METHODS,
    STACKS,
    Both,
    Stage,
    Untyped,
    collect,
    describe,
    finish,
    on_proxyless,
    outcome_of,
    start,
)
from tests.worlds.transports import PATIENCE_S, until

IDLE, READY = grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.READY
SHUTDOWN = grpc.ChannelConnectivity.SHUTDOWN


async def call_of(make: Callable[[], Awaitable[object]]) -> object:
    """The result of a call that may fail when it is made, or when it is awaited."""

    async def run() -> object:
        return await make()

    return await outcome_of(run())


# Classes and attributes


async def test_private_channel_has_state_and_whether_it_is_closed(both: Both) -> None:
    """Some applications read them."""

    async def scenario(stage: Stage) -> object:
        channel = stage.open()
        private = channel._channel  # noqa: SLF001
        await channel.channel_ready()
        before = private.check_connectivity_state(True), private.closed()
        await channel.close()
        return before, private.closed()

    assert await both(scenario) == ((READY.value[0], False), True)


async def test_a_channel_has_grpcios_classes(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.channel
        callables = [getattr(channel, kind)("/a/b") for kind in KINDS]
        calls = [start(stage, kind) for kind in KINDS]
        for kind, call in zip(KINDS, calls, strict=True):
            await finish(kind, call)
        bases = (
            (grpc.aio.UnaryUnaryMultiCallable, grpc.aio.UnaryUnaryCall),
            (grpc.aio.UnaryStreamMultiCallable, grpc.aio.UnaryStreamCall),
            (grpc.aio.StreamUnaryMultiCallable, grpc.aio.StreamUnaryCall),
            (grpc.aio.StreamStreamMultiCallable, grpc.aio.StreamStreamCall),
        )
        return isinstance(channel, grpc.aio.Channel), [
            (isinstance(each, multi_callable), isinstance(call, kind))
            for each, call, (multi_callable, kind) in zip(callables, calls, bases, strict=True)
        ]

    assert await both(scenario) == (True, [(True, True)] * 4)


async def test_a_channel_is_a_context(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        async with stage.aio.insecure_channel(stage.server.target) as channel:
            reply = await stage.greeter_on(channel).SayHello(stage.hello())
            state = channel.get_state()
        return reply, state, channel.get_state()

    assert (await both(scenario))[1:] == (READY, SHUTDOWN)


# Connectivity


async def test_channel_connects_when_try_to_connect_is_set(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.open()
        states = [channel.get_state(), channel.get_state(), channel.get_state(try_to_connect=True)]
        await channel.channel_ready()
        return states, channel.get_state()

    assert await both(scenario) == ([IDLE, IDLE, IDLE], READY)


async def test_a_state_that_is_not_the_current_one_has_changed(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.open()
        await channel.wait_for_state_change(READY)
        return channel.get_state()

    assert await both(scenario) is IDLE


async def test_states_follow_each_other(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.open()
        seen = [channel.get_state(try_to_connect=True)]
        while seen[-1] is not READY:
            await channel.wait_for_state_change(seen[-1])
            seen.append(channel.get_state())
        await stage.server.stop()
        await channel.wait_for_state_change(READY)
        seen.append(channel.get_state())
        # The first connection may be made between two looks.
        return [state for state in seen if state is not grpc.ChannelConnectivity.CONNECTING]

    assert await both(scenario) == [IDLE, READY, IDLE]


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
async def test_all_waiters_are_woken_when_the_channel_is_closed(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.open()
        await channel.channel_ready()
        waiting = [
            asyncio.create_task(outcome_of(channel.wait_for_state_change(READY))) for _ in range(3)
        ]
        await asyncio.sleep(0.02)
        await channel.close()
        return await asyncio.gather(*waiting), channel.get_state()

    assert await both(scenario) == ([("returned", None)] * 3, SHUTDOWN)


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
async def test_waiting_for_a_connection_can_be_cancelled(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        await stage.server.stop()
        channel = stage.open()
        outcomes = [await outcome_of(asyncio.wait_for(channel.channel_ready(), 0.05))]
        waiting = asyncio.create_task(outcome_of(channel.channel_ready()))
        await asyncio.sleep(0.01)
        waiting.cancel()
        return [*outcomes, await waiting]

    assert [name for name, *_ in await both(scenario)] == ["TimeoutError", "CancelledError"]


# Ends


async def test_closing_cancels_the_calls_under_way(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        calls = {kind: start(stage, kind, metadata=HANG) for kind in KINDS}
        for kind in KINDS:
            await stage.until_event(f"{METHODS[kind]} started")
        await stage.channel.close()
        outcomes = [await finish(kind, call) for kind, call in calls.items()]
        for kind in KINDS:
            await stage.until_event(f"{METHODS[kind]} cancelled")
        return outcomes, [await describe(call) for call in calls.values()]

    outcomes, described = await both(scenario)
    assert outcomes == [("CancelledError",)] * 4
    assert {each["code"] for each in described} == {grpc.StatusCode.CANCELLED}


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
async def test_close_waits_for_calls_during_the_grace_period(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        slow = start(stage, "unary_unary", metadata=HANG)
        await stage.until_event("FindPlace started")
        closing = asyncio.create_task(stage.channel.close(grace=0.4))
        await asyncio.sleep(0.02)
        states = slow.done(), closing.done()
        refused = await call_of(lambda: start(stage, "unary_unary"))
        await closing
        return states, refused, await outcome_of(slow), stage.channel.get_state()

    states, refused, slow, _ = await both(scenario)
    assert states == (False, False)
    assert refused == ("UsageError", "Channel is closed.")
    assert slow == ("CancelledError",)


async def test_channel_has_the_state_of_its_connections_while_calls_drain(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.channel
        call = stage.guide.Chat()
        await call.write(stage.note("a"))
        await call.read()
        closing = asyncio.create_task(channel.close(grace=PATIENCE_S))
        await asyncio.sleep(0)
        states = [channel.get_state(), channel.get_state(try_to_connect=True)]
        outcomes = [
            await outcome_of(channel.channel_ready()),
            await outcome_of(channel.wait_for_state_change(READY)),
        ]
        await call.done_writing()
        end = await outcome_of(call.read())
        await closing
        return states, outcomes, end, channel.get_state()

    states, outcomes, end, after = await both(scenario)
    assert states == [READY, READY]
    assert outcomes == [("returned", None), ("UsageError", "Channel is closed.")]
    assert (end, after) == (("returned", grpc.aio.EOF), SHUTDOWN)


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
async def test_closing_waits_no_longer_than_for_the_last_call(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.Chat()
        await call.write(stage.note("a"))
        await call.read()
        closing = asyncio.create_task(stage.channel.close(grace=PATIENCE_S))
        await asyncio.sleep(0.02)
        await call.done_writing()
        end = await outcome_of(call.read())
        await asyncio.wait_for(closing, PATIENCE_S / 2)
        return end, await describe(call)

    assert (await both(scenario))[0] == ("returned", grpc.aio.EOF)


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
@pytest.mark.parametrize("is_answered_before", [False, True])
async def test_close_waits_for_readers_of_the_last_responses(
    both: Both, is_answered_before: bool
) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.Chat()
        await call.write(stage.note("a"))
        await call.write(stage.note("b"))
        if is_answered_before:
            await call.done_writing()
            await stage.until_event("Chat finished")
            await stage.greeter.SayHello(stage.hello())
        closing = asyncio.create_task(stage.channel.close(grace=PATIENCE_S))
        await asyncio.sleep(0.02)
        if not is_answered_before:
            await call.done_writing()
            await stage.until_event("Chat finished")
            await asyncio.sleep(0.02)
        was_closed = closing.done()
        notes = [note.text for note in await collect(call)]
        await asyncio.wait_for(closing, PATIENCE_S / 2)
        return was_closed, notes, await call.code()

    assert await both(scenario) == (False, ["a", "b"], grpc.StatusCode.OK)


async def test_closing_waits_no_longer_than_its_grace_for_a_reader(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.ListPlaces(stage.way(3))
        await stage.until_event("ListPlaces finished")
        await stage.greeter.SayHello(stage.hello())
        called: list[object] = []
        call.add_done_callback(called.append)
        await stage.channel.close(grace=0.05)
        await until(lambda: called, "the callback")
        return await describe(call)

    assert (await both(scenario))["code"] is grpc.StatusCode.CANCELLED


@pytest.mark.parametrize("kind", KINDS)
async def test_closed_channel_rejects_calls(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        await stage.channel.close()
        await stage.channel.close()
        refused = await call_of(lambda: start(stage, kind))
        return refused, stage.channel.get_state(), stage.channel.get_state(try_to_connect=True)

    assert await both(scenario) == (("UsageError", "Channel is closed."), SHUTDOWN, SHUTDOWN)


async def test_a_negative_grace_is_refused(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        await stage.channel.channel_ready()
        name, _ = await outcome_of(stage.channel.close(grace=-1))
        return name, await call_of(lambda: start(stage, "unary_unary"))

    assert (await both(scenario))[0] == "ValueError"


async def test_a_dropped_channel_lets_its_call_finish(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.aio.insecure_channel(stage.server.target)
        call = stage.greeter_on(channel).SayHello(stage.hello())
        del channel
        gc.collect()
        return await outcome_of(call)

    assert (await both(scenario))[0] == "returned"


# Options


@pytest.mark.parametrize("per_channel", list(grpc.Compression))
@pytest.mark.parametrize("per_call", [None, *grpc.Compression])
async def test_messages_are_compressed(
    both: Both, per_channel: grpc.Compression, per_call: grpc.Compression | None
) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.open(compression=per_channel)
        request = stage.hello(padding=bytes(5000), reply_padding_bytes=3000)
        call = stage.greeter_on(channel).SayHello(request, compression=per_call)
        outcomes = [
            await finish(each, start(stage, each, channel, compression=per_call)) for each in KINDS
        ]
        return len((await call).padding), await describe(call), outcomes

    assert (await both(scenario))[0] == 3000


async def test_compression_is_on_the_wire() -> None:
    gzip, deflate = grpc.Compression.Gzip, grpc.Compression.Deflate
    compressions = [(None, None), (None, gzip), (gzip, deflate), (gzip, None)]
    ours = await encodings_of(proxyless.aio, compressions)
    assert (
        ours
        == await encodings_of(grpc.aio, compressions)
        == ["identity", "gzip", "deflate", "gzip"]
    )


Compressions = Sequence[tuple[grpc.Compression | None, grpc.Compression | None]]


async def encodings_of(aio: Untyped, compressions: Compressions) -> list[str]:
    """The encoding of requests with these options of channel and call."""
    seen: list[ServerCall] = []
    server = Server({"/a.B/C": note_in(seen)})
    address = await server.listen(IpAddress("127.0.0.1", 0))
    for channel_has, call_has in compressions:
        channel = aio.insecure_channel(str(address), compression=channel_has)
        async with channel:
            await channel.unary_unary("/a.B/C")(bytes(5000), compression=call_has)
    await server.close()
    return [call.request.encoding for call in seen]


def note_in(seen: list[ServerCall]) -> Callable[[ServerCall], Awaitable[None]]:
    async def handle(call: ServerCall) -> None:
        seen.append(call)
        await call.write(b"")

    return handle


LIMITS = [("grpc.max_receive_message_length", 100), ("grpc.max_send_message_length", 200)]


async def test_messages_above_the_limits_of_the_channel_are_resource_exhausted(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.open(options=LIMITS)
        greeter, guide = stage.greeter_on(channel), stage.guide_on(channel)
        return (
            await outcome_of(greeter.SayHello(stage.hello(reply_padding_bytes=50))),
            await outcome_of(greeter.SayHello(stage.hello(reply_padding_bytes=200))),
            await outcome_of(greeter.SayHello(stage.hello(padding=bytes(300)))),
            await outcome_of(collect(guide.ListPlaces(stage.way(2, photo_bytes=500)))),
        )

    good, *bad = await both(scenario)
    assert good[0] == "returned"
    assert {code for _, code, *_ in bad} == {grpc.StatusCode.RESOURCE_EXHAUSTED}


async def test_messages_of_any_size_pass_without_limits(both: Both) -> None:
    size = 9 * 1024 * 1024
    options = [(name, -1) for name, _ in LIMITS]

    async def scenario(stage: Stage) -> object:
        greeter = stage.greeter_on(stage.open(options=options))
        request = stage.hello(padding=bytes(size), reply_padding_bytes=size)
        return len((await greeter.SayHello(request)).padding)

    assert await both(scenario, options=options) == size


async def test_the_server_refuses_a_message(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        return await outcome_of(stage.greeter.SayHello(stage.hello(padding=bytes(1000))))

    outcome = await both(scenario, options=[("grpc.max_receive_message_length", 500)])
    assert outcome[1] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_the_user_agent_has_the_applications_parts(both: Both) -> None:
    options = [("grpc.primary_user_agent", "first/1"), ("grpc.secondary_user_agent", "last/2")]

    async def scenario(stage: Stage) -> object:
        plain = await stage.greeter.Describe(stage.hello())
        described = await stage.greeter_on(stage.open(options=options)).Describe(stage.hello())
        first, middle, *_, last = described.user_agent.split(" ")
        return first, middle.split("/")[0][:12], last, plain.user_agent.split("/")[0][:12]

    assert await both(scenario) == ("first/1", "grpc-python-", "last/2", "grpc-python-")


@pytest.mark.parametrize("options", [[], [("grpc.default_authority", "api.test:80")]])
async def test_authority_is_the_target_or_that_of_the_option(
    options: list[tuple[str, str]],
) -> None:
    seen: list[ServerCall] = []
    server = Server({"/a.B/C": note_in(seen)})
    address = await server.listen(IpAddress("127.0.0.1", 0))
    for aio in STACKS.values():
        async with aio.insecure_channel(str(address), options=options) as channel:
            await channel.unary_unary("/a.B/C")(b"")
    await server.close()
    theirs, ours = [call.request.authority for call in seen]
    assert ours == theirs == (options[0][1] if options else str(address))


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
async def test_a_service_config_is_an_option(both: Both) -> None:
    config = (
        '{"methodConfig": [{"name": [{"service": "proxyless.test.routeguide.RouteGuide"}],'
        ' "timeout": "0.1s", "waitForReady": true}],'
        ' "loadBalancingConfig": [{"round_robin": {}}]}'
    )

    async def scenario(stage: Stage) -> object:
        channel = stage.open(options=[("grpc.service_config", config)])
        slow = await finish("unary_unary", start(stage, "unary_unary", channel, metadata=HANG))
        return slow[:3], await outcome_of(stage.greeter_on(channel).SayHello(stage.hello()))

    slow, good = await both(scenario)
    assert slow[1] is grpc.StatusCode.DEADLINE_EXCEEDED
    assert good[0] == "returned"


async def test_retries_follow_the_service_config(both: Both) -> None:
    config = (
        '{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3,'
        ' "initialBackoff": "0.01s", "maxBackoff": "0.02s", "backoffMultiplier": 1,'
        ' "retryableStatusCodes": ["FAILED_PRECONDITION"]}}]}'
    )

    async def scenario(stage: Stage) -> object:
        channel = stage.open(options=[("grpc.service_config", config)])
        outcome = await finish("unary_unary", start(stage, "unary_unary", channel, metadata=ABORT))
        return outcome, stage.events.count("FindPlace started")

    assert (await both(scenario))[1] == 3


# Ours only


async def test_proxyless_does_not_compress_a_call_with_no_compression() -> None:
    """grpcio treats NoCompression as unset."""
    compressions = [(grpc.Compression.Gzip, grpc.Compression.NoCompression)]
    assert await encodings_of(proxyless.aio, compressions) == ["identity"]


async def test_proxyless_raises_when_waiting_on_a_closed_channel(protos: Protos) -> None:
    """grpcio crashes the process."""

    async def scenario(stage: Stage) -> object:
        await stage.channel.close()
        waits = stage.channel.channel_ready(), stage.channel.wait_for_state_change(READY)
        return [await outcome_of(each) for each in waits]

    assert await on_proxyless(protos, scenario) == [("UsageError", "Channel is closed.")] * 2


async def test_proxyless_reports_a_message_of_a_stream_that_is_too_large(protos: Protos) -> None:
    """The details of grpcio are "Internal error from Core"."""

    async def scenario(stage: Stage) -> object:
        channel = stage.open(options=LIMITS)
        written = stage.guide_on(channel).Chat()
        too_large = stage.note("x" * 300)
        iterated = stage.guide_on(channel).Chat([too_large])
        return [
            (await outcome_of(each))[1:3]
            for each in (written.write(too_large), written.read(), collect(iterated))
        ]

    text = "Sent message larger than max (303 vs. 200)"
    assert await on_proxyless(protos, scenario) == [(grpc.StatusCode.RESOURCE_EXHAUSTED, text)] * 3


async def test_proxyless_closes_the_connections_of_a_dropped_channel(protos: Protos) -> None:
    async def scenario(stage: Stage) -> None:
        pool = stack_of_running_loop().pool
        channel = stage.aio.insecure_channel(stage.server.target)
        await stage.greeter_on(channel).SayHello(stage.hello())
        assert len(pool.connections) == 1
        del channel
        await until(lambda: not pool.connections, "the connection to be closed")

    await on_proxyless(protos, scenario)
