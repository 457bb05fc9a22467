"""Which route takes an RPC?

Specs: A28 (matching, in order), A31-45..62 and D20 (timeouts), A44 (retries).

Theory of operation
    The set of methods that a client calls is small, the set of routes may be large. So a table
    remembers, for each path it was asked about, the routes that can match it; and among those it
    finds by its value a header for which a route asks for an exact one.
    What is left is compared one by one, in the order of the routes, as the specification says.
    A table belongs to one virtual host and never changes, but for what it remembers.
"""

from __future__ import annotations

from heapq import merge
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal

from proxyless.base import Status, StatusCode, quote
from proxyless.base.frozen import frozen
from proxyless.channel.service_config import ATTEMPTS_MAX, MethodConfig, RetryPolicy
from proxyless.xds.error_texts import name_listener, name_route_config, with_node
from proxyless.xds.resources.matcher import StringMatcher
from proxyless.xds.resources.matching import compile_header, compile_path, header_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from proxyless.base import Metadata
    from proxyless.runtime import Random
    from proxyless.xds.config import XdsConfig
    from proxyless.xds.resources import (
        HeaderMatcher,
        PathMatcher,
        RetryOnPolicy,
        Route,
        RouteAction,
        VirtualHost,
    )
    from proxyless.xds.resources.matching import HeaderTest

# "with a default of 15s" - A31
DEFAULT_TIMEOUT_S: Final = 15.0
# Paths that a table remembers, and routes that it remembers for all of them; callers choose the
# paths, so there are limits.
REMEMBERED_PATHS_MAX: Final = 4096
REMEMBERED_ROUTES_MAX: Final = 100_000
# The largest denominator of a fraction.
_MILLION: Final = 1_000_000
# "the backoff … exponential" - A44 leaves the factor to gRPC's retries, where it is 2.
_BACKOFF_MULTIPLIER: Final = 2.0


@frozen
class RouteDefaults:
    """What holds for routes that do not say otherwise."""

    # common_http_protocol_options.max_stream_duration of the connection manager; None if unset.
    max_stream_duration_s: float | None = None
    # What the seed's table gives to a route without any time (D20).
    timeout_s: float = DEFAULT_TIMEOUT_S
    retry: RetryOnPolicy | None = None


@frozen
class TimeoutChoice:
    """How long an RPC of a route may last, and which field says so."""

    # inf if there is no limit.
    timeout_s: float
    # Which table of D20 applies: "final" (max_stream_duration) or "seed" (timeout, 15 s).
    table: Literal["final", "seed"]
    # The field that decided; "default" if none did.
    field: str


def choose_timeout(action: RouteAction, defaults: RouteDefaults) -> TimeoutChoice:
    """The first field of the table that applies which is set (D20)."""
    table: Literal["final", "seed"]
    fields: tuple[tuple[str, float | None], ...]
    if action.has_max_stream_duration or defaults.max_stream_duration_s is not None:
        table, fields = (
            "final",
            (
                ("max_stream_duration.grpc_timeout_header_max", action.grpc_timeout_header_max_s),
                ("max_stream_duration.max_stream_duration", action.max_stream_duration_s),
                ("the listener's max_stream_duration", defaults.max_stream_duration_s),
            ),
        )
    else:
        # "If max_grpc_timeout is present, then timeout is ignored" - A31
        table, fields = (
            "seed",
            (
                ("max_grpc_timeout", action.max_grpc_timeout_s),
                ("timeout", action.timeout_s),
            ),
        )
    default_s = 0.0 if table == "final" else defaults.timeout_s
    name, time_s = next(
        ((name, time_s) for name, time_s in fields if time_s is not None), ("default", default_s)
    )
    # Zero is "no limit" wherever it stands (A31-48, A31-60).
    return TimeoutChoice(time_s or inf, table, name)


def route_timeout_s(action: RouteAction, defaults: RouteDefaults) -> float:
    """How long an RPC of this route may last at most; inf if the route does not say (D20)."""
    return choose_timeout(action, defaults).timeout_s


def route_method_config(action: RouteAction, defaults: RouteDefaults) -> MethodConfig:
    """The settings of RPCs that take this route (A31-17)."""
    timeout_s = route_timeout_s(action, defaults)
    return MethodConfig(
        timeout_s=None if timeout_s == inf else timeout_s,
        retry_policy=_retry_policy(action.retry or defaults.retry),
    )


def _retry_policy(retry: RetryOnPolicy | None) -> RetryPolicy | None:
    # "empty codes -> none" (A44-01)
    if retry is None or not retry.codes:
        return None
    return RetryPolicy(
        attempts_max=min(retry.num_retries + 1, ATTEMPTS_MAX),
        initial_backoff_s=retry.backoff_base_s,
        max_backoff_s=retry.backoff_max_s,
        backoff_multiplier=_BACKOFF_MULTIPLIER,
        retryable_codes=retry.codes,
    )


# ---------------------------------------------------------------------------------------------
# The table


@frozen(eq=False)
class TableRoute:
    """A route and what is compared for it beside the path."""

    # Its place in the virtual host: the lowest that matches decides.
    index: int
    route: Route
    header_tests: tuple[HeaderTest, ...]
    # Of a million RPCs; the whole million if there is no fraction.
    per_million: int

    @property
    def is_unconditional(self) -> bool:
        """Takes every RPC whose path it matches."""
        return not self.header_tests and self.per_million >= _MILLION

    def takes(self, metadata: Metadata, random: Random) -> bool:
        """Whether it takes an RPC whose path matches. A fraction is drawn for each RPC."""
        return all(test(metadata) for test in self.header_tests) and (
            self.per_million >= _MILLION or random.randrange(_MILLION) < self.per_million
        )

    def find_mismatch(self, path: str, metadata: Metadata) -> PathMatcher | HeaderMatcher | None:
        """The first matcher that rejects an RPC, for explanations; None if all accept it."""
        if not compile_path(self.route.path)(path):
            return self.route.path
        tests = zip(self.route.headers, self.header_tests, strict=True)
        return next((matcher for matcher, test in tests if not test(metadata)), None)


