"""grpc.aio's client interceptors on our channel and on grpcio's."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Final

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
    collect,
    describe,
    finish,
    hand_on,
    interceptors,
    on_proxyless,
    outcome_of,
    plain,
    read_messages,
    start,
)
from tests.worlds.transports import PATIENCE_S

STREAMING: Final = ("unary_stream", "stream_stream")

# Call details


@pytest.mark.parametrize("kind", KINDS)
async def test_interceptor_gets_the_call_details(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        seen: list[object] = []

        async def act(proceed: Untyped, details: Untyped, request: Untyped) -> Untyped:
            seen.append((type(details), details.method, details.timeout, details.wait_for_ready))
            seen.append((type(details.metadata), plain(details.metadata), details.credentials))
            call = await proceed(details, request)
            seen.append(isinstance(call, grpc.aio.Call))
            return call

        channel = stage.open(interceptors=interceptors(act))
        await finish(kind, start(stage, kind, channel))
        call = start(stage, kind, channel, timeout=9, metadata=[("x-a", "1")], wait_for_ready=True)
        return seen, await finish(kind, call), await describe(call)

    seen, *_ = await both(scenario)
    assert seen[0][1].endswith(METHODS[kind].encode())


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
@pytest.mark.parametrize("kind", KINDS)
async def test_an_interceptor_changes_metadata_and_timeout(both: Both, kind: str) -> None:
    timeout_s = 0.2

    async def act(proceed: Untyped, details: Untyped, request: Untyped) -> Untyped:
        metadata = grpc.aio.Metadata(*details.metadata, ("x-added", "yes"), *HANG)
        return await proceed(details._replace(timeout=timeout_s, metadata=metadata), request)

    async def scenario(stage: Stage) -> Untyped:
        nonlocal timeout_s
        channel = stage.open(interceptors=interceptors(act))
        while True:
            call = start(stage, kind, channel, metadata=(("x-own", "1"),))
            seen = await finish(kind, call), await describe(call)
            if seen[1]["initial"]:
                return seen
            timeout_s *= 2  # It passed before the response.

    _, described = await both(scenario)
    assert described["code"] is grpc.StatusCode.DEADLINE_EXCEEDED
    assert described["initial"] == [("x-added", "yes"), ("x-own", "1")]


# Not with streamed requests: grpcio does not always know how a call ended that the server refused
# while it was writing.
@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
async def test_an_interceptor_changes_the_method(both: Both, kind: str) -> None:
    async def act(proceed: Untyped, details: Untyped, request: Untyped) -> Untyped:
        return await proceed(details._replace(method=b"/no.Such/Method"), request)

    async def scenario(stage: Stage) -> object:
        call = start(stage, kind, stage.open(interceptors=interceptors(act)))
        return await finish(kind, call), await describe(call)

    assert (await both(scenario))[1]["code"] is grpc.StatusCode.UNIMPLEMENTED


async def test_an_interceptor_changes_the_request(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        async def act(proceed: Untyped, details: Untyped, _request: Untyped) -> Untyped:
            return await proceed(details, stage.hello("another"))

        greeter = stage.greeter_on(stage.open(interceptors=interceptors(act)))
        return await greeter.SayHello(stage.hello("me"))

    assert (await both(scenario)).message == "hello, another"


async def test_an_interceptor_changes_the_requests(both: Both) -> None:
    async def act(proceed: Untyped, details: Untyped, requests: Untyped) -> Untyped:
        async def twice() -> AsyncIterator[Untyped]:
            async for request in requests:
                yield request
                yield request

        return await proceed(details, twice())

    async def scenario(stage: Stage) -> object:
        guide = stage.guide_on(stage.open(interceptors=interceptors(act)))
        measured = guide.MeasureWay()
        for point in stage.points(2):
            await measured.write(point)
        await measured.done_writing()
        chat = guide.Chat()
        await chat.write(stage.note("a"))
        notes = [await chat.read(), await chat.read()]
        await chat.done_writing()
        return await measured, notes, await chat.read() is grpc.aio.EOF, await describe(chat)

    summary, notes, *_ = await both(scenario)
    assert summary.points == 4
    assert [note.number for note in notes] == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
async def test_interceptors_are_called_in_their_order(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        seen: list[str] = []

        def noting(name: str) -> list[Untyped]:
            async def act(proceed: Untyped, details: Untyped, request: Untyped) -> Untyped:
                seen.append(f"into {name}")
                call = await proceed(details, request)
                seen.append(f"out of {name}")
                return call

            return interceptors(act)

        channel = stage.open(interceptors=noting("a") + noting("b"))
        await finish(kind, start(stage, kind, channel))
        return seen

    assert await both(scenario) == ["into a", "into b", "out of b", "out of a"]


# Responses of interceptors


async def test_call_has_the_response_of_an_interceptor_that_does_not_proceed(both: Both) -> None:
    async def act(_proceed: Untyped, _details: Untyped, _request: Untyped) -> Untyped:
        return "an answer"

    async def scenario(stage: Stage) -> object:
        channel = stage.open(interceptors=interceptors(act, ["unary_unary"]))
        call = start(stage, "unary_unary", channel)
        seen: list[object] = []
        call.add_done_callback(lambda it: seen.append(it is call))
        answers = [await call, await call]
        call.add_done_callback(lambda it: seen.append(it is call))
        return answers, seen, await describe(call), call.cancel(), stage.events

    answers, seen, _, _, events = await both(scenario)
    assert (answers, seen, events) == (["an answer"] * 2, [True, True], [])


@pytest.mark.parametrize("kind", STREAMING)
async def test_an_interceptor_replaces_the_responses(both: Both, kind: str) -> None:
    async def act(proceed: Untyped, details: Untyped, request: Untyped) -> Untyped:
        call = await proceed(details, request)

        async def marked() -> AsyncIterator[Untyped]:
            async for response in call:
                yield ("seen", response)

        return marked()

    async def scenario(stage: Stage) -> object:
        channel = stage.open(interceptors=interceptors(act))
        call = start(stage, kind, channel, metadata=(("x-a", "1"), ("t-b", "2")))
        seen: list[object] = []
        call.add_done_callback(lambda it: seen.append((it is call, it.done())))
        iterated = await collect(call)
        read = await read_messages(start(stage, kind, channel))
        return iterated, read, seen, await describe(call)

    iterated, read, seen, _ = await both(scenario)
    assert iterated == read
    assert [mark for mark, _ in iterated] == ["seen", "seen"]
    assert seen == [(True, True)]


async def test_an_interceptor_retries(both: Both) -> None:
    async def act(proceed: Untyped, details: Untyped, request: Untyped) -> Untyped:
        call = await proceed(details._replace(metadata=grpc.aio.Metadata(*ABORT)), request)
        if await call.code() is grpc.StatusCode.FAILED_PRECONDITION:
            call = await proceed(details, request)
        return call

    async def scenario(stage: Stage) -> object:
        call = start(stage, "unary_unary", stage.open(interceptors=interceptors(act)))
        return await outcome_of(call), stage.events.count("FindPlace started")

    assert (await both(scenario))[1] == 2


async def test_interceptor_may_await_the_response(both: Both) -> None:
    async def act(proceed: Untyped, details: Untyped, request: Untyped) -> Untyped:
        call = await proceed(details, request)
        await call
        return call

    async def scenario(stage: Stage) -> object:
        channel = stage.open(interceptors=interceptors(act))
        good = start(stage, "unary_unary", channel)
        bad = start(stage, "unary_unary", channel, metadata=ABORT)
        return await outcome_of(good), await outcome_of(bad), await describe(bad)

    good, bad, _ = await both(scenario)
    assert (good[0], bad[0]) == ("returned", "AioRpcError")


@pytest.mark.parametrize("kind", KINDS)
async def test_call_raises_the_exception_of_an_interceptor(both: Both, kind: str) -> None:
    async def act(_proceed: Untyped, _details: Untyped, _request: Untyped) -> Untyped:
        raise ValueError("not with me")

    async def scenario(stage: Stage) -> object:
        call = start(stage, kind, stage.open(interceptors=interceptors(act)))
        outcome = await finish(kind, call)
        described = [await outcome_of(each()) for each in (call.code, call.initial_metadata)]
        return outcome, described, call.done(), call.cancelled(), call.cancel()

    outcome, _, *states = await both(scenario)
    assert outcome == ("ValueError", "not with me")
    assert states == [True, False, False]


@pytest.mark.parametrize("kind", KINDS)
async def test_call_has_the_status_of_an_rpc_error_that_an_interceptor_raises(
    both: Both, kind: str
) -> None:
    async def act(_proceed: Untyped, _details: Untyped, _request: Untyped) -> Untyped:
        initial, trailing = grpc.aio.Metadata(("i", "1")), grpc.aio.Metadata(("t", "2"))
        raise grpc.aio.AioRpcError(grpc.StatusCode.DATA_LOSS, initial, trailing, "made up", "why")

    async def scenario(stage: Stage) -> object:
        call = start(stage, kind, stage.open(interceptors=interceptors(act)))
        return await finish(kind, call), await describe(call), await call.debug_error_string()

    assert (await both(scenario))[1]["code"] is grpc.StatusCode.DATA_LOSS


# The calls they return


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_is_cancelled_while_an_interceptor_waits(both: Both, kind: str) -> None:
    async def act(_proceed: Untyped, _details: Untyped, _request: Untyped) -> Untyped:
        await asyncio.Event().wait()

    async def scenario(stage: Stage) -> object:
        call = start(stage, kind, stage.open(interceptors=interceptors(act)))
        await asyncio.sleep(0.01)
        states = call.done(), call.cancelled(), call.cancel()
        return states, await finish(kind, call), await describe(call), call.cancel()

    states, outcome, *_ = await both(scenario)
    assert (states, outcome) == ((False, False, True), ("CancelledError",))


@pytest.mark.parametrize("kind", KINDS)
async def test_an_intercepted_call_is_cancelled(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.open(interceptors=interceptors(hand_on))
        call = start(stage, kind, channel, metadata=HANG)
        await stage.until_event(f"{METHODS[kind]} started")
        states = call.done(), call.cancelled(), call.cancel()
        outcome = await finish(kind, call)
        await stage.until_event(f"{METHODS[kind]} cancelled")
        return states, outcome, await describe(call)

    assert (await both(scenario))[1] == ("CancelledError",)


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
@pytest.mark.parametrize("kind", KINDS)
async def test_cancelling_the_awaiting_task_cancels_an_intercepted_call(
    both: Both, kind: str
) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.open(interceptors=interceptors(hand_on))
        call = start(stage, kind, channel, metadata=HANG)
        task = asyncio.create_task(finish(kind, call))
        await stage.until_event(f"{METHODS[kind]} started")
        await asyncio.sleep(0.01)
        task.cancel()
        outcome = await task
        await stage.until_event(f"{METHODS[kind]} cancelled")
        return outcome, await describe(call)

    assert (await both(scenario))[0] == ("CancelledError",)


@pytest.mark.parametrize("kind", KINDS)
async def test_done_callbacks_of_an_intercepted_call(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        seen: list[object] = []
        call = start(stage, kind, stage.open(interceptors=interceptors(hand_on)))
        call.add_done_callback(lambda it: seen.append(("early", it is call, it.done())))
        await call.wait_for_connection()
        call.add_done_callback(lambda it: seen.append(("later", it is call, it.done())))
        await finish(kind, call)
        await call.code()
        call.add_done_callback(lambda it: seen.append(("last", it is call, it.done())))
        return seen

    assert await both(scenario) == [(name, True, True) for name in ("early", "later", "last")]


async def test_done_callback_is_called_when_the_one_before_raises(protos: Protos) -> None:
    async def act(proceed: Untyped, details: Untyped, request: Untyped) -> Untyped:
        call = await proceed(details, request)
        await call
        return call

    async def scenario(stage: Stage) -> object:
        seen: list[object] = []

        def fail(_: Untyped) -> None:
            raise RuntimeError("the callback broke")

        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: seen.append(str(context["exception"])))
        call = start(stage, "unary_unary", stage.open(interceptors=interceptors(act)))
        call.add_done_callback(fail)
        call.add_done_callback(lambda it: seen.append(it is call))
        await outcome_of(call)
        return seen

    assert await on_proxyless(protos, scenario) == ["the callback broke", True]


async def test_styles_of_an_intercepted_call(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        guide = stage.guide_on(stage.open(interceptors=interceptors(hand_on)))
        mixed = guide.ListPlaces(stage.way(3))
        names = [(await mixed.read()).name] + [place.name async for place in mixed]
        iterating = guide.MeasureWay(stage.points(1))
        refused = [
            await outcome_of(iterating.write(stage.point())),
            await outcome_of(iterating.done_writing()),
        ]
        await iterating
        finished = guide.MeasureWay()
        await finished.done_writing()
        await finished
        late = [
            await outcome_of(finished.write(stage.point())),
            await outcome_of(finished.done_writing()),
        ]
        return names, refused, late

    _, refused, late = await both(scenario)
    assert [name for name, _ in refused] == ["UsageError"] * 2
    assert [name for name, _ in late] == ["InvalidStateError", "returned"]


async def test_intercepted_call_refuses_writes_after_done_writing(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        guide = stage.guide_on(stage.open(interceptors=interceptors(hand_on)))
        call = guide.Chat(metadata=HANG)
        await call.write(stage.note("a"))
        await call.read()
        await call.done_writing()
        for _ in range(20):
            await asyncio.sleep(0)  # grpcio takes the end from a queue.
        late = [await outcome_of(call.write(stage.note("b"))) for _ in range(2)]
        again = await outcome_of(call.done_writing())
        call.cancel()
        return late, again

    late, again = await both(scenario)
    assert late == [("InvalidStateError", 'RPC is half closed after calling "done_writing".')] * 2
    assert again == ("returned", None)


async def test_done_writing_raises_what_an_interceptor_raised(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        async def refuse(_proceed: Untyped, _details: Untyped, _request: Untyped) -> Untyped:
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.NOT_FOUND, nothing, nothing, "no")

        async def fail(_proceed: Untyped, _details: Untyped, _request: Untyped) -> Untyped:
            raise KeyError("token")

        async def wait(_proceed: Untyped, _details: Untyped, _request: Untyped) -> Untyped:
            await asyncio.Event().wait()

        results = []
        for act in (refuse, fail, wait):
            call = stage.guide_on(stage.open(interceptors=interceptors(act))).Chat()
            if act is wait:
                call.cancel()
            results.append(await outcome_of(call.done_writing()))
        return results

    names = [result[0] for result in await both(scenario)]
    assert names == ["AioRpcError", "KeyError", "InvalidStateError"]


@pytest.mark.parametrize("method", ["write", "done_writing"])
async def test_cancelled_task_is_cancelled_while_it_waits_for_an_interceptor(
    protos: Protos, method: str
) -> None:
    """grpcio raises InvalidStateError, so `asyncio.timeout` does not raise TimeoutError."""

    async def wait(_proceed: Untyped, _details: Untyped, _request: Untyped) -> Untyped:
        await asyncio.Event().wait()

    async def scenario(stage: Stage) -> object:
        call = stage.guide_on(stage.open(interceptors=interceptors(wait))).Chat()
        requests = [stage.note("a")] if method == "write" else []
        return await outcome_of(_limited(getattr(call, method)(*requests)))

    assert (await on_proxyless(protos, scenario))[0] == "TimeoutError"


async def _limited(waiting: Awaitable[Untyped]) -> Untyped:
    async with asyncio.timeout(0):
        return await waiting


@pytest.mark.parametrize("name", ["code", "details", "initial_metadata", "trailing_metadata"])
async def test_task_that_stops_waiting_for_the_status_does_not_cancel_intercepted_call(
    protos: Protos, name: str
) -> None:
    """grpcio cancels the interceptors, and the task gets a result: CANCELLED."""

    async def scenario(stage: Stage) -> object:
        proceed_now = asyncio.Event()

        async def wait(proceed: Untyped, details: Untyped, request: Untyped) -> Untyped:
            await proceed_now.wait()
            return await proceed(details, request)

        channel = stage.open(interceptors=interceptors(wait))
        call = start(stage, "unary_unary", channel)
        limited = await outcome_of(_limited(getattr(call, name)()))
        proceed_now.set()
        return limited[0], (await finish("unary_unary", call))[0]

    assert await on_proxyless(protos, scenario) == ("TimeoutError", "returned")


@pytest.mark.parametrize("kind", KINDS)
async def test_intercepted_call_has_its_remaining_time(protos: Protos, kind: str) -> None:
    """grpcio's raises NotImplementedError."""

    async def scenario(stage: Stage) -> object:
        channel = stage.open(interceptors=interceptors(hand_on))
        call = start(stage, kind, channel, timeout=PATIENCE_S)
        await finish(kind, call)
        return call.time_remaining()

    assert 0 < await on_proxyless(protos, scenario) < PATIENCE_S


