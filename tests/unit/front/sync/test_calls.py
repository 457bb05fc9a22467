"""Unit tests of proxyless.front.sync.calls."""

import copy
import pickle

import grpc
import pytest

from proxyless.base import OK, Status, StatusCode
from proxyless.front.sync.calls import FinishedCall, FutureCall, InactiveRpcError, StreamCall
from proxyless.wire import StreamEnd
from tests.worlds.sync_outcomes import ENDED, FAILED, OutcomeWorld


@pytest.fixture
def world() -> OutcomeWorld:
    return OutcomeWorld()


def test_an_error_is_an_rpc_error_a_call_and_a_future() -> None:
    error = InactiveRpcError(FAILED, (("x", "1"),))
    assert isinstance(error, grpc.RpcError)
    assert isinstance(error, grpc.Call)
    assert isinstance(error, grpc.Future)
    assert (error.code(), error.details()) == (grpc.StatusCode.ABORTED, "not today")
    assert error.initial_metadata() == (("x", "1"),)
    assert [pair.value for pair in error.trailing_metadata()] == ["sunday"]
    assert error.debug_error_string() == "ABORTED: not today"


def test_the_text_of_an_error_has_code_details_and_debug_string() -> None:
    assert str(InactiveRpcError(FAILED)) == (
        "<_InactiveRpcError of RPC that terminated with:\n"
        "\tstatus = StatusCode.ABORTED\n"
        '\tdetails = "not today"\n'
        '\tdebug_error_string = "ABORTED: not today"\n'
        ">"
    )


def test_the_text_of_a_successful_call_has_no_debug_string() -> None:
    assert repr(FinishedCall(ENDED)).splitlines()[1:] == [
        "\tstatus = StatusCode.OK",
        '\tdetails = ""',
        ">",
    ]


def test_the_text_of_a_running_call_is_the_name_of_grpcios_class(world: OutcomeWorld) -> None:
    assert str(FutureCall(world.unary())) == "<_MultiThreadedRendezvous object>"


def test_call_with_one_response_is_not_iterable(world: OutcomeWorld) -> None:
    with pytest.raises(TypeError, match="not iterable"):
        iter(FutureCall(world.unary()))


@pytest.mark.parametrize("duplicate", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_can_be_copied(duplicate: object) -> None:
    assert callable(duplicate)
    error = duplicate(InactiveRpcError(FAILED, (("x", "1"),)))
    assert type(error) is InactiveRpcError
    assert (error.code(), error.initial_metadata()) == (grpc.StatusCode.ABORTED, (("x", "1"),))


def test_a_finished_call_is_done_and_cannot_be_changed() -> None:
    call = FinishedCall(ENDED, response="reply")
    called: list[object] = []
    call.add_done_callback(called.append)
    assert called == [call]
    assert (call.done(), call.running(), call.is_active()) == (True, False, False)
    assert (call.cancel(), call.cancelled()) == (False, False)
    assert not call.add_callback(lambda: None)
    assert (call.result(), call.exception(), call.traceback()) == ("reply", None, None)


def test_the_error_is_the_exception_of_its_own_future() -> None:
    error = InactiveRpcError(FAILED)
    assert error.exception() is error
    assert error.traceback() is not None
    with pytest.raises(InactiveRpcError) as raised:
        error.result()
    assert raised.value is error


def test_a_future_raises_after_the_timeout(world: OutcomeWorld) -> None:
    call = FutureCall(world.unary())
    for method in (call.result, call.exception, call.traceback):
        with pytest.raises(grpc.FutureTimeoutError):
            method(0.0)
    assert (call.running(), call.done()) == (True, False)


def test_a_cancelled_future_raises_in_every_method(world: OutcomeWorld) -> None:
    call = FutureCall(world.unary())
    assert call.cancel()
    assert (call.cancelled(), call.done()) == (True, True)
    for method in (call.result, call.exception, call.traceback):
        with pytest.raises(grpc.FutureCancelledError):
            method()


def test_a_call_that_the_server_cancelled_raises_itself(world: OutcomeWorld) -> None:
    outcome = world.unary()
    call = FutureCall(outcome)
    outcome.on_end(StreamEnd(Status(StatusCode.CANCELLED, "by the server")))
    assert not call.cancelled()
    with pytest.raises(grpc.RpcError) as raised:
        call.result()
    assert raised.value is call


def test_a_dropped_call_cancels_its_rpc(world: OutcomeWorld) -> None:
    FutureCall(world.unary())
    world.expect_calls(StatusCode.CANCELLED)


def test_a_call_with_a_done_callback_is_not_freed_before_its_end(world: OutcomeWorld) -> None:
    outcome = world.unary()
    results: list[object] = []
    FutureCall(outcome).add_done_callback(lambda call: results.append(call.result()))
    world.expect_calls()
    outcome.on_message(b"reply")
    outcome.on_end(ENDED)
    [callback] = world.callbacks.posted
    callback()
    assert results == [b"reply"]


def test_a_callback_added_after_the_end_is_called_at_once(world: OutcomeWorld) -> None:
    outcome = world.unary()
    call = FutureCall(outcome)
    outcome.on_end(FAILED)
    called: list[object] = []
    call.add_done_callback(called.append)
    assert called == [call]


def test_a_stream_yields_its_responses_and_stops(world: OutcomeWorld) -> None:
    outcome = world.stream()
    call = StreamCall(outcome)
    outcome.on_message(b"1")
    outcome.on_message(b"2")
    outcome.on_end(StreamEnd(OK))
    assert call.next() == b"1"
    assert list(call) == [b"2"]
    assert call.result() is None


def test_a_stream_that_fails_is_raised_every_time(world: OutcomeWorld) -> None:
    outcome = world.stream()
    call = StreamCall(outcome)
    outcome.on_message(b"1")
    outcome.on_end(FAILED)
    assert next(call) == b"1"
    for _ in range(2):
        with pytest.raises(StreamCall) as raised:
            next(call)
        assert raised.value is call