class RouteTable:
    """The routes of one virtual host, found by path and headers."""

    def __init__(self, host: VirtualHost, random: Random) -> None:
        self._random = random
        self._routes: Final = tuple(map(_table_route, range(len(host.routes)), host.routes))
        # Routes for one path each, by that path; and all others, which are asked.
        self._exact: dict[str, list[TableRoute]] = {}
        self._others: list[tuple[TableRoute, Callable[[str], bool]]] = []
        for entry in self._routes:
            path = entry.route.path
            if path.kind == "path" and path.case_sensitive:
                self._exact.setdefault(path.value, []).append(entry)
            else:
                self._others.append((entry, compile_path(path)))
        self._known: dict[str, TableRoute | _Candidates] = {}
        # By their places in the virtual host: paths with the same routes share them.
        self._candidates_of: dict[tuple[int, ...], _Candidates] = {}
        self._remembered = 0

    @property
    def routes(self) -> Sequence[TableRoute]:
        return self._routes

    def find(self, path: str, metadata: Metadata) -> TableRoute | None:
        """The first route that takes the RPC."""
        known = self._known.get(path)
        if known is None:
            known = self._look_up(path)
        if isinstance(known, TableRoute):
            return known
        for entry in known.for_headers(metadata):
            if entry.takes(metadata, self._random):
                return entry
        return None

    def _look_up(self, path: str) -> TableRoute | _Candidates:
        if len(self._known) >= REMEMBERED_PATHS_MAX or self._remembered >= REMEMBERED_ROUTES_MAX:
            self._known.clear()
            self._candidates_of.clear()
            self._remembered = 0
        found = self._candidates(path)
        # Mostly the first one decides, and no header has to be looked at.
        is_decided = bool(found) and found[0].is_unconditional
        known = self._known[path] = found[0] if is_decided else self._share(found)
        return known

    def _share(self, found: list[TableRoute]) -> _Candidates:
        places = tuple(entry.index for entry in found)
        candidates = self._candidates_of.get(places)
        if candidates is None:
            candidates = self._candidates_of[places] = _Candidates(found)
            self._remembered += len(found)
        return candidates

    def _candidates(self, path: str) -> list[TableRoute]:
        """The routes whose path matches, in order, up to the first that takes every RPC."""
        exact = self._exact.get(path, ())
        others = (entry for entry, test in self._others if test(path))
        found = []
        for entry in merge(exact, others, key=attrgetter("index")):
            found.append(entry)
            if entry.is_unconditional:
                break
        return found


class _Candidates:
    """The routes that can match one path, and which of them a header's value leaves."""

    def __init__(self, entries: list[TableRoute]) -> None:
        # Those that no header's value rules out at once.
        self._always: list[TableRoute] = []
        # By name of header and its value: routes that take no other value.
        self._by_header: dict[str, dict[str, list[TableRoute]]] = {}
        for entry in entries:
            matcher = next(filter(_is_indexable, entry.route.headers), None)
            if matcher is None:
                self._always.append(entry)
            else:
                assert isinstance(matcher.match, StringMatcher), "only exact texts are indexed"
                by_value = self._by_header.setdefault(matcher.name, {})
                by_value.setdefault(matcher.match.value, []).append(entry)

    def for_headers(self, metadata: Metadata) -> Iterator[TableRoute]:
        """In order, the routes that these headers may satisfy."""
        if not self._by_header:
            return iter(self._always)
        parts = [self._always]
        for name, by_value in self._by_header.items():
            value = header_value(metadata, name)
            if value is not None and (entries := by_value.get(value)):
                parts.append(entries)
        if len(parts) == 1:
            return iter(self._always)
        if not self._always and len(parts) == 1 + 1:
            return iter(parts[1])
        return merge(*parts, key=attrgetter("index"))


def _table_route(index: int, route: Route) -> TableRoute:
    per_million = _MILLION if route.fraction is None else route.fraction.per_million
    return TableRoute(index, route, tuple(map(compile_header, route.headers)), per_million)


def _is_indexable(matcher: HeaderMatcher) -> bool:
    match = matcher.match
    return (
        isinstance(match, StringMatcher)
        and match.kind == "exact"
        and not match.ignore_case
        and not matcher.invert
    )


# ---------------------------------------------------------------------------------------------
# Answers that are no route


def no_route(config: XdsConfig, path: str) -> Status:
    """No route takes the RPC (A28-06)."""
    host = config.virtual_host
    name = quote(host.name or ",".join(host.domains[:3]))
    return _unroutable(config, f"no route in virtual host {name} matches {quote(path)}")


def not_forwarding(config: XdsConfig, route: Route, kind: str) -> Status:
    """The route that takes the RPC sends it nowhere (A28-06)."""
    name = f"route {quote(route.name)}" if route.name else "the matching route"
    return _unroutable(config, f"{name} has the action {kind}, wanted route")


def _unroutable(config: XdsConfig, text: str) -> Status:
    """With the resource that the routes are in, which may be the listener."""
    manager = config.listener.api_listener
    if manager is not None and isinstance(manager.routes, str):
        subject = name_route_config(manager.routes)
    else:
        subject = name_listener(config.listener.name)
    return Status(StatusCode.UNAVAILABLE, with_node(f"{subject}: {text}", config.node_id))
