"""DNS resolver: the addresses of a name, resolved again on request, after failures or regularly.

Specs: gRPC Name Resolution (`dns`).

Both address families, one endpoint per address, in the order of the answer. It uses the system's
resolver, through the Network: no custom name server, no SRV records (grpclb), no TXT records
(service configs).

Theory of operation
    `choose_look_up` decides from times alone: look up, wait, time out, or do nothing. The resolver
    enacts that with one timer and at most one task, and decides again after each change.
    After a success, a request for re-resolution causes a look-up once per `floor_s`; and so does
    `refresh_s`, if it is set: without it, new backends of a name are not found while the old ones
    work (grpc/grpc#12295). After a failure it retries with backoff.
"""

import asyncio
from dataclasses import replace
from enum import Enum
from math import inf
from typing import Final

from proxyless.base import Backoff, Endpoint, IpAddress, Status, StatusCode, one_line, quote
from proxyless.base.frozen import frozen
from proxyless.resolver.api import (
    DnsTimes,
    Resolver,
    ResolverContext,
    ResolverListener,
    ResolverResult,
)
from proxyless.resolver.static import StaticResolver
from proxyless.resolver.target import Target, encode_host_port, naming_target, parse_host_port
from proxyless.runtime import IDLE_TIMER, Timer
from proxyless.runtime.clock import ROUNDING_S
from proxyless.runtime.tasks import create_owned_task

_LISTENER_RAISED: Final = Status(StatusCode.INTERNAL, "listener raised an exception")


class Reason(Enum):
    """The reason for a look-up."""

    FIRST = "first look-up"
    REQUESTED = "re-resolution requested"
    REFRESH = "the refresh interval has passed"
    FAILED = "the last look-up failed"


@frozen
class History:
    """Past look-ups, as far as the decision needs them."""

    # Start of the last look-up; None before the first.
    began_s: float | None = None
    is_under_way: bool = False
    # End of the backoff; None after a success.
    retry_s: float | None = None
    # Re-resolution was requested since the last answer.
    is_requested: bool = False


@frozen
class LookUp:
    """Look up now."""

    reason: Reason


@frozen
class Wait:
    """Decide again at this time."""

    until_s: float


@frozen
class GiveUp:
    """The look-up has timed out."""


@frozen
class DoNothing:
    """Decide again after a request or an answer."""


def choose_look_up(
    times: DnsTimes, now_s: float, history: History
) -> LookUp | Wait | GiveUp | DoNothing:
    """Decide what to do now. At most one look-up is under way."""
    if history.began_s is None:
        return LookUp(Reason.FIRST)
    action: LookUp | GiveUp
    if history.is_under_way:
        # This look-up answers requests that are made during it.
        action, due_s = GiveUp(), history.began_s + times.answer_timeout_s
    elif history.retry_s is not None:
        # The backoff replaces the floor, and a request does not shorten it.
        action, due_s = LookUp(Reason.FAILED), history.retry_s
    else:
        action, due_s = LookUp(Reason.REFRESH), history.began_s + times.refresh_s
        if history.is_requested and times.floor_s <= times.refresh_s:
            action, due_s = LookUp(Reason.REQUESTED), history.began_s + times.floor_s
    if now_s + ROUNDING_S >= due_s:
        return action
    return DoNothing() if due_s == inf else Wait(due_s)


@frozen
class DnsFactory:
    """Creates resolvers for names, and for literal addresses, which need no look-up."""

    scheme: str = "dns"

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> Resolver:
        with naming_target(target):
            _check_authority(target)
            host, port = parse_host_port(target.name)
        try:
            literal = IpAddress(host, port)
        except ValueError:
            return DnsResolver(host, port, context.options.dns, listener, context)
        return StaticResolver((Endpoint((literal,)),), listener, context.clock)

    def default_authority(self, target: Target) -> str:
        with naming_target(target):
            _check_authority(target)
            return encode_host_port(target.name)


def _check_authority(target: Target) -> None:
    if target.authority:
        raise ValueError(
            f"authority {target.authority!r} is not valid: wanted none, as in "
            f"{target.scheme}:///host:port, since the system's name servers are asked"
        )


