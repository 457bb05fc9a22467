"""The blocking channel: grpcio's interface on our own stack.

Unmodified generated stubs take it, and any number of threads may use it. Its core lives on the
background loop; it is made when the channel is first used, and again in the child of a fork.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self, TypeVar

import grpc

from proxyless.base import EMPTY_METADATA, InvalidMetadataError, Status, StatusCode
from proxyless.front.conversions import (
    Deserializer,
    Serializer,
    check_timeout,
    serialize,
    to_encoding,
    to_metadata,
)
from proxyless.front.credentials import (
    InCallersContext,
    UnsendableMetadata,
    to_call_credentials,
)
from proxyless.front.explaining import Explain, Explaining, remember
from proxyless.front.sync.background import CallbackThread, shared_background
from proxyless.front.sync.calls import FinishedCall, FutureCall, InactiveRpcError, StreamCall
from proxyless.front.sync.outcomes import Binding, Outcome, StreamOutcome, UnaryOutcome
from proxyless.front.sync.requests import RequestFeeder
from proxyless.front.sync.states import StateCallback, Subscriptions
from proxyless.wire import StreamEnd

if TYPE_CHECKING:
    from types import TracebackType

    from proxyless.channel import Channel, Method
    from proxyless.front.sync.session import SyncSession

MetadataLike = Iterable[tuple[str, str | bytes]]
T = TypeVar("T")

# Distinct paths whose encoded heads are remembered; callers choose them, so there is a limit.
_REMEMBERED_METHODS_MAX: Final = 4096
# The words of grpcio.
_CLOSED: Final = "Cannot invoke RPC on closed channel!"


class Kinds(NamedTuple):
    """What a channel gives to stubs, by the kind of method; those of a session are its own."""

    unary_unary: type[UnaryUnaryMultiCallable]
    unary_stream: type[UnaryStreamMultiCallable]
    stream_unary: type[StreamUnaryMultiCallable]
    stream_stream: type[StreamStreamMultiCallable]


class SyncChannel(Explaining, grpc.Channel):
    """A channel of grpcio's blocking kind. Driven by stubs, in any thread.

    `open_core` makes the channel proper, on the loop.
    """

    # Set below, where they are.
    kinds: ClassVar[Kinds]

    def __init__(
        self,
        open_core: Callable[[], Channel],
        *,
        encoding: str,
        explain: Explain | None = None,
    ) -> None:
        # Fixed at construction.
        self._open_core = open_core
        self.explainer = explain
        self.encoding = encoding
        self._subscriptions = Subscriptions()
        # Where the channel lives now; changed on the loop.
        self._binding: Binding | None = None
        # By path. The same on every loop.
        self._methods: dict[str, Method] = {}
        # Paths that generated code knows: metrics may name these.
        self._registered: set[str] = set()
        self._is_closed = False

    # Stubs ask for these

    def unary_unary(
        self,
        method: str | bytes,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> UnaryUnaryMultiCallable:
        path = self.register(method, _registered_method)
        return self.kinds.unary_unary(self, path, request_serializer, response_deserializer)

    def unary_stream(
        self,
        method: str | bytes,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> UnaryStreamMultiCallable:
        path = self.register(method, _registered_method)
        return self.kinds.unary_stream(self, path, request_serializer, response_deserializer)

    def stream_unary(
        self,
        method: str | bytes,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> StreamUnaryMultiCallable:
        path = self.register(method, _registered_method)
        return self.kinds.stream_unary(self, path, request_serializer, response_deserializer)

    def stream_stream(
        self,
        method: str | bytes,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> StreamStreamMultiCallable:
        path = self.register(method, _registered_method)
        return self.kinds.stream_stream(self, path, request_serializer, response_deserializer)

    def session(self) -> SyncSession:
        """A channel on this one whose RPCs stay on one backend, if the mesh has sessions (A55).

        Any number of them may live on a channel, each on a backend of its own.
        """
        from proxyless.front.sync.session import SyncSession  # noqa: PLC0415 - few have sessions

        return SyncSession(self)

    def register(self, method: str | bytes, is_registered: bool | None) -> str:
        """The path of a method, noting whether generated code knows it, as that says."""
        path = method if isinstance(method, str) else method.decode("latin-1")
        if is_registered and path not in self._registered:
            self._registered.add(path)
            # One that was made for other callers has no name in metrics.
            self._methods.pop(path, None)
        return path

    # Connectivity

    def subscribe(self, callback: StateCallback, try_to_connect: bool | None = False) -> None:
        """Call back with the state, now and whenever it changes, in some thread.

        Like grpcio's, a channel that is closed has nothing more to tell.
        """
        if self._is_closed:
            return
        binding = self.bind()
        subscription = self._subscriptions.add(callback)

        def start() -> None:
            subscription.post(binding.core.state, binding.state_callbacks)
            if try_to_connect:
                binding.core.request_connection()

        binding.background.post(start)

    def unsubscribe(self, callback: StateCallback) -> None:
        self._subscriptions.remove(callback)

    # Ends

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no new RPCs, and cancel those under way. Idempotent."""
        self._is_closed = True
        self._subscriptions.clear()
        binding, self._binding = self._binding, None
        if binding is not None and binding.background.is_usable:
            binding.background.close(binding.core)

    def __del__(self) -> None:
        # Any thread, at any moment, so nothing here may wait.
        binding = getattr(self, "_binding", None)
        if binding is not None and binding.background.is_usable:
            binding.background.post(binding.core.close)

    # For the calls of this channel

    def bind(self) -> Binding:
        """Where the channel lives now. Raises ValueError if it is closed."""
        binding = self._binding
        if binding is not None and binding.background.is_usable:
            return binding
        if self._is_closed:
            raise ValueError(_CLOSED)
        background = shared_background()

        def open_binding() -> Binding:
            # On the loop: of threads that come at the same time, one is the first.
            binding = self._binding
            if binding is None or binding.background is not background:
                core = self._open_core()
                binding = Binding(background, core, CallbackThread(), CallbackThread())
                self._subscriptions.watch(core, binding.state_callbacks)
                background.add(core)
                self._binding = binding
            if self._is_closed:
                # Meanwhile, by another thread, which may not have seen this core.
                binding.core.close()
                raise ValueError(_CLOSED)
            return binding

        return background.ask(open_binding)

    def _look(self, question: Callable[[Channel], T]) -> T:
        binding = self.bind()
        return binding.background.ask(partial(question, binding.core))

    def method(self, core: Channel, path: str) -> Method:
        """What all calls of a method share. An interceptor may ask for it on every call."""
        method = self._methods.get(path)
        if method is None:
            if len(self._methods) >= _REMEMBERED_METHODS_MAX:
                self._methods.clear()
            is_registered = path in self._registered
            method = self._methods[path] = core.method(path, is_registered=is_registered)
        return method


