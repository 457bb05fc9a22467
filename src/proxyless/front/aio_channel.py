"""The asyncio channel: grpc.aio's interface on our own stack.

Unmodified generated stubs take it. It belongs to the loop it is first used on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self, TypeVar
from weakref import WeakSet

import grpc
import grpc.aio

from proxyless.base import EMPTY_METADATA, InvalidMetadataError, State, Status
from proxyless.channel.call import CANCELLED
from proxyless.front.aio_calls import (
    RequestIterator,
    StreamStreamCall,
    StreamUnaryCall,
    UnaryStreamCall,
    UnaryUnaryCall,
)
from proxyless.front.aio_interceptors import (
    CallSpec,
    InterceptedStreamStreamCall,
    InterceptedStreamUnaryCall,
    InterceptedUnaryStreamCall,
    InterceptedUnaryUnaryCall,
    Interceptors,
    Said,
)
from proxyless.front.aio_outcomes import StreamOutcome
from proxyless.front.credentials import UnsendableMetadata, to_call_credentials
from proxyless.front.explaining import Explain, Explaining
from proxyless.front.values import (
    Deserializer,
    Serializer,
    check_timeout,
    serialize,
    to_encoding,
    to_grpc_state,
    to_metadata,
)

if TYPE_CHECKING:
    from types import TracebackType

    from proxyless.channel import Call, Channel, Method
    from proxyless.front.aio_session import AioSession

_OTHER_LOOP: Final = "this channel belongs to another event loop: create one channel per loop"

MetadataLike = Iterable[tuple[str, str | bytes]]
InterceptedCall = TypeVar("InterceptedCall")
T = TypeVar("T")


class Kinds(NamedTuple):
    """What a channel gives to stubs, by the kind of method; those of a session are its own."""

    unary_unary: type[UnaryUnaryMultiCallable]
    unary_stream: type[UnaryStreamMultiCallable]
    stream_unary: type[StreamUnaryMultiCallable]
    stream_stream: type[StreamStreamMultiCallable]


class AioChannel(Explaining, grpc.aio.Channel):
    """A channel of grpc.aio's kind. Driven by stubs and by the loop.

    `open_core` makes the channel proper once there is a loop to make it on.
    """

    # Known with the core.
    loop: asyncio.AbstractEventLoop

    # Set below, where they are.
    kinds: ClassVar[Kinds]

    def __init__(
        self,
        open_core: Callable[[], Channel],
        *,
        encoding: str,
        interceptors: Sequence[grpc.aio.ClientInterceptor] | None,
        explain: Explain | None = None,
    ) -> None:
        self._open_core = open_core
        self.explainer = explain
        self._core: Channel | None = None
        self._is_closed = False
        # Those whose interceptors may not have started an RPC yet.
        self._intercepted: WeakSet[Any] = WeakSet()
        self.encoding = encoding
        # Paths that generated code knows: metrics may name these.
        self.registered: set[str] = set()
        self._interceptors = Interceptors.sort(interceptors or ())

    @property
    def _unary_unary_interceptors(self) -> Sequence[Any]:
        """The list of grpcio's channel, by its name: Google's generated clients append to it."""
        return self._interceptors.unary_unary

    # Stubs ask for these

    def unary_unary(
        self,
        method: str | bytes,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> UnaryUnaryMultiCallable:
        path = self.register(method, _registered_method)
        interceptors = self._interceptors.unary_unary
        return self.kinds.unary_unary(
            self, path, request_serializer, response_deserializer, interceptors
        )

    def unary_stream(
        self,
        method: str | bytes,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> UnaryStreamMultiCallable:
        path = self.register(method, _registered_method)
        interceptors = self._interceptors.unary_stream
        return self.kinds.unary_stream(
            self, path, request_serializer, response_deserializer, interceptors
        )

    def stream_unary(
        self,
        method: str | bytes,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> StreamUnaryMultiCallable:
        path = self.register(method, _registered_method)
        interceptors = self._interceptors.stream_unary
        return self.kinds.stream_unary(
            self, path, request_serializer, response_deserializer, interceptors
        )

    def stream_stream(
        self,
        method: str | bytes,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> StreamStreamMultiCallable:
        path = self.register(method, _registered_method)
        interceptors = self._interceptors.stream_stream
        return self.kinds.stream_stream(
            self, path, request_serializer, response_deserializer, interceptors
        )

    def session(self) -> AioSession:
        """A channel on this one whose RPCs stay on one backend, if the mesh has sessions (A55).

        Any number of them may live on a channel, each on a backend of its own.
        """
        from proxyless.front.aio_session import AioSession  # noqa: PLC0415 - it is an AioChannel

        return AioSession(self, self._interceptors)

    def register(self, method: str | bytes, is_registered: bool | None) -> str:
        """The path of a method, noting whether generated code knows it, as that says."""
        path = method if isinstance(method, str) else method.decode("latin-1")
        if is_registered:
            self.registered.add(path)
        return path

    # Connectivity

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        if self._is_closed:
            return grpc.ChannelConnectivity.SHUTDOWN
        core = self.core()
        state = core.state
        if try_to_connect:
            core.request_connection()
        return to_grpc_state(state)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        core = self.core()
        while to_grpc_state(core.state) is last_observed_state:
            changed: asyncio.Future[None] = self.loop.create_future()

            def on_state(_state: State, changed: asyncio.Future[None] = changed) -> None:
                if not changed.done():
                    changed.set_result(None)

            cancel = core.watch_state(on_state)
            try:
                await changed
            finally:
                cancel()

    async def channel_ready(self) -> None:
        state = self.get_state(try_to_connect=True)
        while state is not grpc.ChannelConnectivity.READY:
            if state is grpc.ChannelConnectivity.SHUTDOWN:
                raise grpc.aio.UsageError("Channel is closed.")
            await self.wait_for_state_change(state)
            state = self.get_state(try_to_connect=True)

    # Ends

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Take no new RPCs; after `grace` seconds cancel those under way."""
        if grace is not None and grace < 0:
            raise ValueError(f"grace is {grace} s, wanted 0 or more")
        if self._is_closed:
            return
        if self._core is not None and self.loop is not asyncio.get_running_loop():
            self._close_elsewhere()
            return
        self._is_closed = True
        core = self._core
        try:
            if core is not None and grace:
                await self._wait_calls(core, grace)
        finally:
            # As if the application had cancelled each RPC: that is what grpc.aio makes of it.
            for call in list(self._intercepted):
                call.cancel()
            if core is not None:
                core.close(CANCELLED)
        if core is not None:
            await core.wait_closed()

    def _close_elsewhere(self) -> None:
        """Close on a loop that the channel does not belong to."""
        if not self.loop.is_closed():
            raise RuntimeError(_OTHER_LOOP)
        # Connections and calls are gone with their loop.
        self._is_closed = True

    def __del__(self) -> None:
        """A channel that was dropped is closed, once its calls are over, as grpcio's is."""
        core = self._core
        # May run in any thread, and after the loop is gone.
        if core is not None and not (self._is_closed or self.loop.is_closed()):
            self.loop.call_soon_threadsafe(core.call_when_no_calls, core.close)

    async def _wait_calls(self, core: Channel, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                # Again: an RPC that has ended counts again if its responses are not read.
                while core.calls:
                    await self._wait_no_calls(core)

    async def _wait_no_calls(self, core: Channel) -> None:
        ended: asyncio.Future[None] = self.loop.create_future()

        def on_no_calls() -> None:
            if not ended.done():
                ended.set_result(None)

        core.call_when_no_calls(on_no_calls)
        await ended

    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None:
        """The name by which applications read the loop of grpcio's channels."""
        with suppress(RuntimeError):
            return self.__dict__.get("loop") or asyncio.get_running_loop()
        return None

    # For the calls of this channel

    def add_intercepted(self, call: InterceptedCall) -> InterceptedCall:
        """Cancel it, too, when the channel is closed."""
        self._intercepted.add(call)
        return call

    def core(self) -> Channel:
        """The channel proper, on this loop. Raises if it is closed or belongs to another loop."""
        if self._core is not None and self.loop is asyncio.get_running_loop():
            if self._is_closed:
                raise grpc.aio.UsageError("Channel is closed.")
            return self._core
        return self._bind()

    def _look(self, question: Callable[[Channel], T]) -> T:
        return question(self._core or self.core())

    def _bind(self) -> Channel:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                "an asyncio channel is used outside of a running event loop"
            ) from None
        if self._is_closed:
            raise grpc.aio.UsageError("Channel is closed.")
        if self._core is not None:
            raise RuntimeError(_OTHER_LOOP)
        self.loop = loop
        self._core = self._open_core()
        return self._core


