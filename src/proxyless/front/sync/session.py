"""A channel of grpcio's blocking kind whose RPCs stay on one backend.

Specs: A55, A60, A75: see `aio_session`, whose twin this is. Any number of threads may share one.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from proxyless.front.session import Session
from proxyless.front.sync.channel import (
    Kinds,
    StreamStreamMultiCallable,
    StreamUnaryMultiCallable,
    SyncChannel,
    UnaryStreamMultiCallable,
    UnaryUnaryMultiCallable,
)

if TYPE_CHECKING:
    from proxyless.base import Metadata
    from proxyless.channel import Channel, Method
    from proxyless.front.sync.channel import MetadataLike
    from proxyless.front.sync.outcomes import Binding, Outcome
    from proxyless.front.sync.states import StateCallback

_CLOSED: Final = "Cannot invoke RPC on closed session!"


class SyncSession(SyncChannel):
    """A session on a channel. Driven by stubs, in any thread.

    It has no connections of its own, and its end ends nothing but the session.
    """

    def __init__(self, parent: SyncChannel) -> None:
        super().__init__(_open_nothing, encoding=parent.encoding, explain=parent.explainer)
        self._parent: Final = parent
        self._callbacks: list[StateCallback] = []
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
        try:
            return now_s(self._parent.bind())
        except ValueError:
            # Of a channel that is closed nobody knows the time: what was known last stands.
            return -math.inf

    # Connectivity is the channel's

    def subscribe(self, callback: StateCallback, try_to_connect: bool | None = False) -> None:
        self._callbacks.append(callback)
        self._parent.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: StateCallback) -> None:
        if callback in self._callbacks:
            self._callbacks.remove(callback)
            self._parent.unsubscribe(callback)

    def _own_metadata(self, path: str, core: Channel) -> Metadata:
        return self.cookies.choose(path, core.clock.now_s)[0]

    # Ends

    def close(self) -> None:
        """Take no new RPCs. Those under way are the channel's, and go on. Idempotent."""
        self._is_closed = True
        for callback in list(self._callbacks):
            self.unsubscribe(callback)

    # For the calls of this session

    def bind(self) -> Binding:
        if self._is_closed:
            raise ValueError(_CLOSED)
        return self._parent.bind()

    def register(self, method: str | bytes, is_registered: bool | None) -> str:
        return self._parent.register(method, is_registered)

    def method(self, core: Channel, path: str) -> Method:
        return self._parent.method(core, path)


def _open_nothing() -> Channel:
    raise AssertionError("a session has no core of its own")


def now_s(binding: Binding) -> float:
    """The time of the channel's loop, which knows it only while it runs. Blocks."""
    return binding.background.ask(binding.core.clock.now_s)


class _InSession:
    """What the RPCs of a session have beside what other RPCs have."""

    _channel: SyncSession
    _path: str

    def _prepare(
        self, outcome: Outcome, timeout: float | None, metadata: MetadataLike | None, *rest: Any
    ) -> None:
        session = self._channel.cookies
        header, sent = session.choose(self._path, partial(now_s, outcome.binding))
        if header:
            # Behind what the application says: of two cookies of one name the first counts.
            metadata = (*(metadata or ()), *header)
        super()._prepare(outcome, timeout, metadata, *rest)  # type: ignore[misc]
        session.join(outcome.call, sent, outcome.binding.core.clock)


class _UnaryUnary(_InSession, UnaryUnaryMultiCallable):
    """Starts unary RPCs."""


class _UnaryStream(_InSession, UnaryStreamMultiCallable):
    """Starts RPCs with streamed responses."""


class _StreamUnary(_InSession, StreamUnaryMultiCallable):
    """Starts RPCs with streamed requests."""


class _StreamStream(_InSession, StreamStreamMultiCallable):
    """Starts RPCs with streams both ways."""


SyncSession.kinds = Kinds(_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream)