class _MultiCallable:
    """Starts the RPCs of one method."""

    def __init__(
        self, channel: SyncChannel, path: str, serializer: Serializer, deserializer: Deserializer
    ) -> None:
        self._channel = channel
        self._path = path
        self._serializer = serializer
        self._deserializer = deserializer

    def _prepare(
        self,
        outcome: Outcome,
        timeout: float | None,
        metadata: MetadataLike | None,
        credentials: grpc.CallCredentials | None,
        wait_for_ready: bool | None,
        compression: grpc.Compression | None,
    ) -> None:
        """Give an outcome its call. It is not started yet, so this may be any thread."""
        channel, core = self._channel, outcome.binding.core
        encoding = channel.encoding
        if compression is not None:
            encoding = to_encoding(compression, encoding)
        pairs, refusal = EMPTY_METADATA, None
        if metadata:
            try:
                pairs = to_metadata(metadata)
            except InvalidMetadataError as error:
                refusal = UnsendableMetadata(error)
        outcome.call = core.call_type(
            core,
            channel.method(core, self._path),
            outcome,
            pairs,
            check_timeout(timeout),
            wait_for_ready,
            encoding,
        )
        if credentials is not None:
            own = to_call_credentials(credentials)
            outcome.call.credentials = core.combine_credentials(own)
        if outcome.call.credentials is not None:
            outcome.call.credentials = InCallersContext(outcome.call.credentials)
        if refusal is not None:
            outcome.call.credentials = refusal

    def _start_with_request(self, outcome: Outcome, request: object) -> None:
        message = serialize(self._serializer, request)
        if isinstance(message, Status):
            raise InactiveRpcError(StreamEnd(message))
        outcome.request = message
        outcome.binding.background.post(outcome.start)

    def _start_with_requests(self, outcome: Outcome, requests: Iterable[Any]) -> None:
        feeder = outcome.feeder = RequestFeeder(outcome, self._serializer, requests)
        outcome.binding.background.post(outcome.start)
        feeder.start()


