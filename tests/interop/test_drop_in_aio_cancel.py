"""Cancelled and dropped calls on our asyncio channel and on grpcio's.

By `cancel`, by cancelling a task that waits, by a deadline, or by dropping the call object.
"""

import asyncio
import gc
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from tests.generated_protos import Protos
from tests.interop.drop_in import (
    ABORT,
    HANG,
    KINDS,
    METHODS,
    Both,
    Stage,
    Untyped,
    describe,
    finish,
    on_proxyless,
    outcome_of,
    read_messages,
    run_scenario,
    start,
)
from tests.worlds.transports import until

ON_BOTH_LOOPS = True
MIB = 1024 * 1024
# The server compresses its messages.
GZIPPED = (("grpc.default_compression_algorithm", 2),)
LIST = "/proxyless.test.routeguide.RouteGuide/ListPlaces"


# Cancelling


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_is_cancelled_before_it_starts(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        call = start(stage, kind)
        return call.cancel(), await finish(kind, call), await describe(call), call.cancel()

    cancelled, outcome, described, again = await both(scenario)
    assert (cancelled, outcome, again) == (True, ("CancelledError",), False)
    assert described["code"] is grpc.StatusCode.CANCELLED
    assert described["details"] == "Locally cancelled by application!"


@pytest.mark.parametrize("kind", KINDS)
async def test_waiting_for_the_connection_of_a_cancelled_call_raises(
    protos: Protos, kind: str
) -> None:
    """With streamed requests grpcio's never returns."""

    async def scenario(stage: Stage) -> object:
        call = start(stage, kind)
        call.cancel()
        return await outcome_of(call.wait_for_connection())

    assert await on_proxyless(protos, scenario) == ("CancelledError",)


@pytest.mark.parametrize("kind", ["unary_unary", "stream_stream"])
async def test_message_of_a_cancelled_task_is_kept_where_grpcios_call_loses_it(
    protos: Protos, kind: str
) -> None:
    """A scope of anyio finds its own cancellation by the message."""

    async def scenario(stage: Stage) -> object:
        async def wait() -> object:
            if kind == "unary_unary":
                return await start(stage, kind, metadata=HANG)
            return await stage.guide.Chat().read()

        task = asyncio.create_task(wait())
        await stage.until_event(f"{METHODS[kind]} started")
        task.cancel("why")
        with pytest.raises(asyncio.CancelledError) as raised:
            await task
        return raised.value.args

    assert await run_scenario(scenario, grpc.aio, protos) == ()
    assert await on_proxyless(protos, scenario) == ("why",)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_is_cancelled_while_the_server_works(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        name = METHODS[kind]
        call = start(stage, kind, metadata=HANG)
        await stage.until_event(f"{name} started")
        was_done, did_cancel = call.done(), call.cancel()
        outcome = await finish(kind, call)
        await stage.until_event(f"{name} cancelled")
        return was_done, did_cancel, outcome, await describe(call)

    assert (await both(scenario))[:3] == (False, True, ("CancelledError",))


async def test_a_stream_is_cancelled_between_two_reads(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.ListPlaces(stage.way(2), metadata=HANG)
        await call.read()
        await call.read()
        call.cancel()
        outcomes = [await outcome_of(call.read()) for _ in range(2)]
        await stage.until_event("ListPlaces cancelled")
        return outcomes, await describe(call)

    assert (await both(scenario))[0] == [("CancelledError",)] * 2


async def answered(stage: Stage, **options: Untyped) -> Untyped:
    """A stream of three responses and its end, all of which is here, and nothing is read."""
    call = stage.guide.ListPlaces(stage.way(3), **options)
    await until(lambda: {"ListPlaces finished", "ListPlaces failed"} & {*stage.events}, "the end")
    # On the same connection, so earlier frames of the server have arrived before.
    await stage.greeter.SayHello(stage.hello())
    return call


@pytest.mark.parametrize("then", [(), ABORT])
async def test_a_stream_is_not_done_before_it_is_read(both: Both, then: Untyped) -> None:
    async def scenario(stage: Stage) -> object:
        call = await answered(stage, metadata=then)
        called: list[object] = []
        call.add_done_callback(called.append)
        was_done, names = call.done(), []
        code = asyncio.ensure_future(call.code())
        await stage.greeter.SayHello(stage.hello())
        was_answered, was_called = code.done(), len(called)
        while not call.done():
            outcome = await outcome_of(call.read())
            if outcome[0] != "returned" or outcome[1] is grpc.aio.EOF:
                break
            names.append(outcome[1].name)
        await until(lambda: called, "the callback")
        seen = (was_done, was_answered, was_called, names)
        return seen, await code, called == [call], call.done(), call.cancel()

    seen, code, *ended = await both(scenario)
    assert seen == (False, False, 0, ["place 0", "place 1", "place 2"])
    assert code is (grpc.StatusCode.FAILED_PRECONDITION if then else grpc.StatusCode.OK)
    assert ended == [True, True, False]


@pytest.mark.parametrize("then", [(), ABORT])
@pytest.mark.parametrize("reads", [0, 1])
async def test_a_stream_that_is_answered_but_not_read_may_be_cancelled(
    both: Both, then: Untyped, reads: int
) -> None:
    async def scenario(stage: Stage) -> object:
        call = await answered(stage, metadata=then)
        called: list[object] = []
        call.add_done_callback(called.append)
        for _ in range(reads):
            await call.read()
        cancelled = call.cancel(), call.done(), call.cancelled()
        outcomes = [await outcome_of(call.read()) for _ in range(2)]
        await until(lambda: called, "the callback")
        return cancelled, outcomes, await describe(call), call.cancel()

    cancelled, outcomes, described, again = await both(scenario)
    assert (cancelled, again) == ((True, True, True), False)
    assert outcomes == [("CancelledError",)] * 2
    assert described["details"] == "Locally cancelled by application!"


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
async def test_unread_stream_ends_at_its_deadline(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        await stage.channel.channel_ready()
        # It is answered long before that. If not, on a slow machine, it ends all the same.
        call = stage.guide.ListPlaces(stage.way(3), timeout=0.5)
        called: list[object] = []
        call.add_done_callback(called.append)
        code = await call.code()
        await until(lambda: called, "the callback")
        return code, call.done(), call.cancelled(), call.cancel()

    assert await both(scenario) == (grpc.StatusCode.DEADLINE_EXCEEDED, True, False, False)


@pytest.mark.parametrize("reads", [0, 1])
async def test_unread_stream_ends_when_the_channel_is_closed(both: Both, reads: int) -> None:
    async def scenario(stage: Stage) -> object:
        call = await answered(stage)
        called: list[object] = []
        call.add_done_callback(called.append)
        for _ in range(reads):
            await call.read()
        waiting = asyncio.ensure_future(call.code())
        await stage.channel.close()
        await until(lambda: called, "the callback")
        return await waiting, await describe(call), call.cancel()

    code, described, again = await both(scenario)
    assert code is grpc.StatusCode.CANCELLED
    assert (described["details"], again) == ("Locally cancelled by application!", False)


async def test_proxyless_returns_unread_responses_after_the_channel_was_closed(
    protos: Protos,
) -> None:
    """With grpcio they are gone."""

    async def scenario(stage: Stage) -> object:
        call = await answered(stage)
        await stage.channel.close()
        names = [(await call.read()).name for _ in range(3)]
        return names, await outcome_of(call.read())

    names, outcome = await on_proxyless(protos, scenario)
    assert (len(names), outcome) == (3, ("CancelledError",))


async def test_cancelled_stream_returns_no_more_responses(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.ListPlaces(stage.way(20), metadata=HANG)
        await call.read()
        # More of them are here, or on their way.
        await stage.greeter.SayHello(stage.hello())
        call.cancel()
        return [await outcome_of(call.read()) for _ in range(2)]

    assert await both(scenario) == [("CancelledError",)] * 2


@pytest.mark.parametrize("then", [(), ABORT])
async def test_compressed_responses_are_read_to_the_end_however_late(
    both: Both, then: Untyped
) -> None:
    async def scenario(stage: Stage) -> object:
        # More than the buffers hold, but little on the wire, because it is compressed.
        call = stage.guide.ListPlaces(stage.way(30, photo_bytes=200_000), metadata=then)
        await until(lambda: {"ListPlaces finished", "ListPlaces failed"} & {*stage.events}, "end")
        await stage.greeter.SayHello(stage.hello())
        was_done = call.done()
        places = [await call.read() for _ in range(30)]
        return was_done, [place.name for place in places], await call.code()

    was_done, names, code = await both(scenario, options=GZIPPED)
    assert not was_done
    assert names == [f"place {number}" for number in range(30)]
    assert code is (grpc.StatusCode.FAILED_PRECONDITION if then else grpc.StatusCode.OK)


async def test_stream_with_unread_compressed_responses_may_be_cancelled(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.ListPlaces(stage.way(30, photo_bytes=200_000))
        await stage.until_event("ListPlaces finished")
        await stage.greeter.SayHello(stage.hello())
        await call.read()
        return call.cancel(), await outcome_of(call.read()), (await describe(call))["code"]

    assert await both(scenario, options=GZIPPED) == (
        True,
        ("CancelledError",),
        grpc.StatusCode.CANCELLED,
    )


async def test_a_loop_over_a_cancelled_stream_ends_at_once(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.ListPlaces(stage.way(20), metadata=HANG)
        names = []

        async def loop() -> None:
            async for place in call:
                names.append(place.name)
                if len(names) == 2:
                    await stage.greeter.SayHello(stage.hello())
                    call.cancel()

        return await outcome_of(loop()), names

    assert await both(scenario) == (("CancelledError",), ["place 0", "place 1"])


async def test_a_stream_that_is_answered_but_not_read_is_connected(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = await answered(stage, metadata=ABORT)
        return await outcome_of(call.wait_for_connection()), (await call.read()).name

    assert await both(scenario) == (("returned", None), "place 0")


async def test_request_iterator_stops_when_the_server_has_ended_the_stream(protos: Protos) -> None:
    async def scenario(stage: Stage) -> object:
        is_closed = asyncio.Event()

        async def notes() -> AsyncIterator[Untyped]:
            try:
                while True:
                    yield stage.note("a")
                    await asyncio.sleep(0)
            finally:
                is_closed.set()

        # The server ends at once, with responses that are not read.
        call = stage.channel.stream_stream(
            LIST, request_serializer=lambda _: stage.way(3).SerializeToString()
        )(notes())
        await is_closed.wait()
        return call.done(), len([place async for place in call])

    assert await on_proxyless(protos, scenario) == (False, 3)


async def test_proxyless_loses_no_response_when_a_write_is_too_late(protos: Protos) -> None:
    """grpcio ends the call with INTERNAL, and what was not read is gone."""

    async def scenario(stage: Stage) -> object:
        call = stage.channel.stream_stream(LIST)()
        await call.write(stage.way(3).SerializeToString())
        await stage.until_event("ListPlaces finished")
        await stage.greeter.SayHello(stage.hello())
        late = await outcome_of(call.write(b""))
        return late, len(await read_messages(call)), await call.code()

    late, responses, code = await on_proxyless(protos, scenario)
    assert late == ("InvalidStateError", "RPC already finished.")
    assert (responses, code) == (3, grpc.StatusCode.OK)


async def test_a_stream_is_cancelled_inside_its_loop(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.ListPlaces(stage.way(2), metadata=HANG)
        names = []

        async def loop() -> None:
            async for place in call:
                names.append(place.name)
                call.cancel()

        outcome = await outcome_of(loop())
        await stage.until_event("ListPlaces cancelled")
        return outcome, names, await describe(call)

    assert (await both(scenario))[0] == ("CancelledError",)


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
@pytest.mark.parametrize("kind", KINDS)
async def test_cancelling_the_awaiting_task_cancels_the_call(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        name = METHODS[kind]
        call = start(stage, kind, metadata=HANG)
        task = asyncio.create_task(finish(kind, call))
        await stage.until_event(f"{name} started")
        await asyncio.sleep(0.01)
        task.cancel()
        outcome = await task
        await stage.until_event(f"{name} cancelled")
        return outcome, await describe(call)

    outcome, described = await both(scenario)
    assert outcome == ("CancelledError",)
    assert described["cancelled"] is True


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
async def test_a_time_limit_of_asyncio_cancels_the_call(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.greeter.SayHello(stage.hello(), metadata=HANG)
        await stage.until_event("SayHello started")
        outcome = await outcome_of(asyncio.wait_for(call, 0.01))
        await stage.until_event("SayHello cancelled")
        return outcome, await describe(call)

    assert (await both(scenario))[0][0] == "TimeoutError"


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
async def test_cancelling_a_writer_cancels_the_call(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.Chat(metadata=HANG)
        # The server reads nothing of this while its first answer is not read.
        big = stage.note("x" * MIB)

        async def write() -> None:
            while True:
                await call.write(big)

        task = asyncio.create_task(outcome_of(write()))
        await stage.until_event("Chat started")
        await asyncio.sleep(0.05)
        task.cancel()
        outcome = await task
        await stage.until_event("Chat cancelled")
        return outcome, await describe(call)

    assert (await both(scenario))[0] == ("CancelledError",)


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
async def test_reading_and_writing_wait_at_the_same_time(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.Chat()
        reading = asyncio.create_task(outcome_of(call.read()))
        await asyncio.sleep(0.01)
        await call.write(stage.note("a"))
        answer = await reading
        reading = asyncio.create_task(outcome_of(call.read()))
        await asyncio.sleep(0.01)
        call.cancel()
        return answer, await reading, await outcome_of(call.write(stage.note("b")))

    answer, cancelled, _ = await both(scenario)
    assert answer[0] == "returned"
    assert cancelled == ("CancelledError",)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_finished_call_cannot_be_cancelled(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        call = start(stage, kind)
        await finish(kind, call)
        return call.cancel(), call.cancelled(), await describe(call)

    assert (await both(scenario))[:2] == (False, False)


async def test_a_request_iterator_is_stopped_when_the_call_is_cancelled(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        seen = []

        async def requests() -> AsyncIterator[Untyped]:
            try:
                yield stage.note("a")
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("stopped")
                raise

        call = stage.guide.Chat(requests())
        first = await call.read()
        call.cancel()
        await until(lambda: seen, "the iterator to be stopped")
        return first, seen

    assert (await both(scenario))[1] == ["stopped"]


# Deadlines


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
@pytest.mark.parametrize("kind", KINDS)
async def test_the_deadline_passes(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        call = start(stage, kind, metadata=HANG, timeout=0.2)
        outcome = await finish(kind, call)
        if stage.events:  # On a busy machine the RPC may not have reached the server.
            await stage.until_event(f"{METHODS[kind]} cancelled")
        return outcome, await describe(call)

    (name, code, details, *_), described = await both(scenario)
    assert (name, code) == ("AioRpcError", grpc.StatusCode.DEADLINE_EXCEEDED)
    assert details == "Deadline Exceeded"
    assert described["cancelled"] is False


@pytest.mark.parametrize("kind", KINDS)
async def test_the_deadline_was_before_the_call(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        return (await finish(kind, start(stage, kind, timeout=-1)))[:2]

    assert await both(scenario) == ("AioRpcError", grpc.StatusCode.DEADLINE_EXCEEDED)


async def test_server_gets_the_deadline(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        described = await stage.greeter.Describe(stage.hello(), timeout=30)
        without = await stage.greeter.Describe(stage.hello())
        return 25 < described.time_remaining <= 30.1, without.HasField("time_remaining")

    assert await both(scenario) == (True, False)


async def test_time_remaining_is_none_without_a_timeout(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        limited = stage.greeter.SayHello(stage.hello(), timeout=30)
        unlimited = stage.greeter.SayHello(stage.hello())
        remaining = limited.time_remaining()
        seen = 25 < remaining <= 30.001, unlimited.time_remaining()
        await limited
        await unlimited
        return seen, 25 < limited.time_remaining() <= remaining

    assert await both(scenario) == ((True, None), True)


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
async def test_a_stream_may_be_read_until_its_deadline(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        for timeout_s in (0.2, 0.8, 3.2, 12.8):  # A busy machine needs more for the three.
            call = stage.guide.ListPlaces(stage.way(3), metadata=HANG, timeout=timeout_s)
            seen = [await outcome_of(call.read()) for _ in range(5)]
            if all(kind == "returned" for kind, *_ in seen[:3]):
                break
        return seen

    *places, first, again = await both(scenario)
    assert [place.name for _, place in places] == ["place 0", "place 1", "place 2"]
    assert first == again
    assert first[1] is grpc.StatusCode.DEADLINE_EXCEEDED


# Abandoned calls


async def test_unary_call_is_made_when_it_is_not_awaited(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        stage.greeter.SayHello(stage.hello())
        stage.guide.MeasureWay(stage.points(3))
        gc.collect()
        await stage.until_event("SayHello finished")
        await stage.until_event("MeasureWay finished")
        return sorted(stage.events)

    await both(scenario)


async def test_dropped_bidi_stream_sends_all_its_requests(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        async def requests() -> AsyncIterator[Untyped]:
            await stage.until_event("Chat started")
            yield stage.note("a")
            gc.collect()
            yield stage.note("b")
            stage.events.append("all said")

        stage.guide.Chat(requests())
        gc.collect()
        await stage.until_event("all said")
        return "Chat started" in stage.events

    await both(scenario)


# Ours only. grpcio 1.85 does not cancel dropped streams: it keeps their objects alive.


async def test_proxyless_cancels_a_dropped_stream(protos: Protos) -> None:
    async def scenario(stage: Stage) -> None:
        call = stage.guide.ListPlaces(stage.way(1), metadata=HANG)
        await call.read()
        del call
        await stage.until_event("ListPlaces cancelled")

    await on_proxyless(protos, scenario)


async def test_dropped_stream_with_unread_responses_is_collected(protos: Protos) -> None:
    async def scenario(stage: Stage) -> object:
        call = await answered(stage)
        core = stage.channel.core()
        calls = core.calls
        del call
        await until(lambda: not core.calls, "the end of the stream")
        return calls

    assert await on_proxyless(protos, scenario) == 1


async def test_proxyless_cancels_a_stream_when_the_loop_over_it_is_left(protos: Protos) -> None:
    async def scenario(stage: Stage) -> None:
        async for _ in stage.guide.ListPlaces(stage.way(1), metadata=HANG):
            break
        # The call and its iterator refer to each other.
        gc.collect()
        await stage.until_event("ListPlaces cancelled")

    await on_proxyless(protos, scenario)


async def test_proxyless_cancels_a_dropped_bidi_stream(protos: Protos) -> None:
    async def scenario(stage: Stage) -> None:
        call = stage.guide.Chat(metadata=HANG)
        await call.write(stage.note("a"))
        await call.read()
        del call
        await stage.until_event("Chat cancelled")

    await on_proxyless(protos, scenario)


async def test_proxyless_cancels_a_dropped_stream_with_interceptors(protos: Protos) -> None:
    class Hand(grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc]
        async def intercept_unary_stream(
            self, proceed: Untyped, details: Untyped, request: Untyped
        ) -> Untyped:
            return await proceed(details, request)

    async def scenario(stage: Stage) -> None:
        channel = stage.open(interceptors=[Hand()])
        call = stage.guide_on(channel).ListPlaces(stage.way(1), metadata=HANG)
        await call.read()
        del call
        gc.collect()
        await stage.until_event("ListPlaces cancelled")

    await on_proxyless(protos, scenario)


async def test_proxyless_ends_a_call_at_once_when_its_timeout_is_0_or_nan(protos: Protos) -> None:
    async def scenario(stage: Stage) -> object:
        timeouts = (0, 1e-9, float("nan"))
        return [
            (await finish("unary_unary", start(stage, "unary_unary", timeout=each)))[1]
            for each in timeouts
        ]

    assert set(await on_proxyless(protos, scenario)) == {grpc.StatusCode.DEADLINE_EXCEEDED}


async def test_a_timeout_that_is_no_number_does_not_count_as_a_call(protos: Protos) -> None:
    async def scenario(stage: Stage) -> None:
        with pytest.raises(TypeError):
            stage.greeter.SayHello(stage.hello(), timeout="soon")
        async with asyncio.timeout(5):
            await stage.channel.close(grace=60)

    await on_proxyless(protos, scenario)
