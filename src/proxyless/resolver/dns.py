"""Which addresses does a name have, and when is it time to ask again?

Specs: gRPC Name Resolution (`dns`).

Both families, one endpoint per address, in the order of the answer. The system's name service is
asked, through the Network: no server of one's own choice, no SRV records (grpclb), no TXT records
(service configs).

Theory of operation
    `choose_look_up` decides from times alone what to do now: look up, wait, give up on an answer
    that does not come, or rest. The resolver enacts that with one timer and at most one task, and
    asks again after each change.
    After a success it rests until somebody asks for a new look-up, which is granted once per
    `floor_s`, or until `refresh_s` have passed if a periodic refresh was asked for: without one,
    backends that join behind a name are not seen while the old ones do well (grpc/grpc#12295).
    After a failure it tries again by itself, with growing delays.
"""

import asyncio
from dataclasses import replace
from enum import Enum
from math import inf
from typing import Final

from proxyless.base import Backoff, Endpoint, IpAddress, Status, StatusCode, one_line, quote
from proxyless.base.frozen import frozen
from proxyless.resolver.api import Resolver, ResolverContext, ResolverListener, ResolverResult
from proxyless.resolver.static import StaticResolver
from proxyless.resolver.target import Target, encode_host_port, naming_target, parse_host_port
from proxyless.runtime import IDLE_TIMER, Timer

# Options of a channel. The names in "grpc." are grpcio's, with grpcio's defaults.
FLOOR_OPTION: Final = "grpc.dns_min_time_between_resolutions_ms"
ANSWER_TIMEOUT_OPTION: Final = "grpc.dns_ares_query_timeout"
REFRESH_OPTION: Final = "proxyless.dns_refresh_interval_ms"

# A timer may be early by a rounding error.
_ROUNDING_S: Final = 1e-6

_LISTENER_RAISED: Final = Status(StatusCode.INTERNAL, "listener raised an exception")

# ---------------------------------------------------------------------------------------------
# Config


@frozen(kw_only=True)
class DnsTimes:
    """How often to ask, and how long to wait for an answer. A time of inf means never."""

    floor_s: float = 30.0
    refresh_s: float = inf
    answer_timeout_s: float = 120.0

    @classmethod
    def from_options(cls, context: ResolverContext) -> "DnsTimes":
        """As the channel's options say, or ValueError that names the option."""
        return cls(
            floor_s=_read_ms(context, FLOOR_OPTION, cls().floor_s),
            # 0 ms is "no refresh" and "no limit", as it is the absence of the option.
            refresh_s=_read_ms(context, REFRESH_OPTION, inf) or inf,
            answer_timeout_s=_read_ms(context, ANSWER_TIMEOUT_OPTION, cls().answer_timeout_s)
            or inf,
        )


def _read_ms(context: ResolverContext, name: str, default_s: float) -> float:
    value = context.options.get(name)
    if value is None:
        return default_s
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"option {name!r} is {value!r}: wanted 0 or more whole milliseconds")
    return value / 1000


# ---------------------------------------------------------------------------------------------
# Decision


class Why(Enum):
    """What a look-up is for."""

    FIRST = "nothing is known yet"
    REQUESTED = "a policy asked"
    REFRESH = "the refresh interval has passed"
    FAILED = "the last look-up failed"


@frozen
class History:
    """All that the decision may know about the past."""

    # When the last look-up began; None before the first.
    began_s: float | None = None
    is_under_way: bool = False
    # When the wait after a failure ends; None after a success.
    retry_s: float | None = None
    # Whether somebody asked since the last answer.
    is_requested: bool = False


@frozen
class LookUp:
    """Look up now."""

    why: Why


@frozen
class Wait:
    """Nothing to do before this time: then choose again."""

    until_s: float


@frozen
class GiveUp:
    """The answer has not come in time: the look-up has failed."""


@frozen
class Rest:
    """Nothing to do until somebody asks or an answer comes."""


