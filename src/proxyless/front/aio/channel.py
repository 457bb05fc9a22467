"""The asyncio channel: grpc.aio's interface on our own stack.

Unmodified generated stubs take it. It belongs to the loop it is first used on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar
from weakref import WeakSet

import grpc
import grpc.aio

from proxyless.channel.statuses import CANCELLED
from proxyless.front.aio.interceptors import (
    Interceptors,
)
from proxyless.front.aio.multi_callables import (
    CHANNEL_KINDS,
    Kinds,
    StreamStreamMultiCallable,
    StreamUnaryMultiCallable,
    UnaryStreamMultiCallable,
    UnaryUnaryMultiCallable,
)
from proxyless.front.conversions import (
    Deserializer,
    Serializer,
    to_grpc_state,
)
from proxyless.front.explaining import Explain, Explaining

if TYPE_CHECKING:
    from types import TracebackType

    from proxyless.base import State
    from proxyless.channel import Channel
    from proxyless.front.aio.session import AioSession

_OTHER_LOOP: Final = "this channel belongs to another event loop: create one channel per loop"

MetadataLike = Iterable[tuple[str, str | bytes]]
InterceptedCall = TypeVar("InterceptedCall")
T = TypeVar("T")


class AioChannel(Explaining, grpc.aio.Channel):
    """A channel of grpc.aio's kind. Driven by stubs and by the loop.

    `open_core` makes the channel proper once there is a loop to make it on.
    """

    # Known with the core.
    loop: asyncio.AbstractEventLoop

    # Set below, where they are.
    kinds: ClassVar[Kinds] = CHANNEL_KINDS

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
        from proxyless.front.aio.session import AioSession  # noqa: PLC0415 - few have sessions

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
