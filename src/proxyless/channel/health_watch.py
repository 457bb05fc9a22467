"""Health watches of the policies of one channel.

Specs: A17; A61, "Generic Health Reporting Mechanism".

Theory of operation. A channel has one `ChannelHealth`: the service name of its service config, and
the watches of its policies (`lb.api.Subchannel.watch_health`). A new name applies to all of them at
once; without one, every connection is healthy. Watches of one subchannel with equal requests share
a `HealthChecker`, even across channels: it owns the stream, and `health_registry` closes it after
the last of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base import OK, State, Status
from proxyless.base.frozen import frozen
from proxyless.channel.credentials import service_url
from proxyless.runtime import IDLE_TIMER, Timer

if TYPE_CHECKING:
    from proxyless.channel.credentials import CallCredentials
    from proxyless.channel.options import ChannelOptions
    from proxyless.channel.subchannel import Subchannel
    from proxyless.lb.api import StateListener
    from proxyless.runtime import Clock

WATCH_PATH: Final = "/grpc.health.v1.Health/Watch"

_HEALTHY: Final = (State.READY, OK)


@frozen
class HealthRequest:
    """Parameters of a health check. Watches with equal ones share a checker."""

    service: str
    authority: str
    scheme: str
    user_agent: str
    # "If there are any call credentials associated with the channel, the client will send those
    # credentials with the Watch() call" - A17. They are requested with this URL.
    credentials: CallCredentials | None
    service_url: str

    @classmethod
    def of(cls, service: str, authority: str, options: ChannelOptions) -> HealthRequest:
        return cls(
            service,
            authority,
            options.scheme,
            options.user_agent,
            options.call_credentials,
            service_url(authority, WATCH_PATH),
        )


class Checker(Protocol):
    """The part of `HealthChecker` that its watches use."""

    @property
    def subchannel(self) -> Subchannel: ...
    @property
    def request(self) -> HealthRequest: ...
    @property
    def latest(self) -> tuple[State, Status]: ...
    @property
    def is_watched(self) -> bool: ...

    def add(self, watch: HealthWatch) -> None: ...
    def remove(self, watch: HealthWatch) -> None: ...


class Checkers(Protocol):
    """The part of `HealthCheckers` that watches use."""

    def acquire(self, subchannel: Subchannel, request: HealthRequest) -> Checker: ...
    def release(self, subchannel: Subchannel, request: HealthRequest) -> None: ...


class ChannelHealth:
    """The service whose health counts for one channel, and all its health watches."""

    def __init__(self, authority: str, options: ChannelOptions) -> None:
        # Fixed at construction.
        self._authority = authority
        self._options = options
        # From the last service config; None without health checking.
        self._request: HealthRequest | None = None
        # Ordered, so that simulations are reproducible.
        self._watches: dict[HealthWatch, None] = {}

    def check(self, service: str | None) -> None:
        """Watch this service from now on; None: every connection is healthy."""
        request = None
        if service is not None:
            request = HealthRequest.of(service, self._authority, self._options)
        if request != self._request:
            self._request = request
            for watch in tuple(self._watches):
                watch.change(request)

    def watch(
        self,
        subchannel: Subchannel,
        checkers: Checkers,
        listener: StateListener,
        clock: Clock,
    ) -> HealthWatch:
        """Call the listener after each change, until the watch is cancelled."""
        watch = HealthWatch(listener, clock, subchannel, checkers, self._watches)
        self._watches[watch] = None
        watch.start(self._request)
        return watch


class HealthWatch:
    """One policy's watch of the health of one subchannel.

    It delivers in the next turn of the loop, like `StateWatch`, but only the newest state: a
    backend may change its health so often that delivering each change would block the loop.
    """

    __slots__ = (
        "_checker",
        "_checkers",
        "_clock",
        "_last_delivered",
        "_listener",
        "_siblings",
        "_subchannel",
        "_timer",
        "handle_watches",
    )

    def __init__(
        self,
        listener: StateListener,
        clock: Clock,
        subchannel: Subchannel,
        checkers: Checkers,
        siblings: dict[HealthWatch, None],
    ) -> None:
        # Fixed at construction.
        self._listener = listener
        self._subchannel = subchannel
        self._checkers = checkers
        # All watches of the channel.
        self._siblings = siblings
        self._clock = clock
        # All watches of the handle, which sets it.
        self.handle_watches: dict[HealthWatch, None] = {}
        # Changed by the channel; None without health checking.
        self._checker: Checker | None = None
        self._last_delivered = _HEALTHY
        # Not `Soon`, which is two objects more for each endpoint.
        self._timer: Timer = IDLE_TIMER

    @property
    def latest(self) -> tuple[State, Status]:
        checker = self._checker
        return _HEALTHY if checker is None else checker.latest

    def start(self, request: HealthRequest | None) -> None:
        """Watch with this request. The listener is called after the first change."""
        if request is not None:
            self._acquire_checker(request)
            self._last_delivered = self.latest

    def change(self, request: HealthRequest | None) -> None:
        """Watch with this request instead, and call the listener if the health differs."""
        self._acquire_checker(request)
        self.on_change()

    def on_change(self) -> None:
        """Deliver in the next turn, if the health differs by then."""
        if not self._timer.pending:
            self._timer = self._clock.call_later(0, self._deliver)

    def cancel(self) -> None:
        """Idempotent."""
        self._timer.cancel()
        self._siblings.pop(self, None)
        self.handle_watches.pop(self, None)
        checker, self._checker = self._checker, None
        if checker is not None:
            self._leave(checker)

    def _acquire_checker(self, request: HealthRequest | None) -> None:
        before, self._checker = self._checker, None
        if request is not None:
            self._checker = self._checkers.acquire(self._subchannel, request)
            self._checker.add(self)
        if before is not None:
            self._leave(before)

    def _deliver(self) -> None:
        latest = self.latest
        if latest != self._last_delivered:
            self._last_delivered = latest
            self._listener(*latest)

    def _leave(self, checker: Checker) -> None:
        checker.remove(self)
        if not checker.is_watched:
            self._checkers.release(checker.subchannel, checker.request)
