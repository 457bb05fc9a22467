"""Call objects of the blocking API, which behave as grpcio's.

A call is a `grpc.Call`, a `grpc.Future` and the `grpc.RpcError` that it raises if it fails. A
running call refers to its `Outcome`, which does not refer to it: a call that the application drops
is freed at once, and its RPC is cancelled, as with grpcio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self, cast

import grpc
from grpc import _channel as grpcio

from proxyless.base import EMPTY_METADATA, Metadata
from proxyless.front.channel_api import FailedRpc
from proxyless.front.conversions import to_debug_string, to_grpc_code
from proxyless.front.sync.outcomes import NO_MORE, Outcome, StreamOutcome, UnaryOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from proxyless.channel import Call
    from proxyless.wire import StreamEnd

# Applications catch the errors of grpcio's channels by these names, which are in its tracebacks.
_INACTIVE_RPC_ERROR: Final[Any] = getattr(grpcio, "_InactiveRpcError", grpc.RpcError)
_RENDEZVOUS: Final[Any] = getattr(grpcio, "_MultiThreadedRendezvous", grpc.RpcError)
# The descriptor of the arguments that every exception holds.
_ARGS: Final[Any] = BaseException.args


class Metadatum(NamedTuple):
    """A metadata pair of grpcio's blocking calls."""

    key: str
    value: str | bytes


def _to_metadata(metadata: Metadata) -> tuple[Metadatum, ...]:
    return tuple(Metadatum(key, value) for key, value in metadata)


class CallState(NamedTuple):
    """Private attribute `_state` of grpcio's calls, from which applications read the status."""

    code: grpc.StatusCode | None = None
    details: str | None = None
    debug_error_string: str | None = None
    initial_metadata: tuple[Metadatum, ...] | None = None
    trailing_metadata: tuple[Metadatum, ...] | None = None
    cancelled: bool = False


class _CallApi(grpc.RpcError, grpc.Call, grpc.Future):
    """The interface of a call, implemented with a few methods of its subclass."""

    # Name of grpcio's class in texts, which users search for, as they do for the format of these.
    _name_in_texts: ClassVar = "_MultiThreadedRendezvous"

    def _wait_end(self, timeout_s: float | None = None) -> StreamEnd:
        """The end of the RPC. Blocks; raises FutureTimeoutError."""
        raise NotImplementedError

    def _wait_head(self) -> Metadata:
        raise NotImplementedError

    @property
    def _response(self) -> Any:
        """The response of an RPC that ended with OK."""
        raise NotImplementedError

    # grpc.Call

    def initial_metadata(self) -> tuple[Metadatum, ...]:
        return _to_metadata(self._wait_head())

    def trailing_metadata(self) -> tuple[Metadatum, ...]:
        return _to_metadata(self._wait_end().trailers)

    def code(self) -> grpc.StatusCode:
        return to_grpc_code(self._wait_end().status.code)

    def details(self) -> str:
        return self._wait_end().status.details

    def debug_error_string(self) -> str:
        return to_debug_string(self._wait_end().status)

    # grpc.Future

    def running(self) -> bool:
        return bool(self.is_active())

    def done(self) -> bool:
        return not self.is_active()

    def result(self, timeout: float | None = None) -> Any:
        if (error := self.exception(timeout)) is not None:
            raise error
        return self._response

    def exception(self, timeout: float | None = None) -> Self | None:
        if self._wait_end(timeout).status.is_ok:
            return None
        if self.cancelled():
            raise grpc.FutureCancelledError
        return self

    def traceback(self, timeout: float | None = None) -> TracebackType | None:
        error = self.exception(timeout)
        if error is None:
            return None
        try:
            raise error
        except grpc.RpcError as raised:
            return cast("TracebackType", raised.__traceback__)

    # grpc.RpcError

    @property
    def _state(self) -> CallState:
        """Like grpcio's: code and details are None until the RPC has ended. Does not block."""
        if self.is_active():
            return CallState()
        return CallState(
            self.code(),
            self.details(),
            self.debug_error_string(),
            self.initial_metadata(),
            self.trailing_metadata(),
            self.cancelled(),
        )

    def __repr__(self) -> str:
        name = self._name_in_texts
        if self.is_active():
            return f"<{name} object>"
        end = self._wait_end()
        code = to_grpc_code(end.status.code)
        lines = [f"<{name} of RPC that terminated with:", f"\tstatus = {code}"]
        lines.append(f'\tdetails = "{end.status.details}"')
        if not end.status.is_ok:
            lines.append(f'\tdebug_error_string = "{end.status}"')
        return "\n".join([*lines, ">"])

    __str__ = __repr__


