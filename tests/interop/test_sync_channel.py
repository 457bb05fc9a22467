"""The blocking channel and grpcio's in the same scenarios.

Scenarios in which both stacks must agree run with `both`; those about threads, forks and the end of
the interpreter run with ours alone.
"""

import gc
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

import proxyless
from proxyless.base import State
from proxyless.front import SyncChannel
from tests.certificates import CertificateAuthority
from tests.generated_protos import generate_protos
from tests.interop.drop_in import ABORT, HANG, RAISE
from tests.interop.drop_in_sync import (
    BothSync,
    SyncStage,
    Untyped,
    collect,
    describe,
    outcome_of,
    until_sync,
)
from tests.worlds.transports import PATIENCE_S

READY, _ = grpc.ChannelConnectivity.READY.value
STEERED = (("x-one", "1"), ("x-bin", b"\x00\xff"), ("t-two", "2"), ("t-two", "3"))


@pytest.fixture(scope="module")
def both() -> BothSync:
    return BothSync(generate_protos())


# The four kinds of calls, with generated stubs


def test_a_unary_call_returns_the_response(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        reply = stage.greeter.SayHello(stage.hello("Ada"), timeout=PATIENCE_S)
        return type(reply), reply.message

    assert both(scenario)[1] == "hello, Ada"


def test_with_call_returns_response_and_call(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        reply, call = stage.greeter.SayHello.with_call(stage.hello(), metadata=STEERED)
        assert isinstance(call, grpc.Call)
        return reply.message, describe(call), call.is_active(), call.cancel()

    _, described, *_ = both(scenario)
    assert described["trailing"] == [("t-two", "2"), ("t-two", "3")]


def test_future_returns_the_response(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = stage.greeter.SayHello.future(stage.hello(), metadata=STEERED)
        assert isinstance(call, grpc.Future)
        assert isinstance(call, grpc.Call)
        seen = call.result(timeout=PATIENCE_S).message, call.exception(), call.traceback()
        return seen, describe(call), call.cancel(), call.is_active()

    both(scenario)


def test_streamed_responses_are_iterated(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = stage.guide.ListPlaces(stage.way(50), metadata=STEERED)
        assert iter(call) is call
        first = next(call).name
        return first, [place.name for place in call], describe(call), call.result()

    assert len(both(scenario)[1]) == 49


def test_streamed_requests_are_consumed(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        measure = stage.guide.MeasureWay
        reply, call = measure.with_call(stage.points(100), metadata=STEERED)
        future = measure.future(stage.points(7))
        return measure(stage.points(3)), reply, describe(call), future.result(PATIENCE_S)

    assert both(scenario)[1].points == 100


def test_streams_run_both_ways(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = stage.guide.Chat(stage.notes("a", "b", "c"), metadata=STEERED)
        return [(note.text, note.number) for note in call], describe(call)

    assert both(scenario)[0] == [("a", 1), ("b", 2), ("c", 3)]


def test_a_request_may_depend_on_the_response_before_it(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        requests: SimpleQueue[Any] = SimpleQueue()
        call = stage.guide.Chat(iter(requests.get, None))
        seen = []
        for text in ("a", "b", "c"):
            requests.put(stage.protos.route_guide.Note(text=text))
            seen.append(next(call).text)
        requests.put(None)
        return seen, collect(call), call.code()

    both(scenario)


def test_an_empty_stream_of_requests_is_a_stream(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        return stage.guide.MeasureWay(iter(())), collect(stage.guide.Chat(iter(())))

    both(scenario)


def test_without_serializers_messages_are_bytes(both: BothSync) -> None:
    path = "/proxyless.test.helloworld.Greeter/SayHello"

    def scenario(stage: SyncStage) -> object:
        call = stage.channel.unary_unary(path)
        return call(stage.hello("bytes").SerializeToString())

    assert b"hello, bytes" in both(scenario)


def test_a_path_may_be_bytes(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        greet = stage.channel.unary_unary(b"/proxyless.test.helloworld.Greeter/SayHello")
        places = stage.channel.unary_stream(b"/proxyless.test.routeguide.RouteGuide/ListPlaces")
        request = stage.hello("bytes").SerializeToString()
        return greet(request), len(collect(places(stage.way(2).SerializeToString())))

    assert both(scenario)[1] == 2


# How calls fail


@pytest.mark.parametrize("then", [ABORT, RAISE])
def test_a_failed_unary_call_raises_an_error_that_is_a_call(both: BothSync, then: Untyped) -> None:
    def scenario(stage: SyncStage) -> object:
        say = stage.greeter.SayHello
        return (
            outcome_of(lambda: say(stage.hello(), metadata=(*STEERED, *then))),
            outcome_of(lambda: say.with_call(stage.hello(), metadata=then)),
            outcome_of(lambda: stage.guide.MeasureWay(stage.points(3), metadata=then)),
        )

    assert both(scenario)[0][0] == "RpcError"


def test_a_failed_future_raises_and_is_its_own_exception(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = stage.greeter.SayHello.future(stage.hello(), metadata=ABORT)
        raised = outcome_of(lambda: call.result(PATIENCE_S))
        return raised, call.exception() is call, call.traceback() is not None, describe(call)

    assert both(scenario)[1:3] == (True, True)


def test_responses_before_a_failure_are_delivered_and_the_call_is_raised(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = stage.guide.ListPlaces(stage.way(3), metadata=ABORT)
        seen: list[str] = []
        try:
            for place in call:
                seen.append(place.name)  # noqa: PERF401 - keeps the responses before an error
        except grpc.RpcError as error:
            is_call = error is call
        return seen, is_call, describe(call), outcome_of(lambda: next(call))

    assert both(scenario)[0] == ["place 0", "place 1", "place 2"]


def test_a_method_that_does_not_exist_is_unimplemented(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        goodbye, unknown = stage.greeter.SayGoodbye, stage.channel.unary_unary("/no.Such/Method")
        return outcome_of(lambda: goodbye(stage.hello())), outcome_of(lambda: unknown(b""))

    both(scenario)


def test_an_error_shows_itself_as_grpcios_does(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        with pytest.raises(grpc.RpcError) as raised:
            stage.greeter.SayHello(stage.hello(), metadata=ABORT)
        lines = str(raised.value).splitlines()
        assert "debug_error_string" in lines[3]
        future = stage.greeter.SayHello.future(stage.hello(), metadata=ABORT)
        assert future.exception() is future
        return lines[:3], lines[4:], str(future).partition("\n")[0]

    both(scenario)


def test_errors_are_caught_by_the_names_in_grpcios_tracebacks(both: BothSync) -> None:
    """Many applications catch `grpc._channel._InactiveRpcError`, though the name is private."""

    def scenario(stage: SyncStage) -> object:
        calls = (
            lambda: stage.greeter.SayHello(stage.hello(), metadata=ABORT),
            lambda: stage.guide.MeasureWay(stage.points(1), metadata=ABORT),
            lambda: stage.greeter.SayHello.future(stage.hello(), metadata=ABORT).result(),
            lambda: collect(stage.guide.ListPlaces(stage.way(1), metadata=ABORT)),
            lambda: collect(stage.guide.Chat(stage.notes("a"), metadata=ABORT)),
        )
        return [_private_name_of(call) for call in calls]

    inactive, running = "_InactiveRpcError", "_MultiThreadedRendezvous"
    assert both(scenario) == [inactive, inactive, running, running, running]


def _private_name_of(call: Untyped) -> str:
    try:
        call()
    except grpc._channel._InactiveRpcError:  # noqa: SLF001
        return "_InactiveRpcError"
    except grpc._channel._MultiThreadedRendezvous:  # noqa: SLF001
        return "_MultiThreadedRendezvous"
    raise AssertionError("the server aborts the call")


def test_private_state_of_a_call_has_the_status(both: BothSync) -> None:
    """Many applications read `error._state.code`, though the name is private."""

    def scenario(stage: SyncStage) -> object:
        with pytest.raises(grpc.RpcError) as raised:
            stage.greeter.SayHello(stage.hello(), metadata=(*STEERED, *ABORT))
        stream = stage.guide.ListPlaces(stage.way(1), metadata=HANG)
        before = stream._state.code, stream._state.details  # noqa: SLF001
        stream.cancel()
        states = [raised.value._state, stream._state]  # noqa: SLF001
        ended = [(state.code, state.details, state.cancelled) for state in states]
        first = states[0]
        return before, ended, first.initial_metadata, first.trailing_metadata

    before, ended, *_ = both(scenario)
    assert before == (None, None)
    assert [code for code, *_ in ended] == [
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.CANCELLED,
    ]


def test_grpcios_private_module_is_imported_with_a_blocking_channel() -> None:
    program = "import grpc, proxyless; proxyless.insecure_channel('a'); grpc._channel._Rendezvous"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    subprocess.run(command, check=True, timeout=PATIENCE_S, env=environment)


def test_a_running_call_and_one_that_is_over_show_themselves(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = stage.greeter.SayHello.future(stage.hello(), metadata=HANG)
        before = repr(call).split(" ", 1)[1]
        call.cancel()
        done = stage.greeter.SayHello.with_call(stage.hello())[1]
        return before, repr(call).splitlines()[1:3], repr(done).splitlines()[1:]

    both(scenario)


def test_argument_of_an_error_has_its_status(both: BothSync) -> None:
    """Some applications read `error.args[0].details`."""

    def scenario(stage: SyncStage) -> object:
        with pytest.raises(grpc.RpcError) as raised:
            stage.greeter.SayHello(stage.hello(), metadata=ABORT)
        [state] = raised.value.args
        return state.code, state.details

    assert both(scenario) == (grpc.StatusCode.FAILED_PRECONDITION, "not today: 100 %, né")


def test_arguments_of_an_error_can_be_assigned(both: BothSync) -> None:
    """Some applications add a text to them, and raise the error again."""

    def scenario(stage: SyncStage) -> object:
        with pytest.raises(grpc.RpcError) as raised:
            stage.greeter.SayHello(stage.hello(), metadata=ABORT)
        error = raised.value
        error.args = ("order 7", *error.args)
        [context, state] = error.args
        return context, state.details, error.code()

    code = grpc.StatusCode.FAILED_PRECONDITION
    assert both(scenario) == ("order 7", "not today: 100 %, né", code)


@pytest.mark.parametrize("copy", [lambda error: pickle.loads(pickle.dumps(error)), deepcopy])
def test_an_error_can_be_pickled_and_copied_where_grpcios_cannot(
    both: BothSync, copy: Untyped
) -> None:
    """As between the processes of `multiprocessing`."""

    def scenario(stage: SyncStage) -> object:
        with pytest.raises(grpc.RpcError) as raised:
            stage.greeter.SayHello(stage.hello(), metadata=ABORT)
        if stage.stack is grpc:
            with pytest.raises(TypeError, match="cannot pickle"):
                copy(raised.value)
            return None
        return copy(raised.value)

    both.run_scenario(scenario, grpc, {})
    error = both.ours(scenario)
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error.details() == error.args[0].details == "not today: 100 %, né"


def test_rpc_is_unavailable_when_there_is_no_server(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        stage.server.stop()
        with pytest.raises(grpc.RpcError) as raised:
            stage.greeter.SayHello(stage.hello(), timeout=PATIENCE_S)
        return raised.value.code()

    assert both(scenario) is grpc.StatusCode.UNAVAILABLE


def test_list_of_requests_is_sent_where_grpcio_needs_an_iterator(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        points = list(stage.points(2))
        summary = outcome_of(lambda: stage.guide.MeasureWay(points).points)
        return summary, outcome_of(lambda: len(list(stage.guide.Chat(list(stage.notes("a"))))))

    theirs, ours = both.run_scenario(scenario, grpc, {}), both.ours(scenario)
    for _, _, code, details, *_ in theirs:
        assert code == ("code", grpc.StatusCode.UNKNOWN)
        assert details == ("details", "Exception iterating requests!")
    assert ours == (("returned", 2), ("returned", 1))


def test_what_cannot_be_serialized_is_an_internal_error(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        greeter, guide = stage.greeter, stage.guide
        calls = (
            lambda: greeter.SayHello("no message"),
            lambda: greeter.SayHello.future("no message"),
            lambda: guide.ListPlaces("no message"),
            lambda: guide.MeasureWay(iter(["no message"])),
            lambda: collect(guide.Chat(iter(["no message"]))),
        )
        return [_code_of(call) for call in calls]

    assert set(both(scenario)) == {grpc.StatusCode.INTERNAL}


def _broken(_: bytes) -> object:
    raise ValueError("what is this?")


@pytest.mark.parametrize("kind", ["call", "with_call", "future", "stream"])
def test_a_deserializer_that_returns_nothing_is_an_internal_error(
    both: BothSync, kind: str
) -> None:
    def scenario(stage: SyncStage) -> object:
        def nothing(_: bytes) -> None:
            return None

        if kind == "stream":
            places = stage.channel.unary_stream(
                "/proxyless.test.routeguide.RouteGuide/ListPlaces",
                stage.way(3).__class__.SerializeToString,
                nothing,
            )
            return _code_of(lambda: collect(places(stage.way(3))))
        hello = stage.channel.unary_unary(
            "/proxyless.test.helloworld.Greeter/SayHello",
            stage.hello().__class__.SerializeToString,
            nothing,
        )
        ways: dict[str, Untyped] = {
            "call": lambda: hello(stage.hello()),
            "with_call": lambda: hello.with_call(stage.hello()),
            "future": lambda: hello.future(stage.hello()).result(),
        }
        return _code_of(ways[kind])

    assert both(scenario) is grpc.StatusCode.INTERNAL


def test_what_cannot_be_deserialized_is_an_internal_error(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        greet = stage.channel.unary_unary(
            "/proxyless.test.helloworld.Greeter/SayHello",
            response_deserializer=_broken,
        )
        places = stage.channel.unary_stream(
            "/proxyless.test.routeguide.RouteGuide/ListPlaces",
            request_serializer=lambda way: way.SerializeToString(),
            response_deserializer=_broken,
        )
        future = greet.future(b"")
        return (
            _code_of(lambda: greet(b"")),
            _code_of(future.result),
            future.code(),
            _code_of(lambda: collect(places(stage.way(3)))),
        )

    assert set(both(scenario)) == {grpc.StatusCode.INTERNAL}


def _code_of(function: Untyped) -> Untyped:
    with pytest.raises(grpc.RpcError) as raised:
        function()
    return raised.value.code()


def test_a_request_iterator_that_raises_ends_the_call(
    both: BothSync, caplog: pytest.LogCaptureFixture
) -> None:
    def scenario(stage: SyncStage) -> object:
        def broken() -> Untyped:
            yield from stage.points(2)
            raise OSError("no more points")

        with pytest.raises(grpc.RpcError) as raised:
            stage.guide.MeasureWay(broken())
        return raised.value.code()

    assert both(scenario) is grpc.StatusCode.UNKNOWN
    assert "no more points" in caplog.text


# Deadlines


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
def test_a_call_takes_no_longer_than_its_timeout(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        greeter, guide = stage.greeter, stage.guide
        calls = {
            "unary": lambda: greeter.SayHello(stage.hello(), timeout=0.1, metadata=HANG),
            "stream": lambda: collect(guide.ListPlaces(stage.way(0), timeout=0.1, metadata=HANG)),
            "passed": lambda: greeter.SayHello(stage.hello(), timeout=-1.0),
            "future": lambda: greeter.SayHello.future(
                stage.hello(), timeout=0.1, metadata=HANG
            ).result(),
        }
        return {name: outcome_of(call)[:4] for name, call in calls.items()}

    seen = both(scenario)
    assert ("code", grpc.StatusCode.DEADLINE_EXCEEDED) in seen["unary"]


@pytest.mark.parametrize("timeout", [Fraction(20), True, Decimal(20), "20"])
def test_timeout_may_be_any_real_number(both: BothSync, timeout: object) -> None:
    """As those of numpy are."""

    def scenario(stage: SyncStage) -> object:
        return outcome_of(lambda: stage.greeter.SayHello(stage.hello(), timeout=timeout))[0]

    assert both(scenario) == ("returned" if isinstance(timeout, Real) else "TypeError")


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
def test_a_blocked_request_iterator_does_not_hold_up_the_deadline(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        blocked = threading.Event()

        def requests() -> Untyped:
            yield from stage.points(1)
            blocked.wait(PATIENCE_S)

        try:
            return outcome_of(lambda: stage.guide.MeasureWay(requests(), timeout=0.1))[2]
        finally:
            blocked.set()

    assert both(scenario) == ("code", grpc.StatusCode.DEADLINE_EXCEEDED)


def test_server_gets_the_deadline_and_the_call_has_the_remaining_time(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        seen = stage.greeter.Describe(stage.hello(), timeout=30.0)
        call = stage.guide.ListPlaces(stage.way(0), timeout=30.0, metadata=HANG)
        free = stage.guide.ListPlaces(stage.way(0), metadata=HANG)
        try:
            return (
                25 < seen.time_remaining < 31,
                25 < call.time_remaining() < 31,
                (free.time_remaining()),
            )
        finally:
            call.cancel()
            free.cancel()

    assert both(scenario) == (True, True, None)


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
def test_waiting_for_a_result_may_be_limited_and_resumed(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = stage.greeter.SayHello.future(stage.hello(), metadata=HANG)
        for ask in (call.result, call.exception, call.traceback):
            with pytest.raises(grpc.FutureTimeoutError):
                ask(timeout=0.01)
        seen = call.running(), call.done()
        call.cancel()
        return seen, outcome_of(call.result)

    assert both(scenario) == ((True, False), ("FutureCancelledError",))


# Cancelling


def test_future_is_cancelled_at_once_and_the_server_is_notified(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = stage.greeter.SayHello.future(stage.hello(), metadata=HANG)
        stage.until_event("SayHello started")
        seen = call.cancel(), call.cancelled(), call.done(), call.code(), call.details()
        results = [outcome_of(ask) for ask in (call.result, call.exception, call.traceback)]
        stage.until_event("SayHello over")
        return seen, results, call.cancel()

    assert both(scenario)[0][:3] == (True, True, True)


def test_a_cancelled_stream_is_raised_by_its_iterator(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = stage.guide.ListPlaces(stage.way(3), metadata=HANG)
        seen = next(call).name
        call.cancel()
        after = outcome_of(lambda: next(call))
        stage.until_event("ListPlaces over")
        return seen, after, describe(call), call.is_active()

    both(scenario)


def answered(stage: SyncStage, **options: Untyped) -> Untyped:
    """A stream of three responses and its end, all of which is here, and nothing is read."""
    call = stage.guide.ListPlaces(stage.way(3), **options)
    stage.until_event("ListPlaces over")
    # On the same connection, so earlier frames of the server have arrived before.
    stage.greeter.SayHello(stage.hello(), timeout=PATIENCE_S)
    return call


@pytest.mark.parametrize("then", [(), ABORT])
def test_a_stream_is_active_until_it_is_read(both: BothSync, then: Untyped) -> None:
    def scenario(stage: SyncStage) -> object:
        call = answered(stage, metadata=then)
        called: list[int] = []
        assert call.add_callback(lambda: called.append(1))
        stage.greeter.SayHello(stage.hello(), timeout=PATIENCE_S)
        seen = (call.is_active(), call.done(), call.running(), called[:])
        names = []
        while call.is_active():
            try:
                names.append(next(call).name)
            except (StopIteration, grpc.RpcError):
                break
        until_sync(lambda: called, "the callback")
        return seen, names, describe(call), call.is_active(), call.cancel()

    seen, names, described, *ended = both(scenario)
    assert seen == (True, False, True, [])
    assert names == ["place 0", "place 1", "place 2"]
    assert described["code"].name == ("FAILED_PRECONDITION" if then else "OK")
    assert ended == [False, False]


@pytest.mark.parametrize("then", [(), ABORT])
@pytest.mark.parametrize("reads", [0, 1])
def test_a_stream_that_is_answered_but_not_read_may_be_cancelled(
    both: BothSync, then: Untyped, reads: int
) -> None:
    def scenario(stage: SyncStage) -> object:
        call = answered(stage, metadata=then)
        called: list[int] = []
        assert call.add_callback(lambda: called.append(1))
        for _ in range(reads):
            next(call)
        cancelled = (call.cancel(), call.is_active(), call.cancelled())
        outcomes = [outcome_of(lambda: next(call)) for _ in range(2)]
        until_sync(lambda: called, "the callback")
        # Not the trailing metadata: with grpcio that is there a little later.
        return cancelled, outcomes, call.code(), call.details(), call.cancel()

    cancelled, _, code, _, again = both(scenario)
    assert (cancelled, again) == ((True, False, True), False)
    assert code is grpc.StatusCode.CANCELLED


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
def test_unread_stream_ends_at_its_deadline(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        stage.greeter.SayHello(stage.hello(), timeout=PATIENCE_S)
        # It is answered long before that. If not, on a slow machine, it ends all the same.
        call = stage.guide.ListPlaces(stage.way(3), timeout=0.5)
        called: list[int] = []
        assert call.add_callback(lambda: called.append(1))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(call.code)
            until_sync(lambda: called, "the callback")
            code = waiting.result(PATIENCE_S)
        return code, call.is_active(), call.cancelled(), call.cancel()

    assert both(scenario) == (grpc.StatusCode.DEADLINE_EXCEEDED, False, False, False)


@pytest.mark.parametrize("reads", [0, 1])
def test_unread_stream_ends_when_the_channel_is_closed(both: BothSync, reads: int) -> None:
    def scenario(stage: SyncStage) -> object:
        call = answered(stage)
        called: list[int] = []
        assert call.add_callback(lambda: called.append(1))
        for _ in range(reads):
            next(call)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(call.code)
            stage.channel.close()
            until_sync(lambda: called, "the callback")
            code = waiting.result(PATIENCE_S)
        return code, call.is_active(), call.cancelled(), call.cancel()

    assert both(scenario) == (grpc.StatusCode.CANCELLED, False, False, False)


def test_dropped_stream_with_unread_responses_is_collected(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = answered(stage)
        core = stage.channel.bind().core
        calls = core.calls
        del call
        gc.collect()
        until_sync(lambda: not core.calls, "the end of the stream")
        return calls

    assert both.ours(scenario) == 1


def test_stream_that_was_read_is_collected(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = answered(stage, timeout=PATIENCE_S)
        core = stage.channel.bind().core
        responses = len(collect(call))
        until_sync(lambda: not core.calls, "the end of the stream")
        return responses

    assert both.ours(scenario) == 3


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
def test_a_result_that_is_not_read_is_waited_for(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = answered(stage)
        return outcome_of(lambda: call.result(timeout=0.01)), len(collect(call)), call.result()

    assert both(scenario) == (("FutureTimeoutError",), 3, None)


def test_another_thread_may_cancel_what_one_waits_for(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = stage.guide.ListPlaces(stage.way(0), metadata=HANG)
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(outcome_of, lambda: next(call))
            stage.until_event("ListPlaces started")
            call.cancel()
            return reading.result(PATIENCE_S)

    both(scenario)


def test_a_call_may_be_cancelled_before_there_is_a_connection(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        channel = stage.open("127.0.0.1:1")
        call = stage.greeter_on(channel).SayHello.future(stage.hello(), wait_for_ready=True)
        return call.cancel(), outcome_of(call.result), call.code()

    both(scenario)


def test_a_stream_that_is_dropped_is_cancelled(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = stage.guide.ListPlaces(stage.way(1), metadata=HANG)
        next(call)
        del call
        gc.collect()
        stage.until_event("ListPlaces over")
        return "cancelled"

    both(scenario)


def test_a_chat_that_is_dropped_is_cancelled(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = stage.guide.Chat(stage.notes("a"), metadata=HANG)
        next(call)
        del call
        gc.collect()
        stage.until_event("Chat over")
        return "cancelled"

    both(scenario)


# Callbacks


def test_callbacks_run_when_the_call_is_over(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        called: SimpleQueue[Any] = SimpleQueue()
        call = stage.greeter.SayHello.future(stage.hello(), metadata=HANG)
        call.add_done_callback(lambda done: called.put((done is call, done.done())))
        added = call.add_callback(lambda: called.put("called"))
        call.cancel()
        first = sorted(str(called.get(timeout=PATIENCE_S)) for _ in range(2))
        call.add_done_callback(lambda done: called.put("at once"))
        until_sync(lambda: not call.add_callback(lambda: None), "the end")
        return added, first, called.get_nowait()

    both(scenario)


def test_a_callback_may_make_a_blocking_call(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        called: SimpleQueue[Any] = SimpleQueue()

        def ask_again(done: Untyped) -> None:
            called.put(done.result().message)
            called.put(stage.greeter.SayHello(stage.hello("again"), timeout=PATIENCE_S).message)

        stage.greeter.SayHello.future(stage.hello()).add_done_callback(ask_again)
        return [called.get(timeout=PATIENCE_S) for _ in range(2)]

    assert both(scenario) == ["hello, you", "hello, again"]


def test_a_callback_may_wait_for_the_state_of_its_channel(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        called: SimpleQueue[Any] = SimpleQueue()

        def wait(_: Untyped) -> None:
            called.put(grpc.channel_ready_future(stage.channel).result(timeout=PATIENCE_S))

        stage.greeter.SayHello.future(stage.hello()).add_done_callback(wait)
        return called.get(timeout=PATIENCE_S)

    both(scenario)


def test_a_callback_that_raises_does_not_harm_the_next(
    both: BothSync, caplog: pytest.LogCaptureFixture
) -> None:
    def scenario(stage: SyncStage) -> object:
        called: SimpleQueue[Any] = SimpleQueue()

        def broken(_: Untyped) -> None:
            raise RuntimeError("broken callback")

        call = stage.greeter.SayHello.future(stage.hello(), metadata=HANG)
        call.add_done_callback(broken)
        call.add_done_callback(lambda _: called.put("next"))
        call.cancel()
        return called.get(timeout=PATIENCE_S)

    both(scenario)
    assert "broken callback" in caplog.text


# Metadata, compression, credentials, options


def test_initial_metadata_is_available_before_the_end(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        metadata = (*STEERED, *HANG)
        call = stage.guide.ListPlaces(stage.way(0), metadata=metadata)
        found = call.initial_metadata()
        pairs = [(pair.key, pair.value) for pair in found if pair.key.startswith("x-")]
        active = call.is_active()
        call.cancel()
        return sorted(pairs), active

    assert both(scenario) == ([("x-bin", b"\x00\xff"), ("x-one", "1")], True)


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_messages_may_be_compressed(both: BothSync, compression: grpc.Compression) -> None:
    def scenario(stage: SyncStage) -> object:
        padded = stage.hello(padding=bytes(10_000), reply_padding_bytes=10_000)
        channel = stage.open(compression=compression)
        reply = stage.greeter_on(channel).SayHello(padded)
        again = stage.greeter.SayHello(padded, compression=compression)
        chat = stage.guide.Chat(stage.notes("a" * 5000), compression=compression)
        return reply, again, collect(chat)

    both(scenario)


def test_a_large_message_is_refused_as_in_grpcio(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        options = [("grpc.max_send_message_length", 100), ("grpc.max_receive_message_length", 100)]
        greeter = stage.greeter_on(stage.open(options=options))
        return (
            _code_of(lambda: greeter.SayHello(stage.hello(padding=bytes(200)))),
            _code_of(lambda: greeter.SayHello(stage.hello(reply_padding_bytes=200))),
        )

    assert set(both(scenario)) == {grpc.StatusCode.RESOURCE_EXHAUSTED}


@pytest.mark.rerun("has a deadline of milliseconds, before which the RPC must reach the server")
def test_wait_for_ready_rpc_waits_until_the_server_is_started(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        server = stage.server
        server.stop()
        options = [("grpc.initial_reconnect_backoff_ms", 100)]
        call = stage.greeter_on(stage.open(options=options)).SayHello.future(
            stage.hello(), wait_for_ready=True, timeout=0.3
        )
        return outcome_of(call.result)[2]

    assert both(scenario) == ("code", grpc.StatusCode.DEADLINE_EXCEEDED)


class _Token(grpc.AuthMetadataPlugin):  # type: ignore[misc]
    """Credentials that answer in a thread of their own, as those of clouds do."""

    def __call__(self, context: Untyped, callback: Untyped) -> None:
        found = (("x-token", "secret"), ("t-url", context.service_url.rpartition("/")[2]))
        threading.Thread(target=callback, args=(found, None)).start()


class _Asking(grpc.AuthMetadataPlugin):  # type: ignore[misc]
    """Credentials that make a blocking call to get their token."""

    def __init__(self, ask: Untyped) -> None:
        self._ask = ask

    def __call__(self, context: Untyped, callback: Untyped) -> None:
        callback((("x-token", self._ask()),), None)


def _server_credentials(authority: CertificateAuthority) -> grpc.ServerCredentials:
    certificate, key = authority.issue(["localhost", "127.0.0.1"])
    return grpc.ssl_server_credentials([(key, certificate)])


@pytest.mark.parametrize("maker", [grpc, proxyless])
def test_credentials_of_either_library_secure_a_channel(
    both: BothSync, authority: CertificateAuthority, maker: Untyped
) -> None:
    def scenario(stage: SyncStage) -> object:
        if stage.stack is grpc and maker is proxyless:
            credentials = grpc.ssl_channel_credentials(authority.certificate_pem)
        else:
            credentials = maker.ssl_channel_credentials(authority.certificate_pem)
        channel = stage.open_secure(credentials)
        return stage.greeter_on(channel).SayHello(stage.hello(), timeout=PATIENCE_S).message

    both(scenario, credentials=_server_credentials(authority))


def test_call_credentials_add_metadata(both: BothSync, authority: CertificateAuthority) -> None:
    def scenario(stage: SyncStage) -> object:
        token = grpc.metadata_call_credentials(_Token())
        tls = grpc.ssl_channel_credentials(authority.certificate_pem)
        greeter = stage.greeter_on(stage.open_secure(tls))
        _, call = greeter.SayHello.with_call(stage.hello(), credentials=token, timeout=PATIENCE_S)
        both_kinds = stage.open_secure(grpc.composite_channel_credentials(tls, token))
        _, other = stage.greeter_on(both_kinds).SayHello.with_call(stage.hello())
        return describe(call), describe(other)

    seen = both(scenario, credentials=_server_credentials(authority))
    assert ("x-token", "secret") in seen[0]["initial"]


def test_call_credentials_may_block(both: BothSync, authority: CertificateAuthority) -> None:
    def scenario(stage: SyncStage) -> object:
        tls = grpc.ssl_channel_credentials(authority.certificate_pem)
        tokens = stage.greeter_on(stage.open_secure(tls))
        asking = _Asking(lambda: tokens.SayHello(stage.hello("token"), timeout=5).message)
        _, call = stage.greeter_on(stage.open_secure(tls)).SayHello.with_call(
            stage.hello(), credentials=grpc.metadata_call_credentials(asking), timeout=5
        )
        return describe(call)

    seen = both(scenario, credentials=_server_credentials(authority))
    assert seen["initial"] == [("x-token", "hello, token")]


# Interceptors


class _Tagging(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """Adds metadata to each call and records its result."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def _go_on(self, proceed: Untyped, details: Untyped, request: Untyped) -> Untyped:
        tagged = details._replace(metadata=[*(details.metadata or ()), ("t-tag", "yes")])
        call = proceed(tagged, request)
        call.add_done_callback(lambda done: self.seen.append(done.code()))
        return call

    intercept_unary_unary = intercept_unary_stream = _go_on
    intercept_stream_unary = intercept_stream_stream = _go_on


def test_grpcios_interceptors_work_on_every_kind_of_call(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        tagging = _Tagging()
        channel = grpc.intercept_channel(stage.channel, tagging, _Tagging())
        greeter, guide = stage.greeter_on(channel), stage.guide_on(channel)
        _, call = greeter.SayHello.with_call(stage.hello())
        future = greeter.SayHello.future(stage.hello())
        places = guide.ListPlaces(stage.way(2))
        chat = guide.Chat(stage.notes("a", "b"))
        results = [
            greeter.SayHello(stage.hello()),
            plain_trailers(call),
            future.result(PATIENCE_S),
            len(collect(places)),
            plain_trailers(places),
            guide.MeasureWay(stage.points(3)),
            len(collect(chat)),
            plain_trailers(chat),
            outcome_of(lambda: greeter.SayHello(stage.hello(), metadata=ABORT)),
        ]
        until_sync(lambda: len(tagging.seen) == 7, "every callback")
        return results, sorted(map(str, tagging.seen))

    both(scenario)


def plain_trailers(call: Untyped) -> list[Any]:
    return [tuple(pair) for pair in call.trailing_metadata()]


# Connectivity and the end of a channel


def test_subscriber_is_called_with_every_state(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        states: list[Any] = []
        channel = stage.open()
        channel.subscribe(states.append)
        until_sync(lambda: states, "the first state")
        channel.subscribe(lambda _: None, try_to_connect=True)
        until_sync(lambda: grpc.ChannelConnectivity.READY in states, "READY")
        first, last = states[0], states[-1]
        channel.unsubscribe(states.append)
        stage.greeter_on(channel).SayHello(stage.hello())
        return first, last

    both(scenario)


def test_private_channel_has_state_and_target(both: BothSync) -> None:
    """Many applications call them: no public method of a blocking channel returns its state."""

    def scenario(stage: SyncStage) -> object:
        channel = stage.open()
        private = channel._channel  # noqa: SLF001
        states = [private.check_connectivity_state(False)]
        until_sync(lambda: private.check_connectivity_state(True) == READY, "a connection")
        address = stage.server.target.encode()
        target = private.target().replace(address, b"address")
        channel.close()
        return states, target, error_of(lambda: private.check_connectivity_state(False))

    assert both(scenario)[:2] == ([0], b"dns:///address")


def test_a_closed_channel_may_be_subscribed_to(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        channel = stage.open()
        channel.close()
        channel.subscribe(lambda _: None)
        channel.unsubscribe(print)
        ready = grpc.channel_ready_future(channel)
        return ready.cancel()

    both.ours(scenario)


def test_the_ready_future_is_done_when_the_channel_is_ready(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        ready = grpc.channel_ready_future(stage.channel)
        return ready.result(timeout=PATIENCE_S), ready.done()

    both(scenario)


@pytest.mark.rerun("sleeps for milliseconds until grpcio's server or client has acted")
def test_ready_future_times_out_when_there_is_no_server(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        ready = grpc.channel_ready_future(stage.open("127.0.0.1:1"))
        seen = outcome_of(lambda: ready.result(timeout=0.2))
        return seen, ready.cancel(), outcome_of(ready.result)

    assert both(scenario)[0] == ("FutureTimeoutError",)


def error_of(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - returned
        call()
    return type(raised.value).__name__, str(raised.value)


def test_closing_ends_calls_and_refuses_new_ones(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        channel = stage.open()
        greeter, guide = stage.greeter_on(channel), stage.guide_on(channel)
        call = greeter.SayHello.future(stage.hello(), metadata=HANG)
        stream = guide.ListPlaces(stage.way(0), metadata=HANG)
        stage.until_event("ListPlaces started")
        stage.until_event("SayHello started")
        channel.close()
        channel.close()
        ended = outcome_of(call.result), outcome_of(lambda: next(stream))
        refused = [
            error_of(lambda: greeter.SayHello(stage.hello())),
            error_of(lambda: greeter.SayHello.with_call(stage.hello())),
            error_of(lambda: greeter.SayHello.future(stage.hello())),
            error_of(lambda: guide.ListPlaces(stage.way(0))),
            error_of(lambda: guide.MeasureWay(stage.points(1))),
            error_of(lambda: guide.MeasureWay.with_call(stage.points(1))),
            error_of(lambda: guide.MeasureWay.future(stage.points(1))),
            error_of(lambda: guide.Chat(stage.notes())),
        ]
        return ended, refused

    (first, _), refused = both(scenario)
    assert ("details", "Channel closed!") in first
    assert {name for name, _ in refused} == {"ValueError"}


def test_leaving_the_context_closes_the_channel(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        with stage.open() as channel:
            greeter = stage.greeter_on(channel)
            greeter.SayHello(stage.hello())
        return outcome_of(lambda: greeter.SayHello(stage.hello()))

    both(scenario)


def test_a_stub_works_when_the_channel_was_dropped(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        greeter = stage.greeter_on(stage.stack.insecure_channel(stage.server.target))
        gc.collect()
        return greeter.SayHello(stage.hello()).message

    both(scenario)


def test_a_channel_that_is_dropped_is_closed(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        channel = proxyless.insecure_channel(stage.server.target)
        stage.greeter_on(channel).SayHello(stage.hello())
        core = channel.bind().core
        del channel
        gc.collect()
        until_sync(lambda: core.state is State.SHUTDOWN, "the end of the channel")
        return core.calls

    both.ours(scenario)


def test_a_stream_outlives_the_names_of_its_channel_and_stub(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        channel = proxyless.insecure_channel(stage.server.target)
        call = stage.guide_on(channel).ListPlaces(stage.way(500, photo_bytes=2000))
        del channel
        gc.collect()
        return len(collect(call))

    assert both.ours(scenario) == 500


def test_the_factories_make_grpcs_channels() -> None:
    with proxyless.insecure_channel("ipv4:127.0.0.1:1") as channel:
        assert isinstance(channel, grpc.Channel)
        assert isinstance(channel, SyncChannel)


# Flow control


@pytest.mark.rerun("sleeps until both sides wait for flow control")
def test_a_slow_reader_slows_the_server_down_and_gets_everything(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = stage.guide.ListPlaces(stage.way(400, photo_bytes=100_000))
        next(call)
        time.sleep(0.3)
        sent = len(stage.events)
        rest = sum(len(place.photo) for place in call)
        # Not all of it, however far windows have grown by then.
        return sent < 400, rest

    assert both(scenario) == (True, 399 * 100_000)


def test_a_slow_reader_of_compressed_responses_gets_everything(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        # More than the buffers hold, but little on the wire, because it is compressed.
        call = stage.guide.ListPlaces(stage.way(30, photo_bytes=200_000))
        stage.until_event("ListPlaces over")
        stage.greeter.SayHello(stage.hello(), timeout=PATIENCE_S)
        is_active = call.is_active()
        return is_active, [place.name for place in call], call.code()

    is_active, names, code = both(scenario, options=(("grpc.default_compression_algorithm", 2),))
    assert is_active
    assert names == [f"place {number}" for number in range(30)]
    assert code is grpc.StatusCode.OK


@pytest.mark.rerun("sleeps until both sides wait for flow control")
def test_a_server_that_does_not_read_slows_the_request_iterator_down(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        taken = 0

        def requests() -> Untyped:
            nonlocal taken
            while True:
                taken += 1
                yield stage.protos.route_guide.Note(text="n" * 100_000)

        path = "/proxyless.test.routeguide.RouteGuide/MeasureWay"
        measure = stage.channel.stream_unary(
            path, request_serializer=lambda note: note.SerializeToString()
        )
        call = measure.future(requests(), metadata=HANG)
        stage.until_event("MeasureWay started")
        time.sleep(0.3)
        first = taken
        time.sleep(0.3)
        second = taken
        call.cancel()
        return first == second, first < 1000

    assert both(scenario) == (True, True)


# Threads


def test_many_threads_share_a_channel(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        greeter, guide = stage.greeter, stage.guide

        def work(number: int) -> int:
            for turn in range(20):
                name = f"{number}/{turn}"
                assert greeter.SayHello(stage.hello(name)).message == f"hello, {name}"
            assert len(collect(guide.ListPlaces(stage.way(30)))) == 30
            return guide.MeasureWay(stage.points(10)).points  # type: ignore[no-any-return]

        with ThreadPoolExecutor(32) as pool:
            return sum(pool.map(work, range(32), timeout=PATIENCE_S * 2))

    assert both(scenario) == 320


def test_threads_that_open_the_channel_at_the_same_time_get_the_same_one(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        channel = stage.open()
        barrier = threading.Barrier(16)

        def bind(_: int) -> object:
            barrier.wait(PATIENCE_S)
            return channel.bind()

        with ThreadPoolExecutor(16) as pool:
            return len(set(pool.map(bind, range(16), timeout=PATIENCE_S)))

    assert both.ours(scenario) == 1


def test_many_channels_exist_at_the_same_time(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        channels = [stage.open() for _ in range(8)]
        stubs = [stage.greeter_on(channel) for channel in channels]
        futures = [stub.SayHello.future(stage.hello(str(n))) for n, stub in enumerate(stubs)]
        channels[0].close()
        return [future.result(PATIENCE_S).message for future in futures[1:]]

    assert both(scenario) == [f"hello, {number}" for number in range(1, 8)]


def test_several_threads_may_read_one_stream(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        call = stage.guide.ListPlaces(stage.way(300))
        with ThreadPoolExecutor(4) as pool:
            parts = list(pool.map(lambda _: collect(call), range(4), timeout=PATIENCE_S))
        return sorted(int(place.name.split()[1]) for part in parts for place in part)

    assert both.ours(scenario) == list(range(300))


def test_ctrl_c_cancels_a_blocking_call(both: BothSync) -> None:
    def scenario(stage: SyncStage) -> object:
        def interrupt() -> None:
            stage.until_event("SayHello started")
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            stage.greeter.SayHello(stage.hello(), metadata=HANG, timeout=PATIENCE_S)
        thread.join()
        stage.until_event("SayHello over")
        return stage.greeter.SayHello(stage.hello()).message

    assert both.ours(scenario) == "hello, you"


# Processes


def run_script(script: str, target: str, *, without_uvloop: bool = False) -> str:
    """The output of a process, which must end with exit code 0 and an empty stderr."""
    lines = ["import sys"]
    if without_uvloop:
        lines.append("sys.modules['uvloop'] = None")
    lines.append(textwrap.dedent(script))
    done = subprocess.run(
        # Unclosed sockets cause warnings in the development mode.
        [sys.executable, "-X", "dev", "-c", "\n".join(lines), target],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONFAULTHANDLER": "1"},
    )
    # asyncio's debug mode reports what a busy machine delays.
    errors = re.sub(r"^Executing .* took .* seconds\n", "", done.stderr, flags=re.MULTILINE)
    assert (done.returncode, errors) == (0, ""), done
    return done.stdout


_OPEN = """
    import os, threading, time
    import proxyless
    path = "/proxyless.test.helloworld.Greeter/SayHello"
    channel = proxyless.insecure_channel(sys.argv[1])
    greet = channel.unary_unary(path)
    hang = dict(metadata=[("then", "hang")])
"""

_FORK = (
    _OPEN
    + """
    assert b"hello" in greet(b"", timeout=5)
    old = greet.future(b"", **hang)
    stream = channel.unary_stream(path)(b"", **hang)
    for _ in range(3):
        child = os.fork()
        if not child:
            assert b"hello" in greet(b"", timeout=5)
            try:
                old.result(timeout=5)
            except Exception as error:
                assert "forked" in error.details(), error
            try:
                next(stream)
            except Exception as error:
                assert "forked" in error.details(), error
            del old, stream
            other = proxyless.insecure_channel(sys.argv[1])
            assert b"hello" in other.unary_unary(path)(b"", timeout=5)
            other.close()
            # Ends as a process usually does, with everything freed.
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert b"hello" in greet(b"", timeout=5)
    assert old.running()
    print("fine")
"""
)

_EXITS = {
    "with an open channel": "greet(b'', timeout=5)",
    "with a channel that was never used": "pass",
    "with a future under way": "future = greet.future(b'', **hang)",
    "with a stream under way": "stream = channel.unary_stream(path)(b'', **hang)",
    "with a daemon that waits": """
        threading.Thread(target=greet, args=(b'',), kwargs=hang, daemon=True).start()
        time.sleep(0.2)
    """,
    "with daemons that continue to call": """
        def call():
            while True:
                greet(b'', timeout=5)
        for _ in range(4):
            threading.Thread(target=call, daemon=True).start()
        time.sleep(0.2)
    """,
    "with a request iterator that blocks": """
        def requests():
            yield b''
            threading.Event().wait()
        call = channel.stream_stream("/proxyless.test.routeguide.RouteGuide/Chat")(requests())
        next(call)
    """,
    "with a subscriber": "channel.subscribe(lambda state: None, True); greet(b'', timeout=5)",
    "with a server that is not there": """
        other = proxyless.insecure_channel("127.0.0.1:1")
        other.subscribe(lambda state: None, True)
        time.sleep(0.1)
    """,
    "with a call in a late exit handler": """
        import atexit
        atexit._clear()
        atexit.register(lambda: greet(b'', timeout=5))
        import proxyless.front.sync.background
        atexit.register(proxyless.front.sync.background._at_exit)
        greet(b'', timeout=5)
    """,
}


@pytest.mark.parametrize("without_uvloop", [False, True], ids=["uvloop", "asyncio"])
def test_forked_child_makes_new_connections_and_does_not_affect_the_parent(
    both: BothSync, without_uvloop: bool
) -> None:
    def scenario(stage: SyncStage) -> object:
        return run_script(_FORK, stage.server.target, without_uvloop=without_uvloop)

    assert both.ours(scenario) == "fine\n"


@pytest.mark.parametrize("without_uvloop", [False, True], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("how", _EXITS)
def test_the_interpreter_exits_cleanly(both: BothSync, how: str, without_uvloop: bool) -> None:
    script = textwrap.dedent(_OPEN) + textwrap.dedent(_EXITS[how]) + "\nprint('end')\n"

    def scenario(stage: SyncStage) -> object:
        return run_script(script, stage.server.target, without_uvloop=without_uvloop)

    assert both.ours(scenario) == "end\n"


_FIRST_RPCS = {
    "in a thread after the main thread has ended": """
        def call():
            threading.main_thread().join()
            print(greet(b"", timeout=5))
        threading.Thread(target=call).start()
    """,
    "in an exit handler": """
        import atexit
        atexit.register(lambda: print(greet(b"", timeout=5)))
    """,
}


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 12), reason="may start no thread after the main thread has ended"
)
@pytest.mark.parametrize("without_uvloop", [False, True], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("where", _FIRST_RPCS)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_first_rpc_of_a_process_may_be_late(
    both: BothSync, where: str, host: str, without_uvloop: bool
) -> None:
    def scenario(stage: SyncStage) -> object:
        script = textwrap.dedent(_OPEN) + textwrap.dedent(_FIRST_RPCS[where])
        if stage.stack is grpc:
            script = script.replace("proxyless.insecure", "grpc.insecure").replace(
                "import proxyless", "import grpc"
            )
        target = stage.server.target.replace("127.0.0.1", host)
        return run_script(script, target, without_uvloop=without_uvloop)

    assert "hello" in both(scenario)


_FINALIZED = """
    class Resource:
        def __init__(self):
            self.channel = proxyless.insecure_channel(sys.argv[1])
        def greet(self, **options):
            return self.channel.unary_unary(path)(b"", **options)
        def __del__(self):
            try:
                print(self.greet(timeout=5))
            except RuntimeError as error:
                print(error)
            self.channel.close()
    resource = Resource()
"""
_USES = {
    "used before": "resource.greet(timeout=5)",
    "not used before": "",
    "while a daemon waits": """
        threading.Thread(target=greet, args=(b"",), kwargs=hang, daemon=True).start()
    """,
}


@pytest.mark.parametrize("without_uvloop", [False, True], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("use", _USES)
def test_blocking_call_raises_while_the_interpreter_is_finalized(
    both: BothSync, use: str, without_uvloop: bool
) -> None:
    """That is when `__del__` of objects in global variables is called. grpcio's RPC succeeds."""

    def scenario(stage: SyncStage) -> object:
        script = "".join(map(textwrap.dedent, (_OPEN, _FINALIZED, _USES[use])))
        if stage.stack is grpc:
            script = script.replace("proxyless.insecure", "grpc.insecure")
            script = script.replace("import proxyless", "import grpc")
        return run_script(script, stage.server.target, without_uvloop=without_uvloop)

    assert "while the interpreter is finalized" in both.ours(scenario)
    if use == "used before":
        assert "hello" in both.run_scenario(scenario, grpc, {})


def test_importing_proxyless_imports_no_grpcio() -> None:
    script = """
    import proxyless
    assert "grpc" not in sys.modules and "asyncio" not in sys.modules
    assert proxyless.aio.insecure_channel and "aio" in dir(proxyless)
    print(proxyless.__version__)
    """
    assert run_script(script, "") == f"{proxyless.__version__}\n"
