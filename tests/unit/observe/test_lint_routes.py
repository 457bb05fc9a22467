"""Unit tests of proxyless.observe.lint_routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxyless.controlplane import match_header, retry, route, route_config, virtual_host
from proxyless.observe.findings import Audience
from proxyless.observe.lint_routes import (
    _covering_keys,
    check_retry,
    check_retry_time,
    check_route_config,
    check_virtual_host,
)
from proxyless.protos import message_class

if TYPE_CHECKING:
    from proxyless.protos import Proto


def unreachable(*routes: Proto) -> list[str]:
    return [finding.path for finding in check_virtual_host(virtual_host(*routes))]


def to(path: str = "/", **headers: str) -> Proto:
    """A prefix if it ends with a slash, else a path."""
    made = route(path, cluster="a") if path.endswith("/") else route(path=path, cluster="a")
    for name, value in headers.items():
        match_header(made, name, "exact", value)
    return made


@pytest.mark.parametrize(
    ("first", "second", "is_covered"),
    [
        (to("/"), to("/a.B/"), True),
        (to("/"), to("/", ring="x"), True),
        (to("/", ring="x"), to("/"), False),
        (to("/", ring="x"), to("/", ring="x", team="y"), True),
        (to("/", ring="x"), to("/", ring="y"), False),
        (to("/a.B/"), to("/a.B/C"), True),
        (to("/a.B/"), to("/a.C/"), False),
        (to("/a.B/C"), to("/a.B/C"), True),
        (to("/a.B/C"), to("/a.B/D"), False),
        (to("/a.B/C"), to("/a.B/"), False),
    ],
)
def test_route_is_unreachable_behind_one_that_covers_it(
    first: Proto, second: Proto, *, is_covered: bool
) -> None:
    assert unreachable(first, second) == (["routes[1]"] if is_covered else [])


def test_route_for_a_share_of_the_rpcs_covers_nothing() -> None:
    canary = to("/")
    canary.match.runtime_fraction.default_value.numerator = 10
    assert unreachable(canary, to("/"), to("/")) == ["routes[2]"]


def test_route_that_is_left_out_covers_nothing() -> None:
    by_header, by_query, unmatchable = to("/"), to("/"), to("/a")
    by_header.route.cluster_header = "x"
    by_query.match.query_parameters.add(name="q")
    assert unreachable(by_header, by_query, unmatchable, to("/")) == []


def test_route_is_compared_with_routes_of_the_same_path_and_of_its_prefixes_only() -> None:
    """Comparing each pair of ten thousand routes would take minutes."""
    keys = list(_covering_keys(to("/a.B/C").match))
    prefixes = ["/a", "/a.", "/a.B", "/a.B/", "/a.B/C"]
    assert keys == [("path", "/a.B/C"), ("prefix", ""), *(("prefix", each) for each in prefixes)]


def test_regexes_cover_only_the_same_regex() -> None:
    regexes = [to("/"), to("/"), to("/")]
    for made, text in zip(regexes, ("a.*", "a.*", "ab"), strict=True):
        made.match.safe_regex.regex = text
    assert unreachable(*regexes) == ["routes[1]"]


def test_prefix_without_case_covers_all_or_the_same() -> None:
    everything, prefix, same, other = to("/"), to("/a.B/"), to("/a.B/"), to("/a.b/C")
    for made in (prefix, same):
        made.match.case_sensitive.value = False
    assert unreachable(prefix, same, other) == ["routes[1]"]
    assert unreachable(everything, prefix) == ["routes[1]"]


def test_domain_of_two_virtual_hosts_is_reported_for_each_client() -> None:
    config = route_config(
        "r",
        virtual_host(to(), domains=["a.example", "b.example"]),
        virtual_host(to(), domains=["A.example"]),
    )
    ours, envoys = check_route_config(config)
    assert (ours.path, ours.audience) == ("virtual_hosts[1].domains[0]", Audience.PROXYLESS)
    assert "virtual_hosts[0] has: that one takes its RPCs" in ours.text
    assert envoys.audience is Audience.ENVOY


@pytest.mark.parametrize(
    ("retry_on", "texts"),
    [
        ("unavailable", []),
        ("unavailable, cancelled", []),
        ("5xx,unavailable", ["is '5xx,unavailable', of which counts: unavailable"]),
        (
            "unavailable,unavailible",
            ["has 'unavailible', which is not known; the nearest is 'unavailable'"],
        ),
        (
            "RESOURCE_EXHAUSTED",
            [
                "has 'RESOURCE_EXHAUSTED', which is not known; the nearest is 'resource-exhausted'",
                "is 'RESOURCE_EXHAUSTED', of which counts: nothing",
            ],
        ),
        ("", ["is '', of which counts: nothing"]),
        (
            "unavailable,zzzz",
            [
                (
                    "has 'zzzz', which is not known; wanted cancelled, deadline-exceeded, internal,"
                    " resource-exhausted, unavailable"
                )
            ],
        ),
    ],
)
def test_retry_condition_is_known_or_has_a_near_one(retry_on: str, texts: list[str]) -> None:
    policy = message_class("envoy.config.route.v3.RetryPolicy")(retry_on=retry_on)
    assert [finding.text for finding in check_retry(policy)] == texts


@pytest.mark.parametrize(
    ("timeout_s", "backoff_s", "is_late"),
    [(0.29, 0.1, True), (0.31, 0.1, False), (0.0, 10.0, False), (None, 10.0, False)],
)
def test_retries_that_come_after_the_timeout_are_reported(
    timeout_s: float | None, backoff_s: float, *, is_late: bool
) -> None:
    made = retry(route(cluster="a", timeout_s=timeout_s), times=2, backoff_s=backoff_s)
    assert [each.path for each in check_retry_time(made.route)] == ["retry_policy"] * is_late