class FinishedCall(_CallApi):
    """A call whose RPC has ended."""

    def __init__(
        self, end: StreamEnd, head: Metadata = EMPTY_METADATA, response: object = None
    ) -> None:
        Exception.__init__(self)
        self._end = end
        self._head = head
        self._value = response
        # For `call_route`. Copies have none.
        self.rpc: Call | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        state = {key: value for key, value in self.__dict__.items() if key != "rpc"}
        return type(self), (self._end, self._head, self._value), state

    def _wait_end(self, timeout_s: float | None = None) -> StreamEnd:
        return self._end

    def _wait_head(self) -> Metadata:
        return self._head

    @property
    def _response(self) -> Any:
        return self._value

    def is_active(self) -> bool:
        return False

    cancel = cancelled = is_active

    def time_remaining(self) -> None:
        return None

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return False

    def add_done_callback(self, fn: Callable[[Self], None]) -> None:
        fn(self)


class InactiveRpcError(FinishedCall, _INACTIVE_RPC_ERROR):
    """Raised by a blocking call whose RPC fails."""

    _name_in_texts = "_InactiveRpcError"

    @property
    def args(self) -> tuple[Any, ...]:
        """As in grpcio: applications read `error.args[0].details`, and some assign arguments."""
        return _ARGS.__get__(self) or (self._state,)

    @args.setter
    def args(self, args: Iterable[Any]) -> None:
        _ARGS.__set__(self, args)


class _RunningCall(_CallApi, _RENDEZVOUS):
    """A call whose RPC may be running."""

    def __init__(self, outcome: Outcome) -> None:
        # Not that of grpcio's class.
        Exception.__init__(self)
        self._outcome = outcome

    def __del__(self) -> None:
        self._outcome.collect()

    def _wait_end(self, timeout_s: float | None = None) -> StreamEnd:
        end = self._outcome.wait_end(timeout_s)
        if end is None:
            raise grpc.FutureTimeoutError
        return end

    def _wait_head(self) -> Metadata:
        return self._outcome.wait_head()

    @property
    def _response(self) -> Any:
        # As in grpcio, the result of a stream is None.
        return None

    @property
    def failed_rpc(self) -> FailedRpc | None:
        """For `explain_error`, if this call is raised as an error."""
        outcome = self._outcome
        if outcome.end is None or outcome.end.status.is_ok:
            return None
        return FailedRpc(outcome.call, outcome.binding.background.call)

    @property
    def rpc(self) -> Call:
        """For `call_route`."""
        return self._outcome.call

    def is_active(self) -> bool:
        return self._outcome.end is None

    def time_remaining(self) -> float | None:
        return self._outcome.time_remaining_s()

    def cancel(self) -> bool:
        return self._outcome.cancel()

    def cancelled(self) -> bool:
        return self._outcome.is_cancelled

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return self._outcome.call_when_done(callback)

    def add_done_callback(self, fn: Callable[[Self], None]) -> None:
        # The callback refers to the call, so the call is not freed before it has ended.
        if not self._outcome.call_when_done(lambda: fn(self)):
            fn(self)


class FutureCall(_RunningCall):
    """A call with one response, which is its result."""

    _outcome: UnaryOutcome
    # Inherited from grpcio's class, which is that of streams, too.
    __iter__ = __next__ = next = None

    @property
    def _response(self) -> Any:
        return self._outcome.response


class StreamCall(_RunningCall):
    """A call with many responses: iterate it."""

    _outcome: StreamOutcome

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        response = self._outcome.read()
        if response is not NO_MORE:
            return response
        if self._wait_end().status.is_ok:
            raise StopIteration
        raise self

    def next(self) -> Any:
        return self.__next__()