def choose_look_up(times: DnsTimes, now_s: float, seen: History) -> LookUp | Wait | GiveUp | Rest:
    """What to do now. Never a look-up while another one is under way."""
    if seen.began_s is None:
        return LookUp(Why.FIRST)
    action: LookUp | GiveUp
    if seen.is_under_way:
        # A request made meanwhile is answered by this look-up.
        action, due_s = GiveUp(), seen.began_s + times.answer_timeout_s
    elif seen.retry_s is not None:
        # The backoff stands in for the floor, and a request does not shorten it.
        action, due_s = LookUp(Why.FAILED), seen.retry_s
    else:
        action, due_s = LookUp(Why.REFRESH), seen.began_s + times.refresh_s
        if seen.is_requested and times.floor_s <= times.refresh_s:
            action, due_s = LookUp(Why.REQUESTED), seen.began_s + times.floor_s
    if now_s + _ROUNDING_S >= due_s:
        return action
    return Rest() if due_s == inf else Wait(due_s)


# ---------------------------------------------------------------------------------------------
# Resolver


@frozen
class DnsFactory:
    """Makes resolvers for names, and for literal addresses, which need no look-up."""

    scheme: str = "dns"

    def create(
        self, target: Target, listener: ResolverListener, context: ResolverContext
    ) -> Resolver:
        with naming_target(target):
            _check_authority(target)
            host, port = parse_host_port(target.name)
        times = DnsTimes.from_options(context)
        try:
            literal = IpAddress(host, port)
        except ValueError:
            return DnsResolver(host, port, times, listener, context)
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
    """Enacts `choose_look_up` for one name.

    Driven by its owner, its timer, and the task of the look-up under way, which it owns.
    """

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
        # Changed by start and close, and while the listener hears a result.
        self._is_held = True
        self._is_closed = False
        # Replaced at every event, by whoever takes it in.
        self._seen = History()
        self._backoff = Backoff()
        # What is under way.
        self._timer: Timer = IDLE_TIMER
        self._task: asyncio.Task[list[IpAddress]] | None = None

    def start(self) -> None:
        self._is_held = False
        self._reconsider()

    def request_reresolution(self) -> None:
        # While one is under way there is nothing to choose, and giving up is the timer's business.
        if not self._seen.is_under_way:
            self._seen = replace(self._seen, is_requested=True)
            self._reconsider()

    def reset_backoff(self) -> None:
        self._backoff.reset()
        if self._seen.retry_s is not None:
            self._seen = replace(self._seen, retry_s=self._context.clock.now_s())
            self._reconsider()

    def close(self) -> None:
        self._is_closed = True
        self._timer.cancel()
        self._drop_task()

    def _reconsider(self) -> None:
        """Choose, and make it so. Runs after every change; idempotent, so never harmful."""
        if self._is_held or self._is_closed:
            return
        self._timer.cancel()
        now_s = self._context.clock.now_s()
        match choose_look_up(self._times, now_s, self._seen):
            case LookUp(why):
                self._start_look_up(now_s, why)
            case Wait(until_s):
                self._timer = self._context.clock.call_later(until_s - now_s, self._reconsider)
            case GiveUp():
                self._drop_task()
                self._on_failure(f"no answer within {self._times.answer_timeout_s:g} s")
            case Rest():
                pass

    def _start_look_up(self, now_s: float, why: Why) -> None:
        self._context.trace.emit("dns.look_up", host=self._host, why=why.value)
        self._seen = History(began_s=now_s, is_under_way=True)
        self._task = asyncio.get_running_loop().create_task(
            self._context.network.resolve(self._host, self._port), name=f"look up {self._host}"
        )
        self._task.add_done_callback(self._on_done)
        self._reconsider()

    def _drop_task(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def _on_done(self, task: "asyncio.Task[list[IpAddress]]") -> None:
        error = None if task.cancelled() else task.exception()
        if task is not self._task:  # Given up, or closed.
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
        self._seen = History(began_s=self._seen.began_s)
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
            # Counts from here: a name server that is slow to refuse must not be asked at once.
            delay_s = self._backoff.next_delay_s(self._context.random)
            self._seen = replace(self._seen, retry_s=self._context.clock.now_s() + delay_s)
        self._reconsider()


def _describe(error: BaseException) -> str:
    """One line for an operator; the system's own words where there are some."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
