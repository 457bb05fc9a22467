"""Session of the blocking API: a channel whose RPCs stay on one backend.

Specs: A55, A60, A75, as for `aio.session`. May be used by several threads.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from proxyless.front.conversions import CLOSED
from proxyless.front.session import SessionApi, SessionCookies, extend_multi_callables
from proxyless.front.sync.channel import SyncChannel

if TYPE_CHECKING:
    from proxyless.channel import Channel, Method
    from proxyless.front.conversions import MetadataLike
    from proxyless.front.sync.outcomes import Binding, Outcome
    from proxyless.front.sync.subscriptions import StateCallback

_CLOSED: Final = "Cannot invoke RPC on closed session!"


class _InSession:
    """Adds the session's cookies to the RPCs of a multi-callable."""

    _channel: SyncSession
    _path: str

    def _prepare(
        self, outcome: Outcome, timeout: float | None, metadata: MetadataLike | None, *rest: Any
    ) -> None:
        cookies = self._channel.cookies
        if metadata:
            metadata = tuple(metadata)
        headers, sent = cookies.choose(self._path, partial(now_s, outcome.binding), metadata or ())
        if headers:
            # After the application's metadata: of two cookies with one name the first is used.
            metadata = (*(metadata or ()), *headers)
        super()._prepare(outcome, timeout, metadata, *rest)  # type: ignore[misc]
        cookies.observe(outcome.call, sent, outcome.binding.core.clock)


class SyncSession(SessionApi, SyncChannel):
    """A session on a channel: uses the channel's connections and connectivity state."""

    multi_callables = extend_multi_callables(_InSession, SyncChannel.multi_callables)

    def __init__(self, parent: SyncChannel) -> None:
        super().__init__(_open_no_core, encoding=parent.encoding, explain=parent.explainer)
        self._parent: Final = parent
        self._callbacks: list[StateCallback] = []
        self.cookies = SessionCookies()

    def _now_s(self) -> float:
        try:
            return now_s(self._parent.bind())
        except ValueError:
            # The channel is closed, so it has no clock: cookies count as not expired.
            return -math.inf

    def subscribe(self, callback: StateCallback, try_to_connect: bool | None = False) -> None:
        self._callbacks.append(callback)
        self._parent.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: StateCallback) -> None:
        if callback in self._callbacks:
            self._callbacks.remove(callback)
            self._parent.unsubscribe(callback)

    def close(self) -> None:
        """Reject new RPCs. Running ones continue, until the channel is closed. Idempotent."""
        self._is_closed = True
        for callback in list(self._callbacks):
            self.unsubscribe(callback)

    # Called by multi-callables

    def bind(self, closed: str = CLOSED) -> Binding:
        if self._is_closed:
            raise ValueError(_CLOSED)
        return self._parent.bind(closed)

    def register(self, method: str | bytes, is_registered: bool | None) -> str:
        return self._parent.register(method, is_registered)

    def method(self, core: Channel, path: str) -> Method:
        return self._parent.method(core, path)


def _open_no_core() -> Channel:
    raise AssertionError("a session has no core of its own")


def now_s(binding: Binding) -> float:
    """The time of the channel's clock, which may be read on the loop only. Blocks."""
    return binding.background.call(binding.core.clock.now_s)