class UnaryUnaryMultiCallable(_MultiCallable, grpc.UnaryUnaryMultiCallable):
    """Starts unary RPCs."""

    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        outcome = self._start(request, timeout, metadata, credentials, wait_for_ready, compression)
        return _wait_response(outcome)

    def with_call(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> tuple[Any, FinishedCall]:
        outcome = self._start(request, timeout, metadata, credentials, wait_for_ready, compression)
        return _wait_response(outcome), _finished(outcome)

    def future(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> FutureCall:
        outcome = self._start(request, timeout, metadata, credentials, wait_for_ready, compression)
        return FutureCall(outcome)

    def _start(self, request: Any, *options: Any) -> UnaryOutcome:
        """Begin an RPC; the options are those of `_prepare`."""
        outcome = UnaryOutcome(self._channel.bind(), self._deserializer, self._channel)
        self._prepare(outcome, *options)
        self._start_with_request(outcome, request)
        return outcome


class UnaryStreamMultiCallable(_MultiCallable, grpc.UnaryStreamMultiCallable):
    """Starts RPCs with streamed responses."""

    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> StreamCall:
        outcome = StreamOutcome(self._channel.bind(), self._deserializer, self._channel)
        self._prepare(outcome, timeout, metadata, credentials, wait_for_ready, compression)
        self._start_with_request(outcome, request)
        return StreamCall(outcome)


class StreamUnaryMultiCallable(_MultiCallable, grpc.StreamUnaryMultiCallable):
    """Starts RPCs with streamed requests."""

    def __call__(
        self,
        request_iterator: Iterable[Any],
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        outcome = self._start(
            request_iterator, timeout, metadata, credentials, wait_for_ready, compression
        )
        return _wait_response(outcome)

    def with_call(
        self,
        request_iterator: Iterable[Any],
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> tuple[Any, FinishedCall]:
        outcome = self._start(
            request_iterator, timeout, metadata, credentials, wait_for_ready, compression
        )
        return _wait_response(outcome), _finished(outcome)

    def future(
        self,
        request_iterator: Iterable[Any],
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> FutureCall:
        outcome = self._start(
            request_iterator, timeout, metadata, credentials, wait_for_ready, compression
        )
        return FutureCall(outcome)

    def _start(self, requests: Iterable[Any], *options: Any) -> UnaryOutcome:
        """Begin an RPC; the options are those of `_prepare`."""
        outcome = UnaryOutcome(self._channel.bind(), self._deserializer, self._channel)
        self._prepare(outcome, *options)
        self._start_with_requests(outcome, requests)
        return outcome


class StreamStreamMultiCallable(_MultiCallable, grpc.StreamStreamMultiCallable):
    """Starts RPCs with streams both ways."""

    def __call__(
        self,
        request_iterator: Iterable[Any],
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> StreamCall:
        outcome = StreamOutcome(self._channel.bind(), self._deserializer, self._channel)
        self._prepare(outcome, timeout, metadata, credentials, wait_for_ready, compression)
        self._start_with_requests(outcome, request_iterator)
        return StreamCall(outcome)


def _wait_response(outcome: UnaryOutcome) -> Any:
    """The response, or an error. An exception while waiting (Ctrl-C) cancels the RPC."""
    try:
        end = outcome.wait_end()
    except BaseException:
        outcome.cancel()
        raise
    assert end is not None, "waiting without a limit ends at the end"
    if end.status.code is not StatusCode.OK:
        error = InactiveRpcError(end, outcome.head or EMPTY_METADATA)
        raise remember(error, outcome.call, outcome.binding.background.ask)
    return outcome.response


def _finished(outcome: UnaryOutcome) -> FinishedCall:
    assert outcome.end is not None, "asked for when the response is here"
    return FinishedCall(outcome.end, outcome.head or EMPTY_METADATA, outcome.response)


SyncChannel.kinds = Kinds(
    UnaryUnaryMultiCallable,
    UnaryStreamMultiCallable,
    StreamUnaryMultiCallable,
    StreamStreamMultiCallable,
)
