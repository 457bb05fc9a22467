"""Routes of the short form: a listener and a route config, made with the builders.

The document was checked against the schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxyless.base import StatusCode
from proxyless.base.durations import parse_seconds
from proxyless.controlplane.builders import route, session_filter, set_share
from proxyless.controlplane.route_builders import (
    fault,
    hash_on,
    match_header,
    retry,
    service_resources,
    without_session,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.protos import Proto


def expand_service(document: Mapping[str, Any]) -> list[Proto]:
    """The listener and the route config of a document with a service."""
    session = document.get("session")
    filters = () if session is None else (_make_session_filter(session),)
    routes = [_make_route(each) for each in document["routes"]]
    return service_resources(
        document["service"], *routes, domains=document.get("domains", ("*",)), filters=filters
    )


def _make_session_filter(session: Mapping[str, Any]) -> Proto:
    path, ttl_s = session.get("path", ""), to_seconds(session.get("ttl", 0))
    return session_filter(session["cookie"], path=path, ttl_s=ttl_s)


def _make_route(given: Mapping[str, Any]) -> Proto:
    match = given.get("match", "/")
    if isinstance(match, str):
        match = {"prefix" if match.endswith("/") else "path": match}
    to = given["to"]
    result = route(
        match.get("prefix", "/"),
        path=match.get("path"),
        cluster=to if isinstance(to, str) else None,
        weighted=to if isinstance(to, dict) else None,
        timeout_s=to_seconds(given["timeout"]) if "timeout" in given else None,
    )
    result.name = given.get("name", "")
    _set_conditions(result, match)
    if "retry" in given:
        _set_retry(result, given["retry"])
    if "fault" in given:
        _set_fault(result, given["fault"])
    if "hash_on" in given:
        by = given["hash_on"]
        hash_on(result, by if isinstance(by, str) else None)
    if "session" in given:
        without_session(result)
    return result


def _set_conditions(result: Proto, match: Mapping[str, Any]) -> None:
    if "regex" in match:
        result.match.safe_regex.regex = match["regex"]
    for name, condition in match.get("headers", {}).items():
        [(kind, value)] = (
            {"exact": condition} if isinstance(condition, str) else condition
        ).items()
        if kind == "present":
            match_header(result, name, "present", is_inverted=not value)
        elif kind == "not":
            match_header(result, name, "exact", value, is_inverted=True)
        else:
            match_header(result, name, kind, value)
    if "share" in match:
        set_share(result.match.runtime_fraction.default_value, to_share(match["share"]))


def _set_retry(result: Proto, given: Mapping[str, Any]) -> None:
    retry(
        result,
        given.get("codes", ("unavailable",)),
        times=given.get("times", 1),
        backoff_s=to_seconds(given["backoff"]) if "backoff" in given else None,
        max_backoff_s=to_seconds(given["max_backoff"]) if "max_backoff" in given else None,
    )


def _set_fault(result: Proto, given: Mapping[str, Any]) -> None:
    fault(
        result,
        delay_s=to_seconds(given["delay"]) if "delay" in given else None,
        delay_share=to_share(given.get("delay_share", "100%")),
        abort=StatusCode[given["abort"]] if "abort" in given else None,
        abort_share=to_share(given.get("abort_share", "100%")),
    )


def to_seconds(value: object) -> float:
    """A time of the schema in seconds."""
    seconds = parse_seconds(value)
    assert seconds is not None, "the schema allows only times"
    return seconds


def to_share(value: str) -> float:
    """A share of the schema, such as `10%`, from 0 to 1."""
    return float(value.removesuffix("%")) / 100
