"""Blocking channel with the interface of `grpc.Channel`.

Generated stubs work with it unmodified, and any number of threads may use it. Its core is on the
background loop; it is created when the channel is first used, and again in the child of a fork.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Self, TypeVar

import grpc

from proxyless.front.channel_api import ChannelApi, Explain, MultiCallables
from proxyless.front.conversions import CLOSED
from proxyless.front.sync.background import CallbackThread, shared_background
from proxyless.front.sync.multi_callables import (
    StreamStreamMultiCallable,
    StreamUnaryMultiCallable,
    UnaryStreamMultiCallable,
    UnaryUnaryMultiCallable,
)
from proxyless.front.sync.outcomes import Binding
from proxyless.front.sync.subscriptions import StateCallback, Subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from proxyless.channel import Channel, Method
    from proxyless.front.private_channel import PrivateSyncChannel
    from proxyless.front.sync.session import SyncSession

T = TypeVar("T")

# Callers choose the paths, so the cache of methods is bounded.
_CACHED_METHODS_MAX: Final = 4096


class SyncChannel(
    ChannelApi[
        UnaryUnaryMultiCallable,
        UnaryStreamMultiCallable,
        StreamUnaryMultiCallable,
        StreamStreamMultiCallable,
    ],
    grpc.Channel,
):
    """A blocking channel as in grpcio. `open_core` creates its core on the loop."""

    multi_callables = MultiCallables(
        UnaryUnaryMultiCallable,
        UnaryStreamMultiCallable,
        StreamUnaryMultiCallable,
        StreamStreamMultiCallable,
    )

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
        # Set on the loop.
        self._binding: Binding | None = None
        # By path. The same for every core.
        self._methods: dict[str, Method] = {}
        # Paths of methods that generated code has registered.
        self._registered: set[str] = set()
        self._is_closed = False

    def session(self) -> SyncSession:
        """Create a session: its RPCs stay on one backend, if the mesh has sessions (A55).

        A channel may have any number of sessions, each on a backend of its own.
        """
        from proxyless.front.sync.session import SyncSession  # noqa: PLC0415 - seldom used

        return SyncSession(self)

    def register(self, method: str | bytes, is_registered: bool | None) -> str:
        path = method if isinstance(method, str) else method.decode("latin-1")
        if is_registered and path not in self._registered:
            self._registered.add(path)
            # A method that was cached before is not recorded by name.
            self._methods.pop(path, None)
        return path

    # Connectivity

    def subscribe(self, callback: StateCallback, try_to_connect: bool | None = False) -> None:
        """Call back with the state, now and whenever it changes, in another thread."""
        # As in grpcio, a closed channel ignores this.
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

    @property
    def _channel(self) -> PrivateSyncChannel:
        from proxyless.front.private_channel import PrivateSyncChannel  # noqa: PLC0415 - seldom used

        return PrivateSyncChannel(self)

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
        """Reject new RPCs, and cancel running ones. Idempotent."""
        self._is_closed = True
        self._subscriptions.clear()
        binding, self._binding = self._binding, None
        if binding is not None and binding.background.is_usable:
            binding.background.close(binding.core)

    def __del__(self) -> None:
        # May run in any thread, at any time, so it must not block.
        binding = getattr(self, "_binding", None)
        if binding is not None and binding.background.is_usable:
            binding.background.post(binding.core.close)

    # Called by multi-callables

    def bind(self, closed: str = CLOSED) -> Binding:
        """The current binding, created if there is none. Raises ValueError(closed) if closed."""
        binding = self._binding
        if binding is not None and binding.background.is_usable:
            return binding
        if self._is_closed:
            raise ValueError(closed)
        background = shared_background()

        def open_binding() -> Binding:
            # On the loop, so that threads that bind at the same time get one core.
            binding = self._binding
            if binding is None or binding.background is not background:
                core = self._open_core()
                binding = Binding(background, core, CallbackThread(), CallbackThread())
                self._subscriptions.watch(core, binding.state_callbacks)
                background.add(core)
                self._binding = binding
            if self._is_closed:
                # Another thread has closed the channel, and may not have closed this core.
                binding.core.close()
                raise ValueError(closed)
            return binding

        return background.call(open_binding)

    def _with_core(self, function: Callable[[Channel], T]) -> T:
        binding = self.bind()
        return binding.background.call(partial(function, binding.core))

    def method(self, core: Channel, path: str) -> Method:
        """The per-method state of a path. Cached, because interceptors create stubs per call."""
        method = self._methods.get(path)
        if method is None:
            if len(self._methods) >= _CACHED_METHODS_MAX:
                self._methods.clear()
            is_registered = path in self._registered
            method = self._methods[path] = core.method(path, is_registered=is_registered)
        return method
