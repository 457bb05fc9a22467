"""Calls of the asyncio API that fail as soon as they are made, on our channel and on grpcio's.

A channel whose connections have failed fails new RPCs at once. The stub returns before the call is
over all the same: the end of a call is delivered in a later turn of the loop.
"""

import asyncio
import math

import grpc
import pytest

from tests.generated_protos import Protos
from tests.interop.drop_in import (
    KINDS,
    METHODS,
    Both,
    Stage,
    Untyped,
    on_proxyless,
    outcome_of,
    read_messages,
    start,
)

ON_BOTH_LOOPS = True
LIST = "/proxyless.test.routeguide.RouteGuide/ListPlaces"
UNAVAILABLE = ("AioRpcError", grpc.StatusCode.UNAVAILABLE)
DEADLINE_EXCEEDED = ("AioRpcError", grpc.StatusCode.DEADLINE_EXCEEDED)
OVER = ("InvalidStateError", "RPC already finished.")
WRITERS = ("stream_unary", "stream_stream")
FAILURES_IN_A_ROW = 2_000


async def lose_server(stage: Stage) -> None:
    """Stop the server, and return when RPCs fail because of that."""
    await stage.server.stop()
    first = await outcome_of(stage.greeter.SayHello(stage.hello()))
    assert first[:2] == UNAVAILABLE
    assert stage.channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE


def open_writer(stage: Stage, kind: str) -> Untyped:
    """A call of this kind without a request iterator."""
    return getattr(stage.guide, METHODS[kind])()


def write(stage: Stage, kind: str, call: Untyped) -> Untyped:
    return call.write(stage.point() if kind == "stream_unary" else stage.note("a"))


