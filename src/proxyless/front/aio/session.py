"""Session for asyncio: a channel whose RPCs stay on one backend.

Specs: A55, A60, A75: with the stateful_session filter in the mesh, the RPCs of one session go to
one backend. The session handles the cookies.

async with channel.session() as session:
    stub = carts_pb2_grpc.CartsStub(session)
    await stub.Add(item)
    await stub.Pay(request)  # Goes to the same backend, session.backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc.aio

from proxyless.front.aio.channel import AioChannel
from proxyless.front.session import SessionApi, SessionCookies, extend_multi_callables

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.channel import Call, Channel
    from proxyless.front.aio.channel import InterceptedCall
    from proxyless.front.aio.interceptors import CallArguments

T = TypeVar("T")


class _InSession:
    """Adds the session's cookies to the RPCs of a multi-callable."""

    _channel: AioSession

    def _new_call(self, core: Channel, outcome: Any, arguments: CallArguments) -> Call:
        path, timeout, metadata, *rest = arguments
        cookies, clock = self._channel.cookies, core.clock
        if metadata:
            metadata = tuple(metadata)
        headers, sent = cookies.choose(path, clock.now_s, metadata or ())
        if headers:
            # After the application's metadata: of two cookies with one name the first is used.
            metadata = (*(metadata or ()), *headers)
        call: Call = super()._new_call(core, outcome, (path, timeout, metadata, *rest))  # type: ignore[misc]
        cookies.observe(call, sent, clock)
        return call


class AioSession(SessionApi, AioChannel):
    """A session on a channel: uses the channel's connections, on the channel's loop."""

    multi_callables = extend_multi_callables(_InSession, AioChannel.multi_callables)

    def __init__(self, parent: AioChannel) -> None:
        super().__init__(
            parent.core, encoding=parent.encoding, interceptors=None, explain=parent.explainer
        )
        self._parent: Final = parent
        self.interceptors = parent.interceptors
        self.cookies = SessionCookies()

    def _now_s(self) -> float:
        return self._parent.loop.time()

    async def close(self, grace: float | None = None) -> None:
        """Reject new RPCs. Running ones continue, until the channel is closed."""
        self.is_closed = True

    # Called by multi-callables

    def add_intercepted(self, call: InterceptedCall) -> InterceptedCall:
        return self._parent.add_intercepted(call)

    def run_on_loop(self, function: Callable[[], T]) -> T:
        return self._parent.run_on_loop(function)

    def core(self) -> Channel:
        if self.is_closed:
            raise grpc.aio.UsageError("Session is closed.")
        core = self._parent.core()
        self.loop = self._parent.loop
        return core
