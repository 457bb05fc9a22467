"""Asyncio channel with the interface of `grpc.aio.Channel`.

Generated stubs work with it unmodified. It belongs to the loop on which it is first used.
"""

from __future__ import annotations

import asyncio
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from weakref import WeakSet

import grpc
import grpc.aio

from proxyless.channel.statuses import CANCELLED
from proxyless.front.aio.multi_callables import (
    NO_LOOP,
    OutsideLoopError,
    StreamStreamMultiCallable,
    StreamUnaryMultiCallable,
    UnaryStreamMultiCallable,
    UnaryUnaryMultiCallable,
)
from proxyless.front.channel_api import ChannelApi, Explain, MultiCallables
from proxyless.front.conversions import to_grpc_state
from proxyless.runtime.forks import call_after_fork_in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from proxyless.base import State
    from proxyless.channel import Channel
    from proxyless.front.aio.session import AioSession
    from proxyless.front.private_channel import PrivateAioChannel

_OTHER_LOOP: Final = "this channel belongs to another event loop: create one channel per loop"

InterceptedCall = TypeVar("InterceptedCall")
T = TypeVar("T")


class Interceptors:
    """An application's interceptors, by kind of call. Some applications change these lists."""

    def __init__(self, interceptors: Iterable[object]) -> None:
        """Raises ValueError for an object of no kind. One may be of several kinds."""
        kinds = (
            grpc.aio.UnaryUnaryClientInterceptor,
            grpc.aio.UnaryStreamClientInterceptor,
            grpc.aio.StreamUnaryClientInterceptor,
            grpc.aio.StreamStreamClientInterceptor,
        )
        found = list(interceptors)
        for interceptor in found:
            if not isinstance(interceptor, kinds):
                raise ValueError(
                    f"interceptor {interceptor!r} is of no known kind, wanted one of "
                    + ", ".join(kind.__name__ for kind in kinds)
                )
        self.unary_unary, self.unary_stream, self.stream_unary, self.stream_stream = (
            [each for each in found if isinstance(each, kind)] for kind in kinds
        )


def _interceptors_of(kind: str) -> property:
    """The list of one kind, as an attribute of grpcio's channel.

    Google's clients add to these lists, and replace them.
    """

    def get(channel: AioChannel) -> list[Any]:
        return getattr(channel.interceptors, kind)  # type: ignore[no-any-return]

    def replace(channel: AioChannel, found: list[Any]) -> None:
        setattr(channel.interceptors, kind, found)

    return property(get, replace)


