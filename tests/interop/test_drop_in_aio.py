"""Calls of generated stubs on our asyncio channel and on grpcio's.

Each test runs a scenario twice (`drop_in`). Where we differ on purpose (docs/spec/decisions.md),
there is a test of our side only, at the end.
"""

import asyncio
import math
import socket
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.generated_protos import Protos
from tests.interop.drop_in import (
    ABORT,
    CANCEL,
    HANG,
    KINDS,
    METHODS,
    RAISE,
    Both,
    Stage,
    Untyped,
    collect,
    describe,
    finish,
    on_proxyless,
    outcome_of,
    read_messages,
    start,
)

ON_BOTH_LOOPS = True
MIB = 1024 * 1024
PAIRS = (("x-color", "red"), ("x-blob-bin", b"\0\xff"), ("t-cost", "5"), ("t-blob-bin", b"\1"))


async def spread(requests: Iterable[Untyped]) -> AsyncIterator[Untyped]:
    """The requests, each in a turn of its own."""
    for request in requests:
        await asyncio.sleep(0)
        yield request


# The kinds of calls, and both styles


@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_of_call_ends_well(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        call = start(stage, kind, metadata=PAIRS, timeout=20)
        outcome = await finish(kind, call)
        await stage.until_event(f"{METHODS[kind]} finished")
        return outcome, await describe(call), stage.events

    (state, _), described, _ = await both(scenario)
    assert state == "returned"
    assert described["code"] is grpc.StatusCode.OK
    assert described["initial"] == [("x-blob-bin", b"\0\xff"), ("x-color", "red")]
    assert described["trailing"] == [("t-blob-bin", b"\1"), ("t-cost", "5")]


async def test_a_reply_is_the_generated_message(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        reply = await stage.greeter.SayHello(stage.hello("Ada"))
        return type(reply), reply

    kind, reply = await both(scenario)
    assert kind.DESCRIPTOR.name == "HelloReply"
    assert reply.message == "hello, Ada"


async def test_responses_are_read_one_by_one(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.ListPlaces(stage.way(3))
        messages = await read_messages(call)
        return messages, await call.read() is grpc.aio.EOF, await describe(call)

    messages, _, _ = await both(scenario)
    assert [message.name for message in messages] == ["place 0", "place 1", "place 2"]


async def test_streams_without_messages_end_with_no_response(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        iterated = await collect(stage.guide.ListPlaces(stage.way(0)))
        read = await read_messages(stage.guide.ListPlaces(stage.way(0)))
        summary = await stage.guide.MeasureWay([])
        return iterated, read, summary, await collect(stage.guide.Chat([]))

    assert (await both(scenario))[:2] == ([], [])


async def test_iterator_continues_where_another_loop_stopped(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.ListPlaces(stage.way(4))
        names = []
        async for place in call:
            names.append(place.name)
            break
        names += [place.name async for place in call]
        # A finished iterator stays so.
        return names, await collect(call)

    assert await both(scenario) == ([f"place {number}" for number in range(4)], [])


@pytest.mark.parametrize("method", ["MeasureWay", "Chat"])
@pytest.mark.parametrize("shape", ["list", "generator", "async generator"])
async def test_requests_come_from_any_iterator(both: Both, method: str, shape: str) -> None:
    async def scenario(stage: Stage) -> object:
        requests = stage.points(20) if method == "MeasureWay" else [stage.note("a")] * 20
        shapes = {
            "list": requests,
            "generator": (each for each in requests),
            "async generator": spread(requests),
        }
        call = getattr(stage.guide, method)(shapes[shape])
        outcome = await outcome_of(call if method == "MeasureWay" else collect(call))
        await stage.until_event(f"{method} finished")
        return outcome, stage.events

    (state, _), _ = await both(scenario)
    assert state == "returned"


async def test_requests_are_written_one_by_one(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.MeasureWay()
        for point in stage.points(5):
            await call.write(point)
        await call.done_writing()
        await call.done_writing()
        summary = await call
        await stage.until_event("MeasureWay finished")
        return summary, await describe(call), stage.events

    summary, _, _ = await both(scenario)
    assert summary.points == 5


async def test_client_and_server_take_turns(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.Chat()
        answers = []
        for word in ("one", "two", "three"):
            await call.write(stage.note(word))
            answers.append(await call.read())
        await call.done_writing()
        return answers, await call.read() is grpc.aio.EOF, await describe(call)

    answers, _, _ = await both(scenario)
    assert [(note.number, note.text) for note in answers] == [(1, "one"), (2, "two"), (3, "three")]


async def test_responses_of_a_written_stream_are_iterated(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.Chat()
        await call.write(stage.note("a"))
        await call.write(stage.note("b"))
        await call.done_writing()
        return await collect(call)

    assert [note.text for note in await both(scenario)] == ["a", "b"]


async def test_styles_of_one_call_do_not_mix(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        reading = stage.guide.ListPlaces(stage.way(3))
        await reading.read()
        read_then_iterated = await outcome_of(collect(reading))
        iterating = stage.guide.ListPlaces(stage.way(3), metadata=HANG)
        async for _ in iterating:
            break
        iterated_then_read = await outcome_of(iterating.read())
        writing = stage.guide.MeasureWay(stage.points(3), metadata=HANG)
        written = await outcome_of(writing.write(stage.point()))
        ended = await outcome_of(writing.done_writing())
        return read_then_iterated, iterated_then_read, written, ended

    assert {name for name, _ in await both(scenario)} == {"UsageError"}


async def test_call_that_has_ended_is_read_in_either_style(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        results = []
        for metadata in ((), ABORT):
            call = stage.guide.ListPlaces(stage.way(1), metadata=metadata)
            results.append(await outcome_of(collect(call)))
            results.append(await outcome_of(call.read()))
        cancelled = stage.guide.ListPlaces(stage.way(1), metadata=HANG)
        cancelled.cancel()
        results.append(await outcome_of(cancelled.read()))
        results.append(await outcome_of(collect(cancelled)))
        return [result[0] for result in results]

    names = ["returned", "returned", "AioRpcError", "AioRpcError", *["CancelledError"] * 2]
    assert await both(scenario) == names


async def test_nothing_is_written_after_the_last_message(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.MeasureWay()
        await call.done_writing()
        half_closed = await outcome_of(call.write(stage.point()))
        await call
        finished = await outcome_of(call.write(stage.point()))
        ended_again = await outcome_of(call.done_writing())
        return half_closed, finished, ended_again

    half_closed, finished, _ = await both(scenario)
    assert half_closed[0] == finished[0] == "InvalidStateError"


async def test_writing_to_a_call_that_failed(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.channel.stream_stream("/no.Such/Method")()
        await call.code()
        return await outcome_of(call.write(b"")), await outcome_of(call.done_writing())

    assert (await both(scenario))[0][0] == "InvalidStateError"


async def test_a_stub_without_serializers_takes_bytes(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        method = "/proxyless.test.helloworld.Greeter/SayHello"
        say_hello = stage.channel.unary_unary(method)
        return await say_hello(stage.hello("Ada").SerializeToString())

    assert isinstance(await both(scenario), bytes)


async def test_a_path_may_be_bytes(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        greet, places = (
            stage.channel.unary_unary(GREET.encode()),
            stage.channel.unary_stream(LIST.encode()),
        )
        request = stage.hello("bytes").SerializeToString()
        listed = await collect(places(stage.way(2).SerializeToString()))
        return await greet(request), len(listed)

    assert (await both(scenario))[1] == 2


async def test_positional_arguments_of_streamed_requests(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        summary = await stage.guide.MeasureWay(stage.points(2), 20, PAIRS, None, True, None)
        call = stage.guide.Chat([stage.note("a")], 20, PAIRS)
        return summary, await collect(call), await describe(call)

    assert (await both(scenario))[0].points == 2


# How the server ends a call


@pytest.mark.parametrize("kind", KINDS)
async def test_call_ends_with_the_status_of_the_server_when_it_aborts(
    both: Both, kind: str
) -> None:
    async def scenario(stage: Stage) -> object:
        call = start(stage, kind, metadata=(*ABORT, *PAIRS))
        return await finish(kind, call), await describe(call)

    (name, code, details, *_), described = await both(scenario)
    assert (name, code) == ("AioRpcError", grpc.StatusCode.FAILED_PRECONDITION)
    assert details == "not today: 100 %, né"
    assert ("reason", "it is Sunday") in described["trailing"]


@pytest.mark.parametrize("kind", KINDS)
async def test_initial_metadata_is_empty_when_the_server_aborts_without_any(
    both: Both, kind: str
) -> None:
    async def scenario(stage: Stage) -> object:
        call = start(stage, kind, metadata=ABORT)
        return await finish(kind, call), await describe(call)

    assert (await both(scenario))[1]["initial"] == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_that_the_server_cancels_is_an_error(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        call = start(stage, kind, metadata=CANCEL)
        return await finish(kind, call), await describe(call)

    (name, code, *_), described = await both(scenario)
    assert (name, code) == ("AioRpcError", grpc.StatusCode.CANCELLED)
    assert described["cancelled"] is True


@pytest.mark.parametrize("kind", KINDS)
async def test_call_ends_with_unknown_when_the_handler_raises(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        call = start(stage, kind, metadata=(*RAISE, *PAIRS))
        return await finish(kind, call), await describe(call)

    (_, code, details, *_), _ = await both(scenario)
    assert code is grpc.StatusCode.UNKNOWN
    assert "the handler broke" in details


async def test_method_is_unimplemented(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        generated = await outcome_of(stage.greeter.SayGoodbye(stage.hello()))
        unknown = await outcome_of(stage.channel.unary_unary("/no.Such/Method")(b""))
        stream = stage.channel.stream_stream("/no.Such/Method")()
        return generated, unknown, await outcome_of(stream.read()), await describe(stream)

    outcomes = await both(scenario)
    assert {outcome[1] for outcome in outcomes[:3]} == {grpc.StatusCode.UNIMPLEMENTED}


async def test_responses_before_a_failure_are_delivered(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        iterated: list[str] = []

        async def iterate() -> None:
            async for place in stage.guide.ListPlaces(stage.way(3), metadata=ABORT):
                iterated.append(place.name)  # noqa: PERF401 - what came before the failure counts

        await outcome_of(iterate())
        call = stage.guide.ListPlaces(stage.way(3), metadata=ABORT)
        read = [await call.read() for _ in range(3)]
        return await outcome_of(call.read()), await outcome_of(call.read()), read, iterated

    first, again, read, iterated = await both(scenario)
    assert first == again
    assert [place.name for place in read] == iterated == ["place 0", "place 1", "place 2"]


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
async def test_responses_that_are_not_read_outlive_the_end(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.ListPlaces(stage.way(3))
        first = await call.read()
        await stage.until_event("ListPlaces finished")
        await asyncio.sleep(0.01)
        return first, await read_messages(call), await describe(call)

    assert len((await both(scenario))[1]) == 2


# The call object


@pytest.mark.parametrize("kind", KINDS)
async def test_done_callbacks_run_in_order_when_the_call_is_over(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        seen: list[Any] = []
        call = start(stage, kind)
        for number in range(3):
            call.add_done_callback(
                lambda it, number=number: seen.append((number, it is call, it.done()))
            )
        early = list(seen)
        await finish(kind, call)
        await call.code()
        call.add_done_callback(lambda it: seen.append(("late", it is call, it.done())))
        return early, seen

    early, seen = await both(scenario)
    assert early == []
    assert [name for name, *_ in seen] == [0, 1, 2, "late"]


async def test_done_callbacks_run_when_the_call_is_cancelled(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        seen: list[Any] = []
        call = stage.greeter.SayHello(stage.hello(), metadata=HANG)
        call.add_done_callback(lambda it: seen.append((it.done(), it.cancelled())))
        await stage.until_event("SayHello started")
        call.cancel()
        await call.code()
        return seen

    assert await both(scenario) == [(True, True)]


# Without the first kind: grpcio has no metadata of a unary call before it is over.
@pytest.mark.parametrize("kind", KINDS[1:])
async def test_call_in_flight_is_not_done(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        call = start(stage, kind, metadata=(*HANG, *PAIRS))
        initial = await call.initial_metadata()
        seen = type(initial), sorted(initial), call.done(), call.cancelled()
        call.cancel()
        await call.code()
        return seen

    _, _, done, cancelled = await both(scenario)
    assert (done, cancelled) == (False, False)


@pytest.mark.parametrize("kind", KINDS)
async def test_several_tasks_may_wait_for_the_end(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        call = start(stage, kind, metadata=PAIRS)
        waiting = asyncio.gather(
            call.code(), call.details(), call.trailing_metadata(), call.code(), call.details()
        )
        await finish(kind, call)
        code, details, trailing, *again = await waiting
        return code, details, sorted(trailing), again

    assert (await both(scenario))[0] is grpc.StatusCode.OK


async def test_a_call_is_awaited_twice(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.greeter.SayHello(stage.hello())
        failing = stage.greeter.SayHello(stage.hello(), metadata=ABORT)
        replies = [await call, await call]
        return replies, [await outcome_of(failing), await outcome_of(failing)]

    (first, second), (failure, again) = await both(scenario)
    assert first == second
    assert failure == again


async def test_a_call_is_awaited_by_two_tasks(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.greeter.SayHello(stage.hello())
        return await asyncio.gather(outcome_of(call), outcome_of(call))

    assert {name for name, _ in await both(scenario)} == {"returned"}


async def test_cancelling_one_of_two_waiting_tasks_ends_both(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.greeter.SayHello(stage.hello(), metadata=HANG)
        tasks = [asyncio.create_task(outcome_of(call)) for _ in range(2)]
        await stage.until_event("SayHello started")
        tasks[0].cancel()
        return await asyncio.gather(*tasks), await describe(call)

    assert (await both(scenario))[0] == [("CancelledError",)] * 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_waits_for_its_connection(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        call = start(stage, kind)
        connected = await outcome_of(call.wait_for_connection())
        return connected, await finish(kind, call)

    assert (await both(scenario))[0] == ("returned", None)


@pytest.mark.parametrize("then", [ABORT, RAISE])
async def test_waiting_for_the_connection_of_a_response_stream_raises_its_error(
    both: Both, then: Untyped
) -> None:
    """Google's clients wait for it before they return a stream, and retry then."""

    async def scenario(stage: Stage) -> object:
        call = stage.guide.ListPlaces(stage.way(0), metadata=then)
        return (await outcome_of(call.wait_for_connection()))[:2], call.done()

    (name, _), is_done = await both(scenario)
    assert (name, is_done) == ("AioRpcError", True)


async def test_response_stream_is_connected_when_the_server_has_answered(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.ListPlaces(stage.way(0), metadata=(*HANG, *PAIRS))
        connected = await outcome_of(call.wait_for_connection())
        names = (await call.initial_metadata())["x-color"], call.done()
        call.cancel()
        return connected, names

    assert await both(scenario) == (("returned", None), ("red", False))


@pytest.mark.parametrize("kind", KINDS)
async def test_waiting_for_a_connection_raises_when_there_is_no_server(
    both: Both, kind: str
) -> None:
    async def scenario(stage: Stage) -> object:
        await stage.server.stop()
        call = start(stage, kind)
        connecting = (await outcome_of(call.wait_for_connection()))[:2]
        return connecting, (await finish(kind, call))[:2], await call.code(), call.done()

    connecting, finished, *_ = await both(scenario)
    assert connecting == finished == ("AioRpcError", grpc.StatusCode.UNAVAILABLE)


async def test_metadata_has_grpcios_type(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.greeter.SayHello(stage.hello(), metadata=PAIRS)
        await call
        initial, trailing = await call.initial_metadata(), await call.trailing_metadata()
        failing = stage.greeter.SayHello(stage.hello(), metadata=ABORT)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await failing
        found = type(caught.value.initial_metadata()), type(caught.value.trailing_metadata())
        return type(initial), type(trailing), initial["x-color"], trailing["t-cost"], found

    assert (await both(scenario))[0] is grpc.aio.Metadata


async def test_call_succeeds_when_a_done_callback_raises(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        seen: list[str] = []

        def fail(_: Untyped) -> None:
            seen.append("called")
            raise RuntimeError("the callback broke")

        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        call = stage.greeter.SayHello(stage.hello())
        call.add_done_callback(fail)
        await outcome_of(call)
        # Whatever happened to that call, the channel is as good as before.
        return seen, await outcome_of(stage.greeter.SayHello(stage.hello()))

    assert (await both(scenario))[0] == ["called"]


# Waiting for a server


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
async def test_call_waits_for_a_server_that_is_started_later(both: Both, tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> object:
        address = f"unix:{tmp_path}/{stage.aio.__name__}"
        options = [
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 100),
        ]
        greeter = stage.greeter_on(stage.open(address, options=options))
        impatient = (await outcome_of(greeter.SayHello(stage.hello())))[:2]
        patient = greeter.SayHello(stage.hello(), wait_for_ready=True)
        await asyncio.sleep(0.15)
        was_done = patient.done()
        await stage.serve(address=address)
        return impatient, was_done, await outcome_of(patient), await describe(patient)

    impatient, was_done, patient, _ = await both(scenario)
    assert impatient == ("AioRpcError", grpc.StatusCode.UNAVAILABLE)
    assert (was_done, patient[0]) == (False, "returned")


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
async def test_a_call_waits_no_longer_than_its_deadline(both: Both, tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> object:
        greeter = stage.greeter_on(stage.open(f"unix:{tmp_path}/unused"))
        call = greeter.SayHello(stage.hello(), wait_for_ready=True, timeout=0.1)
        return (await outcome_of(call))[:2], await call.code()

    assert await both(scenario) == (
        ("AioRpcError", grpc.StatusCode.DEADLINE_EXCEEDED),
        grpc.StatusCode.DEADLINE_EXCEEDED,
    )


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
async def test_a_waiting_call_is_cancelled(both: Both, tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> object:
        greeter = stage.greeter_on(stage.open(f"unix:{tmp_path}/unused"))
        call = greeter.SayHello(stage.hello(), wait_for_ready=True)
        await asyncio.sleep(0.02)
        call.cancel()
        return await outcome_of(call), await describe(call)

    assert (await both(scenario))[0] == ("CancelledError",)


@pytest.mark.parametrize("wait_for_ready", [None, True])
async def test_the_channel_of_a_waiting_call_is_closed(
    both: Both, wait_for_ready: bool | None
) -> None:
    async def scenario(stage: Stage) -> object:
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            deaf.setblocking(False)
            channel = stage.open(f"127.0.0.1:{deaf.getsockname()[1]}")
            call = stage.greeter_on(channel).SayHello(stage.hello(), wait_for_ready=wait_for_ready)
            waiting = asyncio.ensure_future(outcome_of(call))
            # The connection is accepted, but there are no HTTP/2 settings.
            connection, _ = await asyncio.get_running_loop().sock_accept(deaf)
            with connection:
                await channel.close()
                return await waiting, call.cancelled()

    assert await both(scenario) == (("CancelledError",), True)


# Metadata


@pytest.mark.parametrize(
    "pairs",
    [
        (("x-empty", ""), ("x-spaces", "a b")),
        (("x-same", "1"), ("x-other", "2"), ("x-same", "3")),
        (("x-blob-bin", bytes(range(256))), ("x-blob-bin", b""), ("x-blob-bin", b",")),
        (("x-bytes", b"text as bytes"),),
        (("x-.-_09", "every kind of sign ~!@#$%^&*()"),),
    ],
)
async def test_metadata_is_echoed_unchanged(both: Both, pairs: Untyped) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.greeter.SayHello(stage.hello(), metadata=pairs)
        await call
        return (await describe(call))["initial"]

    assert len(await both(scenario)) == len(pairs)


@pytest.mark.parametrize("shape", [tuple, list, lambda pairs: grpc.aio.Metadata(*pairs)])
async def test_metadata_is_taken_in_any_shape(both: Both, shape: Untyped) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.greeter.SayHello(stage.hello(), metadata=shape(PAIRS))
        await call
        return await describe(call)

    assert len((await both(scenario))["initial"]) == 2


@pytest.mark.parametrize(
    "pairs",
    [
        (("x-blob-bin", "text"),),
        (("x-number", 5),),
        ((5, "x"),),
        (("x-one",),),
        5,
    ],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_metadata_of_the_wrong_type_raises(both: Both, kind: str, pairs: Untyped) -> None:
    async def scenario(stage: Stage) -> object:
        async def call() -> object:
            return await finish(kind, start(stage, kind, metadata=pairs))

        name, value = await outcome_of(call())
        # grpcio may raise when the call is awaited, we do when it is made.
        return value[0] if name == "returned" else name

    assert await both(scenario) in ("TypeError", "ValueError")


async def test_metadata_that_was_received_can_be_handed_on(both: Both) -> None:
    """Headers of the transport in an application's metadata are ignored."""
    received = (
        ("user-agent", "another/1.0"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("grpc-timeout", "1H"),
        ("grpc-encoding", "gzip"),
        ("host", "elsewhere"),
        ("connection", "close"),
        (b"x-bytes-key", "kept"),
        ("x-none", None),
    )

    async def scenario(stage: Stage) -> object:
        call = stage.greeter.SayHello(stage.hello(), metadata=received)
        await call
        described = await stage.greeter.Describe(stage.hello(), metadata=received)
        is_own = described.user_agent.startswith("grpc-python-")
        return (await describe(call))["initial"], is_own

    initial, is_own = await both(scenario)
    assert initial == [("x-bytes-key", "kept"), ("x-none", "")]
    assert is_own


# Large messages


@pytest.mark.parametrize("kind", ["request", "reply"])
async def test_a_message_just_below_the_limit_passes(both: Both, kind: str) -> None:
    size = 4 * MIB - 100

    async def scenario(stage: Stage) -> object:
        padding = bytes(size) if kind == "request" else b""
        wanted = size if kind == "reply" else 0
        request = stage.hello(padding=padding, reply_padding_bytes=wanted)
        return len((await stage.greeter.SayHello(request)).padding)

    assert await both(scenario) == (size if kind == "reply" else 0)


async def test_a_reply_above_the_default_limit_is_refused(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        request = stage.hello(reply_padding_bytes=4 * MIB + 1)
        return await outcome_of(stage.greeter.SayHello(request))

    _, code, details, *_ = await both(scenario)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in details


async def test_many_large_messages_stream(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        call = stage.guide.ListPlaces(stage.way(20, photo_bytes=MIB))
        return [len(place.photo) async for place in call]

    assert await both(scenario) == [MIB] * 20


# Ours only: what grpcio hides or leaves unsaid (docs/spec/decisions.md)


def fail(_: object) -> Untyped:
    raise ValueError("cannot do this")


GREET = "/proxyless.test.helloworld.Greeter/SayHello"
LIST = "/proxyless.test.routeguide.RouteGuide/ListPlaces"
CHAT = "/proxyless.test.routeguide.RouteGuide/Chat"


async def test_proxyless_reports_that_the_deserializer_failed(protos: Protos) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.channel
        unary = channel.unary_unary(GREET, response_deserializer=fail)(b"")
        stream = channel.unary_stream(LIST, response_deserializer=fail)(
            stage.way(3).SerializeToString()
        )
        return [(await outcome_of(unary))[1:3], (await outcome_of(collect(stream)))[1:3]]

    text = "response deserializer raised ValueError: cannot do this"
    assert await on_proxyless(protos, scenario) == [(grpc.StatusCode.INTERNAL, text)] * 2


async def test_proxyless_reports_that_the_serializer_failed(protos: Protos) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.channel
        unary = channel.unary_unary(GREET, request_serializer=fail)(b"")
        iterated = channel.stream_stream(CHAT, request_serializer=fail)([b"a"])
        written = channel.stream_stream(CHAT, request_serializer=fail)()
        outcomes = [unary, collect(iterated), written.write(b"a")]
        return [(await outcome_of(each))[1:3] for each in outcomes], stage.events

    outcomes, events = await on_proxyless(protos, scenario)
    text = "request serializer raised ValueError: cannot do this"
    assert outcomes == [(grpc.StatusCode.INTERNAL, text)] * 3
    assert "SayHello started" not in events


async def test_proxyless_reports_that_the_serializer_returned_no_bytes(protos: Protos) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.channel
        # Before the channel is connected, so that the good one waits behind the bad one.
        unary = channel.unary_unary(GREET, request_serializer=str)(b"")
        good = channel.unary_unary(GREET)(b"")
        written = channel.stream_stream(CHAT, request_serializer=str)()
        outcomes = [unary, written.write(b"a")]
        return [(await outcome_of(each))[1:3] for each in outcomes], (await outcome_of(good))[0]

    text = "request serializer returned str, wanted bytes"
    expected = [(grpc.StatusCode.INTERNAL, text)] * 2
    assert await on_proxyless(protos, scenario) == (expected, "returned")


@pytest.mark.parametrize("kind", ["stream_unary", "stream_stream"])
async def test_proxyless_reports_the_error_of_the_request_iterator(
    protos: Protos, kind: str
) -> None:
    """grpcio raises CancelledError, as if the call had been cancelled."""

    async def scenario(stage: Stage) -> object:
        async def requests() -> AsyncIterator[Untyped]:
            yield stage.point() if kind == "stream_unary" else stage.note("a")
            await stage.until_event(f"{METHODS[kind]} started")
            raise ValueError("no more points")

        method = stage.guide.MeasureWay if kind == "stream_unary" else stage.guide.Chat
        outcome = await finish(kind, method(requests(), metadata=HANG))
        await stage.until_event(f"{METHODS[kind]} cancelled")
        return outcome

    _, code, details, *_ = await on_proxyless(protos, scenario)
    assert code is grpc.StatusCode.UNKNOWN
    assert details == "request iterator raised ValueError: no more points"


@pytest.mark.parametrize("kind", ["stream_unary", "stream_stream"])
async def test_call_is_cancelled_when_its_request_iterator_is(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        async def requests() -> AsyncIterator[Untyped]:
            yield stage.point() if kind == "stream_unary" else stage.note("a")
            await stage.until_event(f"{METHODS[kind]} started")
            raise asyncio.CancelledError  # Of a task that the iterator waits for.

        method = stage.guide.MeasureWay if kind == "stream_unary" else stage.guide.Chat
        call = method(requests(), metadata=HANG)
        code = await call.code()
        await stage.until_event(f"{METHODS[kind]} cancelled")
        return code, await finish(kind, call)

    assert await both(scenario) == (grpc.StatusCode.CANCELLED, ("CancelledError",))


async def test_proxyless_waits_for_the_connection_of_a_unary_call_only(protos: Protos) -> None:
    """grpcio's `wait_for_connection` of a unary call returns when the call has ended."""

    async def scenario(stage: Stage) -> object:
        call = start(stage, "unary_unary", metadata=HANG)
        await call.wait_for_connection()
        is_done = call.done()
        call.cancel()
        return is_done

    assert await on_proxyless(protos, scenario) is False


@pytest.mark.parametrize("timeout_s", [1e10, 1e300, math.inf])
async def test_timeout_that_is_too_long_for_grpcio_is_no_limit(
    protos: Protos, timeout_s: float
) -> None:
    """RPCs of grpcio's end at once with DEADLINE_EXCEEDED."""

    async def scenario(stage: Stage) -> object:
        return [await finish(kind, start(stage, kind, timeout=timeout_s)) for kind in KINDS]

    assert {name for name, *_ in await on_proxyless(protos, scenario)} == {"returned"}


async def test_proxyless_returns_initial_metadata_of_a_unary_call_in_flight(protos: Protos) -> None:
    async def scenario(stage: Stage) -> object:
        call = start(stage, "unary_unary", metadata=(*HANG, *PAIRS))
        initial, was_done = await call.initial_metadata(), call.done()
        call.cancel()
        return initial["x-color"], was_done

    assert await on_proxyless(protos, scenario) == ("red", False)
