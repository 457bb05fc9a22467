"""Metrics of subchannels: connection attempts, open connections and disconnections.

Specs: A94. Imported only by channels that have a stats plugin.

A subchannel that several channels share is counted once, with the labels of the first of them that
has plugins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base import State, UnixAddress
from proxyless.channel.connectivity import Connected, Event, Failed, Lost
from proxyless.lb.attributes import BACKEND_SERVICE, LOCALITY_LABEL
from proxyless.metrics.instruments import (
    SUBCHANNEL_ATTEMPTS_FAILED,
    SUBCHANNEL_ATTEMPTS_SUCCEEDED,
    SUBCHANNEL_DISCONNECTIONS,
    SUBCHANNEL_OPEN_CONNECTIONS,
)
from proxyless.wire import ErrorCode

if TYPE_CHECKING:
    from proxyless.base import Address, Attributes
    from proxyless.channel.subchannel_options import SubchannelOptions
    from proxyless.metrics import Metrics
    from proxyless.transport import ClientTransport

# Values of the label grpc.security_level.
_PRIVATE: Final = "privacy_and_integrity"
_NONE: Final = "none"

# Values of the label grpc.disconnect_error.
_SHUTDOWN: Final = "subchannel shutdown"
_UNKNOWN: Final = "unknown"
# The first that fits.
_SOCKET_ERRORS: Final = (
    (ConnectionResetError, "connection reset"),
    # "also includes connections closed due to … gRPC keepalives" - A94
    (TimeoutError, "connection timed out"),
    (ConnectionAbortedError, "connection aborted"),
    (OSError, "socket error"),
)


class MeasuredSubchannel(Protocol):
    """The attributes of a subchannel that its meter reads."""

    @property
    def address(self) -> Address: ...
    @property
    def options(self) -> SubchannelOptions: ...
    @property
    def state(self) -> State: ...
    @property
    def transport(self) -> ClientTransport | None: ...
    @property
    def open_connections(self) -> int: ...


class SubchannelMeter:
    """Counts the changes of one subchannel."""

    __slots__ = ("_endpoint", "_metrics", "_security_level", "_subchannel", "_target")

    def __init__(
        self, subchannel: MeasuredSubchannel, metrics: Metrics, attributes: Attributes
    ) -> None:
        # Fixed at construction.
        self._subchannel: Final = subchannel
        self._metrics: Final = metrics
        self._target: Final = (metrics.target,)
        service, locality = attributes.get(BACKEND_SERVICE), attributes.get(LOCALITY_LABEL)
        self._endpoint: Final = (service or "", locality or "")
        # Security level of the open connection.
        self._security_level = _NONE
        for _ in range(subchannel.open_connections):
            self._count_open()

    def on_change(self, before: State, event: Event) -> None:
        """Called by the subchannel when the event has changed its state."""
        match before, self._subchannel.state:
            case State.CONNECTING, State.READY:
                self._metrics.count(SUBCHANNEL_ATTEMPTS_SUCCEEDED, self._target, self._endpoint)
                self._count_open()
            case State.CONNECTING, State.TRANSIENT_FAILURE:
                self._metrics.count(SUBCHANNEL_ATTEMPTS_FAILED, self._target, self._endpoint)
            case State.READY, _:
                if isinstance(event, Lost):
                    self._count_disconnection(name_disconnect(event.cause))
                else:
                    for _ in range(self._subchannel.open_connections):
                        self._count_disconnection(_SHUTDOWN)
            case _:
                # "If the subchannel is shut down while a connection attempt is in flight, we should
                # not record the connection attempt as either succeeded or failed" - A94
                pass

    def on_further_connection(self, event: Event) -> None:
        """Called by a subchannel that stays READY, for events of its other connections (A105)."""
        match event:
            case Connected():
                self._metrics.count(SUBCHANNEL_ATTEMPTS_SUCCEEDED, self._target, self._endpoint)
                self._count_open()
            case Failed():
                self._metrics.count(SUBCHANNEL_ATTEMPTS_FAILED, self._target, self._endpoint)
            case Lost(_, cause):
                self._count_disconnection(name_disconnect(cause))
            case _:
                pass

    def _count_open(self) -> None:
        self._security_level = self._find_security_level()
        labels = (self._security_level, *self._endpoint)
        self._metrics.count(SUBCHANNEL_OPEN_CONNECTIONS, self._target, labels)

    def _count_disconnection(self, error: str) -> None:
        labels = (*self._endpoint, error)
        self._metrics.count(SUBCHANNEL_DISCONNECTIONS, self._target, labels)
        labels = (self._security_level, *self._endpoint)
        self._metrics.count(SUBCHANNEL_OPEN_CONNECTIONS, self._target, labels, value=-1)

    def _find_security_level(self) -> str:
        subchannel = self._subchannel
        assert subchannel.transport is not None, "the state is READY"
        is_unix = isinstance(subchannel.address, UnixAddress)
        is_local = is_unix and subchannel.options.transport.is_local_only
        return _PRIVATE if is_local or subchannel.transport.is_encrypted else _NONE


def name_disconnect(cause: int | Exception | None) -> str:
    """The value of grpc.disconnect_error: for the code of a GOAWAY, or a socket's error."""
    if isinstance(cause, int):
        try:
            return f"GOAWAY {ErrorCode(cause).name}"
        except ValueError:
            # A peer could make a time series of each number.
            return _UNKNOWN
    for kind, name in _SOCKET_ERRORS:
        if isinstance(cause, kind):
            return name
    return _UNKNOWN