class DnsResolver:
    """Resolver of one name: enacts `choose_look_up`. Owns the timer and the task of a look-up."""

    def __init__(
        self,
        host: str,
        port: int,
        times: DnsTimes,
        listener: ResolverListener,
        context: ResolverContext,
    ) -> None:
        # Fixed at construction.
        self._host = host
        self._port = port
        self._times = times
        self._listener = listener
        self._context = context
        # True before `start` and inside `on_result`.
        self._is_held = True
        self._is_closed = False
        # Replaced at every event.
        self._history = History()
        self._backoff = Backoff(times.backoff)
        self._timer: Timer = IDLE_TIMER
        self._task: asyncio.Task[list[IpAddress]] | None = None

    def start(self) -> None:
        self._is_held = False
        self._act()

    def request_reresolution(self) -> None:
        # A look-up under way answers the request.
        if not self._history.is_under_way:
            self._history = replace(self._history, is_requested=True)
            self._act()

    def reset_backoff(self) -> None:
        self._backoff.reset()
        if self._history.retry_s is not None:
            self._history = replace(self._history, retry_s=self._context.clock.now_s())
            self._act()

    def retry_in_s(self) -> float | None:
        """Time until the next look-up after a failure; None without one."""
        retry_s = self._history.retry_s
        return None if retry_s is None else max(retry_s - self._context.clock.now_s(), 0.0)

    def close(self) -> None:
        self._is_closed = True
        self._timer.cancel()
        self._drop_task()

    def _act(self) -> None:
        """Decide and act. Called after every change. Idempotent."""
        if self._is_held or self._is_closed:
            return
        self._timer.cancel()
        now_s = self._context.clock.now_s()
        match choose_look_up(self._times, now_s, self._history):
            case LookUp(reason):
                self._start_look_up(now_s, reason)
            case Wait(until_s):
                self._timer = self._context.clock.call_later(until_s - now_s, self._act)
            case GiveUp():
                self._drop_task()
                self._on_failure(f"no answer within {self._times.answer_timeout_s:g} s")
            case DoNothing():
                pass

    def _start_look_up(self, now_s: float, reason: Reason) -> None:
        self._context.trace.emit("dns.look_up", host=self._host, reason=reason.value)
        self._history = History(began_s=now_s, is_under_way=True)
        self._task = create_owned_task(
            asyncio.get_running_loop(),
            self._context.network.resolve(self._host, self._port),
            name=f"look up {self._host}",
        )
        self._task.add_done_callback(self._on_done)
        self._act()

    def _drop_task(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def _on_done(self, task: "asyncio.Task[list[IpAddress]]") -> None:
        error = None if task.cancelled() else task.exception()
        if task is not self._task:  # Timed out, or closed.
            return
        self._task = None
        if task.cancelled():
            self._on_failure("look-up was cancelled")
        elif error is not None:
            self._on_failure(_describe(error))
        elif not (addresses := task.result()):
            self._on_failure("name has no address")
        else:
            self._report(tuple(Endpoint((address,)) for address in addresses))

    def _on_failure(self, text: str) -> None:
        name = quote(f"{self._host}:{self._port}")
        self._report(Status(StatusCode.UNAVAILABLE, f"dns name {name}: {one_line(text)}"))

    def _report(self, endpoints: tuple[Endpoint, ...] | Status) -> None:
        self._context.trace.emit("dns.answer", host=self._host, endpoints=endpoints)
        self._history = History(began_s=self._history.began_s)
        self._is_held, usable = True, _LISTENER_RAISED
        try:
            usable = self._listener.on_result(ResolverResult(endpoints))
        finally:
            self._is_held = False
            self._on_reported(is_good=usable.is_ok and not isinstance(endpoints, Status))

    def _on_reported(self, *, is_good: bool) -> None:
        if is_good:
            self._backoff.reset()
        else:
            # It counts from the end, so that a slow name server is not queried at once.
            delay_s = self._backoff.next_delay_s(self._context.random)
            self._history = replace(self._history, retry_s=self._context.clock.now_s() + delay_s)
        self._act()


def _describe(error: BaseException) -> str:
    """One line for an operator; the system's text if there is one."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
