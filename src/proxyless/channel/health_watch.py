"""Who asks a backend for its health, and who wants to know?

Specs: A17; A61, "Generic Health Reporting Mechanism".

Theory of operation. A channel has one `ChannelHealth`: the name that its service config says, and
the watches of its policies (`lb.api.Subchannel.watch_health`). A new name counts for all of them at
once; without one, every connection is healthy. Watches of one subchannel that ask the same share a
`HealthChecker`, of whatever channels they are: it owns the stream, and `health_registry` closes it
after the last of them.

Nothing of this is on the way of an RPC: it ends in a state that a policy is told.
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
class Question:
    """Whose health, and who asks. Those who ask the same of a backend share the answer."""

    service: str
    authority: str
    scheme: str
    user_agent: str
    # "If there are any call credentials associated with the channel, the client will send those
    # credentials with the Watch() call" - A17. Asked for this URL.
    credentials: CallCredentials | None
    service_url: str

    @classmethod
    def of(cls, service: str, authority: str, options: ChannelOptions) -> Question:
        return cls(
            service,
            authority,
            options.scheme,
            options.user_agent,
            options.call_credentials,
            service_url(authority, WATCH_PATH),
        )


class Checker(Protocol):
    """A health checker, as its watches use it."""

    @property
    def subchannel(self) -> Subchannel: ...
    @property
    def question(self) -> Question: ...
    @property
    def latest(self) -> tuple[State, Status]: ...
    @property
    def is_watched(self) -> bool: ...

    def add(self, watch: HealthWatch) -> None: ...
    def remove(self, watch: HealthWatch) -> None: ...


class Checkers(Protocol):
    """The health checkers of an event loop, as watches use them."""

    def acquire(self, subchannel: Subchannel, question: Question) -> Checker: ...
    def release(self, subchannel: Subchannel, question: Question) -> None: ...


class ChannelHealth:
    """Which service has to be healthy, and who wants to know. Driven by the service config."""

    def __init__(self, authority: str, options: ChannelOptions) -> None:
        # Fixed at construction.
        self._authority = authority
        self._options = options
        # From the last service config: None is that nobody is asked.
        self._question: Question | None = None
        # In order, so that a simulated world repeats itself.
        self._watches: dict[HealthWatch, None] = {}

    def check(self, service: str | None) -> None:
        """The health of this service counts from now on; None: every connection is healthy."""
        question = None
        if service is not None:
            question = Question.of(service, self._authority, self._options)
        if question != self._question:
            self._question = question
            for watch in tuple(self._watches):
                watch.change(question)

    def watch(
        self,
        subchannel: Subchannel,
        checkers: Checkers,
        listener: StateListener,
        clock: Clock,
    ) -> HealthWatch:
        """Tell of each change from now on, until the watch is cancelled."""
        watch = HealthWatch(listener, clock, subchannel, checkers, self._watches)
        self._watches[watch] = None
        watch.start(self._question)
        return watch


class HealthWatch:
    """What one policy wants to know of one subchannel. Driven by the policy and the channel.

    Told soon, as by `watch.Watch`, but only the newest: how often a health changes is up to the
    backend, and a loop that told every change could be kept from everything else.
    """

    __slots__ = (
        "_checker",
        "_checkers",
        "_clock",
        "_listener",
        "_siblings",
        "_subchannel",
        "_timer",
        "_told",
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
        self._clock = clock
        self._subchannel = subchannel
        self._checkers = checkers
        # All of the channel, to be left at the end.
        self._siblings = siblings
        # Changed by the channel: whom to hear; None if the backend is not asked.
        self._checker: Checker | None = None
        # What the policy knows.
        self._told = _HEALTHY
        # Pending while it may be something else than what is.
        self._timer: Timer = IDLE_TIMER

    @property
    def latest(self) -> tuple[State, Status]:
        """What the health is now."""
        checker = self._checker
        return _HEALTHY if checker is None else checker.latest

    def start(self, question: Question | None) -> tuple[State, Status]:
        """Hear of this, and be told what it is now; from now on, changes are told."""
        self._hear(question)
        self._told = self.latest
        return self._told

    def change(self, question: Question | None) -> None:
        """Hear of this from now on, and tell if that is something else."""
        self._hear(question)
        self.on_change()

    def on_change(self) -> None:
        """The health may be another: tell it soon, whatever it is by then."""
        if not self._timer.pending:
            self._timer = self._clock.call_later(0, self._tell)

    def cancel(self) -> None:
        """Tell nothing more. Idempotent."""
        self._timer.cancel()
        self._siblings.pop(self, None)
        checker, self._checker = self._checker, None
        if checker is not None:
            self._leave(checker)

    def _hear(self, question: Question | None) -> None:
        before, self._checker = self._checker, None
        if question is not None:
            self._checker = self._checkers.acquire(self._subchannel, question)
            self._checker.add(self)
        if before is not None:
            self._leave(before)

    def _tell(self) -> None:
        latest = self.latest
        if latest != self._told:
            self._told = latest
            self._listener(*latest)

    def _leave(self, checker: Checker) -> None:
        checker.remove(self)
        if not checker.is_watched:
            self._checkers.release(checker.subchannel, checker.question)
