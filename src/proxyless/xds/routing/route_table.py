"""Route table of one virtual host: the route of an RPC, and the timeout and retries of a route.

Specs: A28 (matching, in order), A31-45..62 and D20 (timeouts), A44 (retries).

Theory of operation
    A client calls few methods, but there may be many routes. So the table caches, for each path,
    the routes that can match it; among those it looks up routes with an exact header matcher by the
    header's value. The remaining routes are compared in order.
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
# Limits of a table's cache: applications choose the paths.
CACHED_PATHS_MAX: Final = 4096
CACHED_ROUTES_MAX: Final = 100_000
_NO_DEFAULT: Final = (
    "the channel option proxyless.xds_default_route_timeout_ms or GRPC_XDS_DEFAULT_ROUTE_TIMEOUT, "
    "0 for none, changes that"
)
# The largest denominator of a fraction.
_MILLION: Final = 1_000_000
# "the backoff … exponential" - A44 leaves the factor to gRPC's retries, where it is 2.
_BACKOFF_MULTIPLIER: Final = 2.0


@frozen
class RouteDefaults:
    """Settings of routes that do not set their own."""

    # common_http_protocol_options.max_stream_duration of the connection manager; None if unset.
    max_stream_duration_s: float | None = None
    # The default of A31's table (D20).
    timeout_s: float = DEFAULT_TIMEOUT_S
    retry: RetryOnPolicy | None = None


@frozen
class TimeoutChoice:
    """The timeout of a route's RPCs, and the field that sets it."""

    # inf if there is no limit.
    timeout_s: float
    # The table of D20: "final" (max_stream_duration) or "base" (A31: timeout, 15 s).
    table: Literal["final", "base"]
    # "default" if no field is set.
    field: str


def choose_timeout(action: RouteAction, defaults: RouteDefaults) -> TimeoutChoice:
    """The first field that is set, of the table that applies (D20)."""
    table: Literal["final", "base"] = "final"
    fields: tuple[tuple[str, float | None], ...] = (
        ("max_stream_duration.grpc_timeout_header_max", action.grpc_timeout_header_max_s),
        ("max_stream_duration.max_stream_duration", action.max_stream_duration_s),
        ("the listener's max_stream_duration", defaults.max_stream_duration_s),
    )
    default_s = 0.0
    if not action.has_max_stream_duration and defaults.max_stream_duration_s is None:
        # "If max_grpc_timeout is present, then timeout is ignored" - A31
        fields = (("max_grpc_timeout", action.max_grpc_timeout_s), ("timeout", action.timeout_s))
        table, default_s = "base", defaults.timeout_s
    is_set = ((name, time_s) for name, time_s in fields if time_s is not None)
    name, time_s = next(is_set, ("default", default_s))
    # Zero means no limit in every field (A31-48, A31-60).
    return TimeoutChoice(time_s or inf, table, name)


def route_method_config(action: RouteAction, defaults: RouteDefaults) -> MethodConfig:
    """The settings of a route's RPCs (A31-17)."""
    choice = choose_timeout(action, defaults)
    timeout_s = None if choice.timeout_s == inf else choice.timeout_s
    note = ""
    if timeout_s is not None and choice.field == "default":
        note = f"its route sets no timeout, so it has {timeout_s:g} s (A31); {_NO_DEFAULT}"
    return MethodConfig(
        timeout_s=timeout_s,
        retry_policy=_retry_policy(action.retry or defaults.retry),
        timeout_note=note,
    )


def _retry_policy(retry: RetryOnPolicy | None) -> RetryPolicy | None:
    # "empty codes -> none" - A44-14
    if retry is None or not retry.codes:
        return None
    return RetryPolicy(
        attempts_max=min(retry.num_retries + 1, ATTEMPTS_MAX),
        initial_backoff_s=retry.backoff_base_s,
        max_backoff_s=retry.backoff_max_s,
        backoff_multiplier=_BACKOFF_MULTIPLIER,
        retryable_codes=retry.codes,
    )


# The table