class _MultiCallable:
    """Starts the RPCs of one method."""

    def __init__(
        self,
        channel: AioChannel,
        path: str,
        serializer: Serializer,
        deserializer: Deserializer,
        interceptors: Sequence[Any],
    ) -> None:
        self._channel = channel
        self._path = path
        self._serializer = serializer
        self._deserializer = deserializer
        self._interceptors = interceptors
        self._method: Method | None = None

    def _new_call(self, core: Channel, outcome: Any, said: Said) -> Call:
        """A call that is not started yet, and knows its outcome as its outcome knows it."""
        path, timeout, metadata, credentials, wait_for_ready, compression = said
        method = self._method
        if method is None or method.path != path:
            method = core.method(path, is_registered=path in self._channel.registered)
            if path == self._path:
                self._method = method
        encoding = self._channel.encoding
        if compression is not None:
            encoding = to_encoding(compression, encoding)
        pairs, refusal = EMPTY_METADATA, None
        if metadata:
            try:
                pairs = to_metadata(metadata)
            except InvalidMetadataError as error:
                refusal = UnsendableMetadata(error)
        call = core.call_type(
            core,
            method,
            outcome,
            pairs,
            None if timeout is None else check_timeout(timeout),
            wait_for_ready,
            encoding,
        )
        if credentials is not None:
            if not core.options.is_private:
                raise grpc.aio.UsageError("Call credentials are only valid on secure channels")
            call.credentials = core.combine_credentials(to_call_credentials(credentials))
        if refusal is not None:
            call.credentials = refusal
        outcome.core = call
        return call

    def _start_with_request(self, call: Call, request: object) -> None:
        message = serialize(self._serializer, request)
        if isinstance(message, Status):
            call.start_failed(message)
        else:
            call.start_unary(message)