@pytest.mark.parametrize("kind", KINDS)
async def test_call_is_not_done_when_its_stub_returns(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        await lose_server(stage)
        call, seen = start(stage, kind), []
        call.add_done_callback(lambda call: seen.append(call.done()))
        at_first = call.done(), call.cancelled(), list(seen)
        return at_first, await call.code(), seen

    assert await both(scenario) == ((False, False, []), grpc.StatusCode.UNAVAILABLE, [True])


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
@pytest.mark.parametrize("kind", KINDS)
async def test_call_is_cancelled_before_its_failure_is_delivered(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        await lose_server(stage)
        call, seen = start(stage, kind), []
        call.add_done_callback(lambda _: seen.append("done"))
        is_first = call.cancel()
        at_once = call.done(), call.cancelled(), call.cancel(), list(seen)
        await asyncio.sleep(0.01)
        return is_first, at_once, await call.code(), await call.details(), seen

    is_first, at_once, code, details, seen = await both(scenario)
    assert (is_first, at_once) == (True, (True, True, False, ["done"]))
    assert (code, details) == (grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
    assert seen == ["done"]


@pytest.mark.parametrize("kind", KINDS)
async def test_waiting_for_connection_raises_when_rpc_fails_at_once(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        await lose_server(stage)
        call = start(stage, kind)
        return (await outcome_of(call.wait_for_connection()))[:2], call.done()

    assert await both(scenario) == (UNAVAILABLE, True)


@pytest.mark.parametrize("kind", WRITERS)
async def test_write_raises_the_status_when_rpc_fails_at_once(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        await lose_server(stage)
        call = open_writer(stage, kind)
        first = await outcome_of(write(stage, kind, call))
        second = await outcome_of(write(stage, kind, call))
        return first[:2], second, await outcome_of(call.done_writing())

    assert await both(scenario) == (UNAVAILABLE, OVER, ("returned", None))


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("kind", WRITERS)
async def test_first_write_raises_the_status_when_another_channel_has_failed(
    both: Both, kind: str, turns: int
) -> None:
    """A fresh channel fails in the turn after the stub returns: its subchannel has failed."""

    async def scenario(stage: Stage) -> object:
        await lose_server(stage)
        call = getattr(stage.guide_on(stage.open()), METHODS[kind])()
        for _ in range(turns):
            await asyncio.sleep(0)
        first = await outcome_of(write(stage, kind, call))
        return first[:2], await outcome_of(write(stage, kind, call))

    assert await both(scenario) == (UNAVAILABLE, OVER)


@pytest.mark.parametrize("kind", WRITERS)
async def test_write_raises_the_status_when_the_deadline_has_passed(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        await stage.channel.channel_ready()
        call = getattr(stage.guide, METHODS[kind])(timeout=-1)
        await asyncio.sleep(0)
        first = await outcome_of(write(stage, kind, call))
        return first[:2], await outcome_of(write(stage, kind, call)), stage.events

    assert await both(scenario) == (DEADLINE_EXCEEDED, OVER, [])


@pytest.mark.parametrize("timeout_s", [0, -1, math.nan])
async def test_rpc_is_not_sent_when_its_deadline_has_passed(
    protos: Protos, timeout_s: float
) -> None:
    """grpcio adds up to 10 ms, in which an RPC with a timeout of 0 may succeed."""

    async def scenario(stage: Stage) -> object:
        await stage.channel.channel_ready()
        calls = [start(stage, kind, timeout=timeout_s) for kind in KINDS]
        codes = {await call.code() for call in calls}
        # After these calls on the same connection.
        await stage.guide.FindPlace(stage.point())
        return codes, stage.events

    codes, events = await on_proxyless(protos, scenario)
    assert codes == {grpc.StatusCode.DEADLINE_EXCEEDED}
    assert events == ["FindPlace started", "FindPlace finished"]


@pytest.mark.parametrize("kind", KINDS)
async def test_call_may_be_cancelled_when_its_deadline_has_passed(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        await stage.channel.channel_ready()
        call = start(stage, kind, timeout=-1)
        await asyncio.sleep(0)
        return call.done(), call.cancel(), await call.code()

    assert await both(scenario) == (False, True, grpc.StatusCode.CANCELLED)


@pytest.mark.parametrize("kind", WRITERS)
async def test_all_writes_raise_the_status_when_rpc_fails_at_once(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        await lose_server(stage)
        call = open_writer(stage, kind)
        writes = [outcome_of(write(stage, kind, call)) for _ in range(3)]
        return [outcome[:2] for outcome in await asyncio.gather(*writes)]

    assert await both(scenario) == [UNAVAILABLE] * 3


@pytest.mark.parametrize("kind", WRITERS)
async def test_write_is_refused_when_the_failure_was_delivered(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        await lose_server(stage)
        call = open_writer(stage, kind)
        code = await call.code()
        return code, await outcome_of(write(stage, kind, call))

    assert await both(scenario) == (grpc.StatusCode.UNAVAILABLE, OVER)


@pytest.mark.rerun("limits the time of RPCs that fail one after the other")
async def test_done_callback_starts_the_next_rpc_when_each_fails_at_once(both: Both) -> None:
    async def scenario(stage: Stage) -> object:
        await lose_server(stage)
        loop, failures, errors = asyncio.get_running_loop(), 0, []
        finished = loop.create_future()
        loop.set_exception_handler(lambda _loop, context: errors.append(context["message"]))
        greeter, request = stage.greeter, stage.hello()

        def go_on(_call: Untyped = None) -> None:
            nonlocal failures
            failures += 1
            if failures > FAILURES_IN_A_ROW:
                finished.set_result(None)
            else:
                greeter.SayHello(request).add_done_callback(go_on)

        go_on()
        await asyncio.wait((finished,), timeout=5)
        loop.set_exception_handler(None)
        return failures, errors

    assert await both(scenario) == (FAILURES_IN_A_ROW + 1, [])


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
async def test_call_is_not_done_when_its_request_is_too_large(both: Both, kind: str) -> None:
    async def scenario(stage: Stage) -> object:
        channel = stage.open(options=[("grpc.max_send_message_length", 1)])
        call = start(stage, kind, channel)
        return call.done(), await call.code()

    assert await both(scenario) == (False, grpc.StatusCode.RESOURCE_EXHAUSTED)


async def test_late_write_raises_the_servers_error_and_keeps_responses(protos: Protos) -> None:
    """grpcio's write raises INTERNAL, and what was not read is gone."""

    async def scenario(stage: Stage) -> object:
        then = (("then", "abort"),)
        call = stage.channel.stream_stream(LIST)(metadata=then)
        await call.write(stage.way(3).SerializeToString())
        await stage.until_event("ListPlaces failed")
        await stage.greeter.SayHello(stage.hello())
        late = await outcome_of(call.write(b""))
        responses = [await call.read() for _ in range(3)]
        return late[:2], len(responses), (await outcome_of(read_messages(call)))[:2]

    aborted = ("AioRpcError", grpc.StatusCode.FAILED_PRECONDITION)
    assert await on_proxyless(protos, scenario) == (aborted, 3, aborted)


@pytest.mark.parametrize("kind", WRITERS)
async def test_done_writing_returns_when_rpc_fails_at_once(protos: Protos, kind: str) -> None:
    """grpcio's raises an error of its C++ layer."""

    async def scenario(stage: Stage) -> object:
        await lose_server(stage)
        call = open_writer(stage, kind)
        return await outcome_of(call.done_writing()), await call.code()

    assert await on_proxyless(protos, scenario) == (("returned", None), grpc.StatusCode.UNAVAILABLE)