class TableRoute:
    """A route with its header matchers, which are compiled when the first RPC needs them."""

    __slots__ = ("_header_tests", "index", "is_unconditional", "per_million", "route")

    def __init__(self, index: int, route: Route) -> None:
        # Position in the virtual host: the lowest that matches is used.
        self.index: Final = index
        self.route: Final = route
        # The matching fraction; a million if the route has none.
        self.per_million: Final = _MILLION if route.fraction is None else route.fraction.per_million
        # Whether the path alone decides.
        self.is_unconditional: Final = not route.headers and self.per_million >= _MILLION
        self._header_tests: tuple[HeaderTest, ...] | None = None

    @property
    def header_tests(self) -> tuple[HeaderTest, ...]:
        if self._header_tests is None:
            self._header_tests = tuple(map(compile_header, self.route.headers))
        return self._header_tests

    def accepts(self, metadata: Metadata, random: Random) -> bool:
        """Whether the route matches an RPC whose path matches. Fractions are random per RPC."""
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
    """The routes of one virtual host, found by path and headers.

    Matchers are compiled when the first path needs them: a virtual host may have thousands.
    """

    def __init__(self, host: VirtualHost, random: Random) -> None:
        self._random = random
        self._routes: Final = host.routes
        # Indexes of routes with an exact path, by that path; and of all others.
        self._exact: dict[str, list[int]] = {}
        self._others: list[int] = []
        for index, route in enumerate(host.routes):
            path = route.path
            if path.kind == "path" and path.case_sensitive:
                self._exact.setdefault(path.value, []).append(index)
            else:
                self._others.append(index)
        # The path matchers of those others, when they are compiled.
        self._path_tests: list[Callable[[str], bool]] = []
        # The routes that match a path so far, by index.
        self._entries: dict[int, TableRoute] = {}
        self._by_path: dict[str, TableRoute | _Candidates] = {}
        # By the indexes of the routes: paths that match the same routes share them.
        self._candidates: dict[tuple[int, ...], _Candidates] = {}
        self._cached_routes = 0

    @property
    def routes(self) -> Sequence[TableRoute]:
        return tuple(map(self._entry, range(len(self._routes))))

    def find(self, path: str, metadata: Metadata) -> TableRoute | None:
        """The first route that matches the RPC."""
        cached = self._by_path.get(path)
        if cached is None:
            cached = self._add_path(path)
        if isinstance(cached, TableRoute):
            return cached
        for entry in cached.for_headers(metadata):
            if entry.accepts(metadata, self._random):
                return entry
        return None

    def find_by_path(self, path: str) -> TableRoute | None:
        """The route of all RPCs with this path; None if more than the path decides."""
        cached = self._by_path.get(path)
        return cached if isinstance(cached, TableRoute) else None

    def _add_path(self, path: str) -> TableRoute | _Candidates:
        if len(self._by_path) >= CACHED_PATHS_MAX or self._cached_routes >= CACHED_ROUTES_MAX:
            self._by_path.clear()
            self._candidates.clear()
            self._cached_routes = 0
        found = self._match_path(path)
        # Usually the first route matches by path alone.
        is_decided = bool(found) and found[0].is_unconditional
        cached = self._by_path[path] = found[0] if is_decided else self._share(found)
        return cached

    def _share(self, found: list[TableRoute]) -> _Candidates:
        indexes = tuple(entry.index for entry in found)
        candidates = self._candidates.get(indexes)
        if candidates is None:
            candidates = self._candidates[indexes] = _Candidates(found)
            self._cached_routes += len(found)
        return candidates

    def _match_path(self, path: str) -> list[TableRoute]:
        """The routes whose path matches, in order, up to the first unconditional one."""
        if len(self._path_tests) != len(self._others):
            self._path_tests = [compile_path(self._routes[index].path) for index in self._others]
        others = (
            index for index, test in zip(self._others, self._path_tests, strict=True) if test(path)
        )
        found = []
        for index in merge(self._exact.get(path, ()), others):
            entry = self._entry(index)
            found.append(entry)
            if entry.is_unconditional:
                break
        return found

    def _entry(self, index: int) -> TableRoute:
        entry = self._entries.get(index)
        if entry is None:
            entry = self._entries[index] = TableRoute(index, self._routes[index])
        return entry


class _Candidates:
    """The routes that match one path, indexed by the first exact header matcher of each."""

    def __init__(self, entries: list[TableRoute]) -> None:
        # Routes without an exact header matcher.
        self._always: list[TableRoute] = []
        # By name and value of the header.
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
        """The routes that may match this metadata, in order."""
        if not self._by_header:
            return iter(self._always)
        parts = [self._always] if self._always else []
        for name, by_value in self._by_header.items():
            value = header_value(metadata, name)
            if value is not None and (entries := by_value.get(value)):
                parts.append(entries)
        if len(parts) == 1:
            return iter(parts[0])
        return merge(*parts, key=attrgetter("index"))


def _is_indexable(matcher: HeaderMatcher) -> bool:
    match = matcher.match
    return (
        isinstance(match, StringMatcher)
        and match.kind == "exact"
        and not match.ignore_case
        and not matcher.invert
    )


# Errors


def no_route(config: XdsConfig, path: str) -> Status:
    """The status of an RPC that matches no route (A28-06)."""
    host = config.virtual_host
    name = quote(host.name or ",".join(host.domains[:3]))
    return _unroutable(config, f"no route in virtual host {name} matches {quote(path)}")


def not_forwarding(config: XdsConfig, route: Route, kind: str) -> Status:
    """The status of an RPC whose route has another action than `route` (A28-24)."""
    name = f"route {quote(route.name)}" if route.name else "the matching route"
    return _unroutable(config, f"{name} has the action {kind}, wanted route")


def _unroutable(config: XdsConfig, text: str) -> Status:
    """The text begins with the resource of the routes, which may be the listener."""
    manager = config.listener.api_listener
    if manager is not None and isinstance(manager.routes, str):
        subject = name_route_config(manager.routes)
    else:
        subject = name_listener(config.listener.name)
    return Status(StatusCode.UNAVAILABLE, with_node(f"{subject}: {text}", config.node_id))