class UnaryUnaryMultiCallable(_MultiCallable, grpc.aio.UnaryUnaryMultiCallable):
    """Starts unary RPCs."""

    def __call__(
        self,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> grpc.aio.UnaryUnaryCall:
        said = (self._path, timeout, metadata, credentials, wait_for_ready, compression)
        if self._interceptors:
            call = InterceptedUnaryUnaryCall(
                self._interceptors, self._start, CallSpec(*said), request
            )
            return self._channel.add_intercepted(call)
        return self._start(said, request)

    def _start(self, said: Said, request: Any) -> UnaryUnaryCall:
        core = self._channel.core()
        call = UnaryUnaryCall(self._channel.loop, self._deserializer)
        self._start_with_request(self._new_call(core, call, said), request)
        call.is_starting = False
        return call


class UnaryStreamMultiCallable(_MultiCallable, grpc.aio.UnaryStreamMultiCallable):
    """Starts RPCs with streamed responses."""

    def __call__(
        self,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> grpc.aio.UnaryStreamCall:
        said = (self._path, timeout, metadata, credentials, wait_for_ready, compression)
        if self._interceptors:
            call = InterceptedUnaryStreamCall(
                self._interceptors, self._start, CallSpec(*said), request
            )
            return self._channel.add_intercepted(call)
        return self._start(said, request)

    def _start(self, said: Said, request: Any) -> UnaryStreamCall:
        core = self._channel.core()
        outcome = StreamOutcome(self._channel.loop, self._deserializer)
        call = UnaryStreamCall(outcome)
        self._start_with_request(self._new_call(core, outcome, said), request)
        outcome.is_starting = False
        return call


class StreamUnaryMultiCallable(_MultiCallable, grpc.aio.StreamUnaryMultiCallable):
    """Starts RPCs with streamed requests."""

    def __call__(
        self,
        request_iterator: RequestIterator | None = None,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> grpc.aio.StreamUnaryCall:
        said = (self._path, timeout, metadata, credentials, wait_for_ready, compression)
        if self._interceptors:
            call = InterceptedStreamUnaryCall(
                self._interceptors, self._start, CallSpec(*said), request_iterator
            )
            return self._channel.add_intercepted(call)
        return self._start(said, request_iterator)

    def _start(self, said: Said, requests: RequestIterator | None) -> StreamUnaryCall:
        core = self._channel.core()
        call = StreamUnaryCall(self._channel.loop, self._deserializer, self._serializer)
        self._new_call(core, call, said).start()
        call.is_starting = False
        call.start_writing(requests)
        return call


class StreamStreamMultiCallable(_MultiCallable, grpc.aio.StreamStreamMultiCallable):
    """Starts RPCs with streams both ways."""

    def __call__(
        self,
        request_iterator: RequestIterator | None = None,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> grpc.aio.StreamStreamCall:
        said = (self._path, timeout, metadata, credentials, wait_for_ready, compression)
        if self._interceptors:
            call = InterceptedStreamStreamCall(
                self._interceptors, self._start, CallSpec(*said), request_iterator
            )
            return self._channel.add_intercepted(call)
        return self._start(said, request_iterator)

    def _start(self, said: Said, requests: RequestIterator | None) -> StreamStreamCall:
        core = self._channel.core()
        outcome = StreamOutcome(self._channel.loop, self._deserializer)
        call = StreamStreamCall(outcome, self._serializer)
        self._new_call(core, outcome, said).start()
        outcome.is_starting = False
        call.start_writing(requests)
        return call


AioChannel.kinds = Kinds(
    UnaryUnaryMultiCallable,
    UnaryStreamMultiCallable,
    StreamUnaryMultiCallable,
    StreamStreamMultiCallable,
)
