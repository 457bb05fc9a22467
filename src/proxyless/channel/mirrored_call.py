"""Mirrored calls: copies of RPCs for another cluster, whose responses are ignored.

Specs: no gRFC; `request_mirror_policies` as in Envoy, requirements MR-01 to MR-08.

Theory of operation
    A copy is sent once, right after the first attempt of its original, and has no influence on it:
    the channel does not count it as one of its RPCs, it is not queued if its cluster has no
    connection, and it is not retried. Its number and its duration have limits. Copies in flight are
    cancelled when the resolver that routed them is closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from proxyless.base import Status, StatusCode
from proxyless.base.frozen import frozen
from proxyless.channel.attempt import NULL_OBSERVER
from proxyless.channel.call import Call
from proxyless.channel.call_attempts import Station
from proxyless.channel.call_time import CallTime
from proxyless.channel.method import make_method
from proxyless.channel.statuses import CANCELLED, DEADLINE_EXCEEDED, LOGGER
from proxyless.lb.api import PickInfo
from proxyless.metrics.instruments import MIRRORED_RPCS, MIRRORED_RPCS_DROPPED
from proxyless.wire import StreamEnd

if TYPE_CHECKING:
    from proxyless.base import Attributes
    from proxyless.channel.call_owner import CallOwner
    from proxyless.channel.config_selector import MirroredRequest
    from proxyless.channel.method import Method
    from proxyless.lb.api import PickResult

# Copies in flight of one channel. Each holds its message until it is sent; others are dropped.
IN_FLIGHT_MAX: Final = 100
# The longest duration of a copy, if its route has no shorter timeout.
DURATION_MAX_S: Final = 15.0
# Methods in the cache. Applications choose the paths, so there is a limit.
METHODS_MAX: Final = 256

SHADOW_SUFFIX: Final = "-shadow"

_NOT_CONNECTED: Final = Status(StatusCode.UNAVAILABLE, "the mirror cluster has no connection")


def shadow_authority(authority: str) -> str:
    """The authority with Envoy's suffix, which comes before a port."""
    host, colon, port = authority.partition(":")
    # An IPv6 address has several colons.
    if colon and ":" not in port:
        return f"{host}{SHADOW_SUFFIX}:{port}"
    return authority + SHADOW_SUFFIX


class MirroredCalls:
    """The copies in flight of one channel, and a cache of their methods."""

    def __init__(self) -> None:
        self._calls: dict[MirroredCall, None] = {}
        # By path and authority.
        self._methods: dict[tuple[str, str], Method] = {}
        self._is_closed = False

    @property
    def in_flight(self) -> int:
        return len(self._calls)

    def start(self, channel: CallOwner, request: MirroredRequest, mirror: ClusterMirror) -> None:
        """Send a copy, unless there are too many."""
        if self._is_closed:
            return
        metrics = channel.options.metrics
        if len(self._calls) >= IN_FLIGHT_MAX:
            if metrics.active:
                metrics.count(MIRRORED_RPCS_DROPPED, (metrics.target,), (mirror.cluster,))
            return
        authority = channel.authority
        if mirror.has_shadow_suffix:
            authority = shadow_authority(authority)
        call = MirroredCall(channel, self._find_method(channel, request.path, authority), mirror)
        self._calls[call] = None
        call.send_copy(request)

    def on_call_ended(self, call: MirroredCall, channel: CallOwner, end: StreamEnd) -> None:
        self._calls.pop(call, None)
        metrics = channel.options.metrics
        if metrics.active:
            labels = (metrics.target, end.status.code.name)
            metrics.count(MIRRORED_RPCS, labels, (call.mirror.cluster,))

    def close(self) -> None:
        """Cancel all copies; no others are sent. Idempotent."""
        self._is_closed = True
        for call in list(self._calls):
            call.cancel(CANCELLED)

    def _find_method(self, channel: CallOwner, path: str, authority: str) -> Method:
        method = self._methods.get((path, authority))
        if method is None:
            if len(self._methods) >= METHODS_MAX:
                self._methods.clear()
            method = make_method(path, authority, channel.options, is_registered=False)
            self._methods[path, authority] = method
        return method


@frozen(eq=False)
class ClusterMirror:
    """Mirror cluster of a route. RPCs with the same attributes share it."""

    cluster: str
    # For the pickers: they name the cluster.
    attributes: Attributes
    timeout_s: float
    has_shadow_suffix: bool
    calls: MirroredCalls

    def send(self, channel: object, request: MirroredRequest) -> None:
        """Send a copy to this cluster. Does not raise."""
        try:
            self.calls.start(cast("CallOwner", channel), request, self)
        except Exception:
            LOGGER.exception("mirrored call of %s", request.path)


class MirroredCall(Call):
    """One copy: a call with one attempt, whose observer does nothing."""

    __slots__ = ("mirror",)

    def __init__(self, channel: CallOwner, method: Method, mirror: ClusterMirror) -> None:
        super().__init__(channel, method, NULL_OBSERVER)
        self.mirror: Final = mirror

    def send_copy(self, request: MirroredRequest) -> None:
        """Pick and send, or end at once."""
        self._metadata = request.metadata
        self._request.encoding = request.encoding
        self._request.messages = (request.message,)
        self._request.is_half_closed = True
        self._time = CallTime(self, self._channel.stack, self.mirror.timeout_s)
        self._info = PickInfo(request.path, request.metadata, self.mirror.attributes)
        # The metadata of the original has those of its credentials.
        self.station = Station.PICK
        self._attempts_wanted = 1
        self._pick()
        # There is no other attempt that would need it.
        self._request.messages = ()

    def on_deadline(self) -> None:
        self.cancel(DEADLINE_EXCEEDED)

    def finish(self, end: StreamEnd) -> None:
        """The channel does not count copies, so it is not notified."""
        if self.station is Station.ENDED:
            return
        self.station = Station.ENDED
        self._attempts = self._request.messages = ()
        if self.deadline_id:
            self._channel.stack.deadlines.cancel(self)
        self.mirror.calls.on_call_ended(self, self._channel, end)

    def _queue(self, _result: PickResult) -> None:
        self.finish(StreamEnd(_NOT_CONNECTED))

    def _continue_after(self, end: StreamEnd) -> None:
        """No transparent retry either."""
        self.finish(end)
