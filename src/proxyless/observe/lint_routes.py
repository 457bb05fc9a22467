"""Lint rules about routes: unreachable ones, domains, and retries.

Specs: A28 (routes and domains), A44 (retries), A31.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from proxyless.base.texts import count
from proxyless.observe.findings import Audience, Finding, Severity
from proxyless.xds.view import read_retry, unmatchable_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.protos import Proto

# Conditions that this client retries on (A44).
_GRPC_CONDITIONS: Final = (
    "cancelled",
    "deadline-exceeded",
    "internal",
    "resource-exhausted",
    "unavailable",
)
# Conditions of Envoy about HTTP, which gRPC ignores.
_ENVOY_CONDITIONS: Final = (
    "5xx",
    "gateway-error",
    "reset",
    "reset-before-request",
    "connect-failure",
    "envoy-ratelimited",
    "retriable-4xx",
    "refused-stream",
    "retriable-status-codes",
    "retriable-headers",
    "http3-post-connect-failure",
)
# Key of a route for all paths.
_EVERYTHING: Final = ("prefix", "")
_MILLION: Final = 1_000_000
_DENOMINATORS: Final = (100, 10_000, _MILLION)


def _warning(path: str, text: str, rule: str) -> Finding:
    return Finding(Severity.WARNING, path, text, rule=rule)


# Routes


def check_route_config(message: Proto) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for number, host in enumerate(message.virtual_hosts):
        for index, domain in enumerate(host.domains):
            other = first.setdefault(domain.lower(), number)
            if other == number:
                continue
            path = f"virtual_hosts[{number}].domains[{index}]"
            text = f"is {domain!r:.200}, which virtual_hosts[{other}] has"
            yield _warning(path, f"{text}: that one takes its RPCs", "duplicate-domain")
            yield Finding(
                Severity.ERROR, path, f"{text}: it is refused", Audience.ENVOY, "duplicate-domain"
            )


def check_virtual_host(message: Proto) -> Iterator[Finding]:
    earlier = _RouteIndex()
    for number, route in enumerate(message.routes):
        covering = earlier.find(route.match)
        if covering is not None:
            text = f"is never used: routes[{covering}] takes all its RPCs"
            yield _warning(f"routes[{number}]", text, "unreachable-route")
        # A route for a fraction of its RPCs does not take all RPCs of another.
        elif _share(route.match) >= 1 and not _is_dropped(route):
            earlier.add(number, route.match)


class _RouteIndex:
    """Index of routes by their paths. With many routes, comparing each pair would take minutes."""

    def __init__(self) -> None:
        # Numbers and headers of routes, by the kind and the value of their path.
        self._by_path: Final[dict[tuple[str, str], list[tuple[int, frozenset[bytes]]]]] = {}

    def add(self, number: int, match: Proto) -> None:
        key = _path_key(match)
        self._by_path.setdefault(key, []).append((number, _headers(match)))

    def find(self, match: Proto) -> int | None:
        """The number of the first route that takes every RPC of this match."""
        headers = _headers(match)
        covering = (
            number
            for key in _covering_keys(match)
            for number, wanted in self._by_path.get(key, ())
            if wanted <= headers
        )
        return min(covering, default=None)


def _path_key(match: Proto) -> tuple[str, str]:
    kind = str(match.WhichOneof("path_specifier"))
    value = match.safe_regex.regex if kind == "safe_regex" else str(getattr(match, kind, ""))
    if kind == "prefix" and value in ("", "/"):
        return "prefix", ""
    return f"{kind} in any case" if _ignores_case(match) else kind, value


def _covering_keys(match: Proto) -> Iterator[tuple[str, str]]:
    """Keys of the paths that cover this one: its own, and each shorter prefix."""
    key = kind, value = _path_key(match)
    yield key
    if key != _EVERYTHING:
        yield _EVERYTHING
    if kind in ("prefix", "path"):
        longest = len(value) - (kind == "prefix")
        for length in range(2, longest + 1):
            yield "prefix", value[:length]


def _headers(match: Proto) -> frozenset[bytes]:
    return frozenset(each.SerializeToString(deterministic=True) for each in match.headers)


def _is_dropped(route: Proto) -> bool:
    """Whether the client leaves out the route; other rules report it."""
    match = route.match
    if match.query_parameters or unmatchable_path(match) is not None:
        return True
    supported = ("cluster", "weighted_clusters", "cluster_specifier_plugin")
    kind = route.route.WhichOneof("cluster_specifier")
    return bool(route.HasField("route") and kind not in supported)


def _ignores_case(match: Proto) -> bool:
    return bool(match.HasField("case_sensitive") and not match.case_sensitive.value)


def _share(match: Proto) -> float:
    if not match.HasField("runtime_fraction"):
        return 1.0
    fraction = match.runtime_fraction.default_value
    if not 0 <= fraction.denominator < len(_DENOMINATORS):
        return 0.0
    return float(fraction.numerator / _DENOMINATORS[fraction.denominator])


# Retries


def check_retry(message: Proto) -> Iterator[Finding]:
    parsed = read_retry(message)
    if message.num_retries.value > parsed.num_retries:
        text = f"counts as {parsed.num_retries}: there are never more attempts"
        yield Finding(Severity.NOTE, "num_retries", text)
    conditions = dict.fromkeys(each.strip() for each in message.retry_on.split(","))
    conditions.pop("", None)
    known = [each for each in conditions if each in _GRPC_CONDITIONS]
    for condition in conditions:
        if condition not in (*_GRPC_CONDITIONS, *_ENVOY_CONDITIONS):
            yield _unknown_condition(condition)
    if any(each in _ENVOY_CONDITIONS for each in conditions) or not known:
        shown = ", ".join(sorted(known)) or "nothing"
        yield Finding(
            Severity.NOTE, "retry_on", f"is {message.retry_on!r:.200}, of which counts: {shown}"
        )


def _unknown_condition(condition: str) -> Finding:
    spelled = condition.lower().replace("_", "-")
    nearest = get_close_matches(spelled, (*_GRPC_CONDITIONS, *_ENVOY_CONDITIONS), 1, 0.5)
    hint = f"the nearest is {nearest[0]!r}" if nearest else f"wanted {', '.join(_GRPC_CONDITIONS)}"
    return _warning(
        "retry_on", f"has {condition!r:.80}, which is not known; {hint}", "unknown-retry-condition"
    )


def check_retry_time(action: Proto) -> Iterator[Finding]:
    """Check that all retries of a RouteAction can happen before its timeout."""
    if not action.HasField("retry_policy"):
        return
    timeout = None
    if action.HasField("max_stream_duration"):
        timeout = action.max_stream_duration.max_stream_duration
    elif action.HasField("timeout"):
        timeout = action.timeout
    timeout_s = 0.0 if timeout is None else timeout.ToNanoseconds() / 1e9
    retries = read_retry(action.retry_policy)
    backoff_s = _longest_backoff_s(
        retries.num_retries, retries.backoff_base_s, retries.backoff_max_s
    )
    if retries.codes and 0 < timeout_s <= backoff_s:
        text = (
            f"waits up to {backoff_s:g} s before {count(retries.num_retries, 'retry', 'retries')}"
        )
        text += f", and the timeout is {timeout_s:g} s: some never happen"
        yield _warning("retry_policy", text, "retry-after-timeout")


def _longest_backoff_s(retries: int, base_s: float, max_s: float) -> float:
    return sum((min(base_s * 2.0**number, max_s) for number in range(retries)), 0.0)