@pytest.mark.parametrize("kind", KINDS)
async def test_closing_the_channel_cancels_intercepted_calls(both: Both, kind: str) -> None:
    async def wait(_proceed: Untyped, _details: Untyped, _request: Untyped) -> Untyped:
        await asyncio.Event().wait()

    async def scenario(stage: Stage) -> object:
        running_on = stage.open(interceptors=interceptors(hand_on))
        waiting_on = stage.open(interceptors=interceptors(wait))
        running = start(stage, kind, running_on, metadata=HANG)
        waiting = start(stage, kind, waiting_on)
        await stage.until_event(f"{METHODS[kind]} started")
        await running_on.close()
        await waiting_on.close()
        return await finish(kind, running), await finish(kind, waiting)

    assert await both(scenario) == (("CancelledError",), ("CancelledError",))


async def test_close_waits_for_interceptors_during_the_grace_period(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        async def await_response(proceed: Untyped, details: Untyped, request: Untyped) -> Untyped:
            call = await proceed(details, request)
            await call
            await asyncio.sleep(0)  # Measures the call, for example.
            return call

        is_closing = asyncio.Event()

        async def points() -> AsyncIterator[Untyped]:
            yield stage.point()
            await is_closing.wait()

        channel = stage.open(interceptors=interceptors(await_response))
        call = stage.guide_on(channel).MeasureWay(points())
        await stage.until_event("point 1/2")
        closing = asyncio.create_task(channel.close(grace=PATIENCE_S))
        await asyncio.sleep(0)
        is_closing.set()
        await closing
        return (await outcome_of(call))[0], await call.code()

    assert await both(scenario) == ("returned", grpc.StatusCode.OK)


@pytest.mark.parametrize("answers", [True, False])
async def test_close_waits_for_an_interceptor_that_has_made_no_rpc(
    both: Both, answers: bool
) -> None:
    async def scenario(stage: Stage) -> object:
        is_closing = asyncio.Event()

        async def wait(proceed: Untyped, details: Untyped, request: Untyped) -> Untyped:
            await is_closing.wait()
            return stage.routes.Place() if answers else await proceed(details, request)

        channel = stage.open(interceptors=interceptors(wait))
        call = start(stage, "unary_unary", channel)
        await asyncio.sleep(0)
        closing = asyncio.create_task(channel.close(grace=PATIENCE_S))
        await asyncio.sleep(0)
        is_closing.set()
        await closing
        return await outcome_of(call)

    name, *_ = await both(scenario)
    assert name == ("returned" if answers else "UsageError")


@pytest.mark.parametrize("how", ["added", "assigned"])
@pytest.mark.parametrize("kind", KINDS)
async def test_interceptor_is_used_when_it_is_put_into_the_list_of_a_channel(
    both: Both, kind: str, how: str
) -> None:
    """Google's clients do so with the attributes that they find on grpcio's channel."""

    async def scenario(stage: Stage) -> object:
        seen: list[object] = []

        async def act(proceed: Untyped, details: Untyped, request: Untyped) -> Untyped:
            seen.append(details.method)
            return await proceed(details, request)

        channel, name = stage.open(), f"_{kind}_interceptors"
        if how == "added":
            getattr(channel, name)[:0] = interceptors(act, [kind])
        else:
            setattr(channel, name, interceptors(act, [kind]))
        return await finish(kind, start(stage, kind, channel)), seen

    assert len((await both(scenario))[1]) == 1


async def test_what_is_no_interceptor_is_refused(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        async def open_channel() -> None:
            stage.open(interceptors=[object()])

        return (await outcome_of(open_channel()))[0]

    assert await both(scenario) == "ValueError"


# Ours only


async def test_proxyless_uses_an_interceptor_of_several_kinds_for_each(protos: Protos) -> None:
    """grpcio uses it for the first kind only."""
    seen: list[str] = []

    class Noting(
        grpc.aio.UnaryUnaryClientInterceptor,  # type: ignore[misc]
        grpc.aio.UnaryStreamClientInterceptor,  # type: ignore[misc]
    ):
        async def intercept_unary_unary(
            self, proceed: Untyped, details: Untyped, request: Untyped
        ) -> Untyped:
            seen.append("unary_unary")
            return await proceed(details, request)

        async def intercept_unary_stream(
            self, proceed: Untyped, details: Untyped, request: Untyped
        ) -> Untyped:
            seen.append("unary_stream")
            return await proceed(details, request)

    async def scenario(stage: Stage) -> None:
        channel = stage.open(interceptors=[Noting()])
        for kind in KINDS:
            await finish(kind, start(stage, kind, channel))

    await on_proxyless(protos, scenario)
    assert seen == ["unary_unary", "unary_stream"]


@pytest.mark.parametrize("kind", STREAMING)
async def test_proxyless_accepts_a_stream_made_by_an_interceptor(protos: Protos, kind: str) -> None:
    """grpcio delivers it, too, but cannot close the channel any more."""

    async def act(_proceed: Untyped, _details: Untyped, _request: Untyped) -> Untyped:
        async def made_up() -> AsyncIterator[str]:
            yield "a"
            yield "b"

        return made_up()

    async def scenario(stage: Stage) -> object:
        channel = stage.open(interceptors=interceptors(act))
        call = start(stage, kind, channel)
        return await read_messages(call), await call.code(), await call.details(), stage.events

    assert await on_proxyless(protos, scenario) == (["a", "b"], grpc.StatusCode.OK, "", [])


async def test_proxyless_accepts_a_method_as_text_and_metadata_of_none(protos: Protos) -> None:
    """grpcio raises TypeError."""

    async def act(proceed: Untyped, details: Untyped, request: Untyped) -> Untyped:
        return await proceed(
            details._replace(method=details.method.decode(), metadata=None), request
        )

    async def scenario(stage: Stage) -> object:
        return await start(stage, "unary_unary", stage.open(interceptors=interceptors(act)))

    assert (await on_proxyless(protos, scenario)).name == "1/2"
