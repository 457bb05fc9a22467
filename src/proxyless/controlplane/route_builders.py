"""Builders for routes: retries, faults, hash policies, header matchers, and whole services.

Each of `retry`, `fault`, `hash_on`, `match_header` and `without_session` sets fields of a route and
returns the same route:

    service_resources("orders", retry(route(cluster="orders", timeout_s=2.0), times=2))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.controlplane.builders import (
    http_filter,
    listener,
    pack,
    route_config,
    set_duration,
    set_share,
    virtual_host,
)
from proxyless.protos import Proto, message_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.base import StatusCode

FAULT_FILTER: Final = "fault"
SESSION_FILTER: Final = "session"

_HTTP_FAULT: Final = "envoy.extensions.filters.http.fault.v3.HTTPFault"
_SESSION_PER_ROUTE: Final = (
    "envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute"
)
_CHANNEL_ID: Final = "io.grpc.channel_id"


def retry(
    route: Proto,
    codes: Sequence[str] = ("unavailable",),
    *,
    times: int = 1,
    backoff_s: float | None = None,
    max_backoff_s: float | None = None,
) -> Proto:
    """Retry RPCs of a route on these codes, spelled as Envoy does: `deadline-exceeded`."""
    policy = route.route.retry_policy
    policy.retry_on = ",".join(codes)
    policy.num_retries.value = times
    if backoff_s is not None:
        set_duration(policy.retry_back_off.base_interval, backoff_s)
    if max_backoff_s is not None:
        set_duration(policy.retry_back_off.max_interval, max_backoff_s)
    return route


def fault(
    route: Proto,
    *,
    delay_s: float | None = None,
    delay_share: float = 1.0,
    abort: StatusCode | None = None,
    abort_share: float = 1.0,
) -> Proto:
    """Delay and abort shares, from 0 to 1, of the RPCs of a route; needs `fault_filter`."""
    config = message_class(_HTTP_FAULT)()
    if delay_s is not None:
        set_duration(config.delay.fixed_delay, delay_s)
        set_share(config.delay.percentage, delay_share)
    if abort is not None:
        config.abort.grpc_status = int(abort)
        set_share(config.abort.percentage, abort_share)
    pack(config, route.typed_per_filter_config[FAULT_FILTER])
    return route


def fault_filter() -> Proto:
    """The HttpFilter that injects the faults of routes, and none of its own."""
    return http_filter(FAULT_FILTER, message_class(_HTTP_FAULT)())


def hash_on(route: Proto, header: str | None = None) -> Proto:
    """Hash RPCs of a route, for ring_hash, by a header, or by their channel."""
    policy = route.route.hash_policy.add()
    if header is None:
        policy.filter_state.key = _CHANNEL_ID
    else:
        policy.header.header_name = header
    return route


def match_header(
    route: Proto, name: str, kind: str, value: str = "", *, is_inverted: bool = False
) -> Proto:
    """Match a header; kinds: `present`, `exact`, `prefix`, `suffix`, `contains`, `regex`."""
    matcher = route.match.headers.add(name=name)
    if kind == "present":
        matcher.present_match = True
    else:
        set_string_match(matcher.string_match, kind, value)
    matcher.invert_match = is_inverted
    return route


def set_string_match(matcher: Proto, kind: str, value: str) -> None:
    """Set the kind and the value of a StringMatcher."""
    if kind == "regex":
        matcher.safe_regex.regex = value
    else:
        setattr(matcher, kind, value)


def without_session(route: Proto) -> Proto:
    """Leave RPCs of a route out of the sessions of `session_filter`."""
    config = message_class(_SESSION_PER_ROUTE)(disabled=True)
    pack(config, route.typed_per_filter_config[SESSION_FILTER])
    return route


def service_resources(
    name: str, *routes: Proto, domains: Sequence[str] = ("*",), filters: Sequence[Proto] = ()
) -> list[Proto]:
    """The listener and the route config of `xds:///name`.

    The fault filter is added before the others if a route has a fault.
    """
    has_fault = any(FAULT_FILTER in route.typed_per_filter_config for route in routes)
    if has_fault and all(each.name != FAULT_FILTER for each in filters):
        filters = [fault_filter(), *filters]
    config = f"{name}-routes"
    return [
        listener(name, config, filters=filters),
        route_config(config, virtual_host(*routes, domains=domains)),
    ]