class AioChannel(
    ChannelApi[
        UnaryUnaryMultiCallable,
        UnaryStreamMultiCallable,
        StreamUnaryMultiCallable,
        StreamStreamMultiCallable,
    ],
    grpc.aio.Channel,
):
    """A channel as in grpc.aio. `open_core` creates its core when it is first used on a loop."""

    # Set with the core.
    loop: asyncio.AbstractEventLoop

    multi_callables = MultiCallables(
        UnaryUnaryMultiCallable,
        UnaryStreamMultiCallable,
        StreamUnaryMultiCallable,
        StreamStreamMultiCallable,
    )

    _unary_unary_interceptors = _interceptors_of("unary_unary")
    _unary_stream_interceptors = _interceptors_of("unary_stream")
    _stream_unary_interceptors = _interceptors_of("stream_unary")
    _stream_stream_interceptors = _interceptors_of("stream_stream")

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
        # The loop that ran at its creation, for an RPC that is started while no loop runs.
        self._created_on = _get_running_loop()
        self.is_closed = False
        # The core of the process that this one was forked from.
        self._inherited: Channel | None = None
        # Intercepted calls, which may not have started an RPC yet.
        self._intercepted: WeakSet[Any] = WeakSet()
        self.encoding = encoding
        # Paths of methods that generated code has registered.
        self.registered: set[str] = set()
        self.interceptors = Interceptors(interceptors or ())

    def session(self) -> AioSession:
        """Create a session: its RPCs stay on one backend, if the mesh has sessions (A55).

        A channel may have any number of sessions, each on a backend of its own.
        """
        from proxyless.front.aio.session import AioSession  # noqa: PLC0415 - seldom used

        return AioSession(self)

    def register(self, method: str | bytes, is_registered: bool | None) -> str:
        path = method if isinstance(method, str) else method.decode("latin-1")
        if is_registered:
            self.registered.add(path)
        return path

    # Connectivity

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        core = self._core
        if core is not None and self.loop is not _get_running_loop():
            return self._get_state_elsewhere(core, try_to_connect)
        # As in grpcio, a channel whose calls drain has the state of its connections.
        try:
            core = self._core if self.is_closed else self.core()
        except OutsideLoopError:
            return self.run_on_loop(lambda: self.get_state(try_to_connect))
        if core is None or self.loop.is_closed():
            return grpc.ChannelConnectivity.SHUTDOWN
        state = core.state
        if try_to_connect:
            core.request_connection()
        return to_grpc_state(state)

    def _get_state_elsewhere(self, core: Channel, try_to_connect: bool) -> grpc.ChannelConnectivity:
        """The state, in another thread or on another loop than the channel's."""
        if self.loop.is_closed():
            return grpc.ChannelConnectivity.SHUTDOWN
        if try_to_connect and not self.is_closed:
            self.loop.call_soon_threadsafe(core.request_connection)
        return to_grpc_state(core.state)

    @property
    def _channel(self) -> PrivateAioChannel:
        from proxyless.front.private_channel import PrivateAioChannel  # noqa: PLC0415 - seldom used

        return PrivateAioChannel(self)

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
        """Reject new RPCs; cancel running ones after `grace` seconds."""
        if grace is not None and grace < 0:
            raise ValueError(f"grace is {grace} s, wanted 0 or more")
        if self.is_closed:
            return
        if self._core is not None and self.loop is not asyncio.get_running_loop():
            await self._close_elsewhere(grace)
            return
        self.is_closed = True
        core = self._core
        try:
            if grace:
                await self._wait_calls(core, grace)
        finally:
            self._end_calls(core)
        if core is not None:
            await core.wait_closed()

    def _end_calls(self, core: Channel | None) -> None:
        # As in grpc.aio, the RPCs end as if the application had cancelled them.
        for call in list(self._intercepted):
            call.cancel()
        if core is not None:
            core.close(CANCELLED)

    async def _close_elsewhere(self, grace: float | None) -> None:
        """Close the channel from another loop than its own."""
        if self.loop.is_running():
            closing = asyncio.run_coroutine_threadsafe(self.close(grace), self.loop)
            try:
                await asyncio.wrap_future(closing)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                # The channel's loop has ended meanwhile, and its connections and calls with it.
            return
        self.is_closed = True
        # If the loop is closed, connections and calls have ended with it.
        if not self.loop.is_closed():
            _run_on(self.loop, lambda: self._end_calls(self._core))

    def __del__(self) -> None:
        """Close the core after its last call has ended, as grpcio does."""
        core = self._core
        if core is None or self.is_closed:
            return
        # May run in any thread, and after the loop is closed.
        if self.loop.is_closed():
            text = f"proxyless channel to {core.target!r} was not closed before its event loop"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
        else:
            self.loop.call_soon_threadsafe(core.call_when_no_calls, core.close)

    async def _wait_calls(self, core: Channel | None, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                # In a loop, because an ended RPC with unread responses counts again, and an
                # interceptor may have more to do after the end of its RPC.
                while True:
                    if core is not None and core.calls:
                        await self._wait_no_calls(core)
                    elif chains := self._running_chains():
                        await asyncio.wait(chains)
                    else:
                        return

    def _running_chains(self) -> list[asyncio.Task[Any]]:
        """The tasks of interceptors."""
        return [call.chain for call in self._intercepted if not call.chain.done()]

    async def _wait_no_calls(self, core: Channel) -> None:
        ended: asyncio.Future[None] = self.loop.create_future()

        def on_no_calls() -> None:
            if not ended.done():
                ended.set_result(None)

        core.call_when_no_calls(on_no_calls)
        await ended

    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop, under the name that it has in grpcio's channels."""
        return self.__dict__.get("loop") or _get_running_loop()

    # Called by multi-callables

    def add_intercepted(self, call: InterceptedCall) -> InterceptedCall:
        """Cancel this call when the channel is closed."""
        self._intercepted.add(call)
        return call

    def core(self) -> Channel:
        """The core. Raises if the channel is closed, belongs to another loop, or no loop runs."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise OutsideLoopError(NO_LOOP) from None
        if self._core is None or self.loop is not loop:
            return self._bind(loop)
        if self.is_closed:
            raise grpc.aio.UsageError("Channel is closed.")
        return self._core

    def run_on_loop(self, function: Callable[[], T]) -> T:
        """Call a function as if the channel's loop ran, which will run later.

        `loop.run_until_complete(stub.Get(request))` starts the RPC before it runs the loop.
        """
        if self.is_closed:
            raise grpc.aio.UsageError("Channel is closed.") from None
        loop = self._find_loop()
        if loop.is_closed():
            raise RuntimeError("the event loop of this channel is closed") from None
        if loop.is_running():
            # In another thread.
            raise RuntimeError(NO_LOOP) from None
        return _run_on(loop, function)

    def _find_loop(self) -> asyncio.AbstractEventLoop:
        """The channel's loop; before it has one, that of its creation, or the current one."""
        if self._core is not None:
            return self.loop
        if self._created_on is not None and not self._created_on.is_closed():
            return self._created_on
        with warnings.catch_warnings():
            # Some versions of Python warn when they create one.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                return asyncio.get_event_loop()
            except RuntimeError:
                raise RuntimeError(NO_LOOP) from None

    def _with_core(self, function: Callable[[Channel], T]) -> T:
        return function(self._core or self.core())

    def _bind(self, loop: asyncio.AbstractEventLoop) -> Channel:
        if self.is_closed:
            raise grpc.aio.UsageError("Channel is closed.")
        if self._core is not None:
            raise RuntimeError(_OTHER_LOOP)
        if self._inherited is not None and self.loop is loop:
            # The child of a fork runs the loop of its parent, with its timers.
            self._inherited.close()
        self.loop = loop
        self._core = self._open_core()
        _bound.add(self)
        return self._core

    def leave_to_parent(self) -> None:
        """Called in the child of a fork: a new core is created when the channel is next used."""
        self._inherited, self._core = self._core, None


def _run_on(loop: asyncio.AbstractEventLoop, function: Callable[[], T]) -> T:
    """Call a function as if this loop, which does not run, ran in this thread."""
    current = _get_running_loop()
    asyncio._set_running_loop(loop)  # noqa: SLF001 - for those that run loops
    try:
        return function()
    finally:
        asyncio._set_running_loop(current)  # noqa: SLF001


def _get_running_loop() -> asyncio.AbstractEventLoop | None:
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


# Channels that have a core.
_bound: Final[WeakSet[AioChannel]] = WeakSet()


def _after_fork_in_child() -> None:
    for channel in list(_bound):
        channel.leave_to_parent()
    _bound.clear()


call_after_fork_in_child(_after_fork_in_child)
