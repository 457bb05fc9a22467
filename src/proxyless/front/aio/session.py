"""A channel of grpc.aio's kind whose RPCs stay on one backend.

Specs: A55, A60, A75: with the stateful_session filter in the mesh, the RPCs of one session go to
one backend. The application handles no cookies: the session keeps them.

async with channel.session() as session:
    stub = carts_pb2_grpc.CartsStub(session)
    await stub.Add(item)
    await stub.Pay(request)  # At the backend that has the cart: session.backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc.aio

from proxyless.front.aio.channel import AioChannel
from proxyless.front.aio.multi_callables import (
    Kinds,
    StreamStreamMultiCallable,
    StreamUnaryMultiCallable,
    UnaryStreamMultiCallable,
    UnaryUnaryMultiCallable,
)
from proxyless.front.session import Session

if TYPE_CHECKING:
    from proxyless.base import Metadata
    from proxyless.channel import Call, Channel
    from proxyless.front.aio.channel import InterceptedCall
    from proxyless.front.aio.interceptors import Interceptors, Said


class AioSession(AioChannel):
    """A session on a channel. Driven by stubs, on the channel's loop.

    It has no connections of its own, and its end ends nothing but the session.
    """

    def __init__(self, parent: AioChannel, interceptors: Interceptors) -> None:
        super().__init__(
            parent.core, encoding=parent.encoding, interceptors=None, explain=parent.explainer
        )
        self._parent: Final = parent
        self._interceptors = interceptors
        self.cookies: Final = Session()

    # Where the session lives

    @property
    def backend(self) -> str | None:
        """The address of the backend that serves it; None before the first answer."""
        return self.cookies.backend(self._now_s)

    @property
    def cluster(self) -> str | None:
        """The cluster that its route chose; None before the first answer."""
        return self.cookies.cluster(self._now_s)

    def _now_s(self) -> float:
        # Only asked for when there is a cookie, and so a loop.
        return self._parent.loop.time()

    def _own_metadata(self, path: str, core: Channel) -> Metadata:
        return self.cookies.choose(path, core.clock.now_s)[0]

    # Ends

    async def close(self, grace: float | None = None) -> None:
        """Take no new RPCs. Those under way are the channel's, and go on."""
        self._is_closed = True

    # For the calls of this session

    def add_intercepted(self, call: InterceptedCall) -> InterceptedCall:
        return self._parent.add_intercepted(call)

    def core(self) -> Channel:
        if self._is_closed:
            raise grpc.aio.UsageError("Session is closed.")
        core = self._parent.core()
        self.loop = self._parent.loop
        return core


class _InSession:
    """What the RPCs of a session have beside what other RPCs have."""

    _channel: AioSession

    def _new_call(self, core: Channel, outcome: Any, said: Said) -> Call:
        path, timeout, metadata, *rest = said
        session, clock = self._channel.cookies, core.clock
        header, sent = session.choose(path, clock.now_s)
        if header:
            # Behind what the application says: of two cookies of one name the first counts.
            metadata = (*(metadata or ()), *header)
        call: Call = super()._new_call(core, outcome, (path, timeout, metadata, *rest))  # type: ignore[misc]
        session.join(call, sent, clock)
        return call


class _UnaryUnary(_InSession, UnaryUnaryMultiCallable):
    """Starts unary RPCs."""


class _UnaryStream(_InSession, UnaryStreamMultiCallable):
    """Starts RPCs with streamed responses."""


class _StreamUnary(_InSession, StreamUnaryMultiCallable):
    """Starts RPCs with streamed requests."""


class _StreamStream(_InSession, StreamStreamMultiCallable):
    """Starts RPCs with streams both ways."""


AioSession.kinds = Kinds(_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream)
