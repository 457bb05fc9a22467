"""What hash policies say. Retry policies are in tests/spec."""

import pytest

from proxyless.base import ValidationErrors
from proxyless.xds.parsing.limits import HASH_POLICIES_MAX
from proxyless.xds.parsing.route_policies import parse_hash_policies, parse_retry
from proxyless.xds.resources import HashPolicy
from tests.unit.xds.parsing.messages import Json, make

POLICY = "envoy.config.route.v3.RouteAction.HashPolicy"


def parse(*policies: Json) -> tuple[tuple[HashPolicy, ...], str]:
    errors = ValidationErrors()
    parsed = parse_hash_policies([make(POLICY, each) for each in policies], errors)
    return parsed, str(errors)


def rewrite(regex: str, substitution: str) -> Json:
    return {
        "header": {
            "header_name": "h",
            "regex_rewrite": {"pattern": {"regex": regex}, "substitution": substitution},
        }
    }


def test_headers_and_the_channel_make_a_hash() -> None:
    assert parse(
        {"header": {"header_name": "X-User"}, "terminal": True},
        rewrite("(a)b", r"\1"),
        {"filter_state": {"key": "io.grpc.channel_id"}},
    ) == (
        (
            HashPolicy("header", is_terminal=True, header="x-user"),
            HashPolicy("header", header="h", rewrite=("(a)b", r"\1")),
            HashPolicy("channel_id"),
        ),
        "[]",
    )


def test_other_kinds_have_no_result() -> None:
    assert parse(
        {"cookie": {"name": "c"}},
        {"connection_properties": {"source_ip": True}},
        {"query_parameter": {"name": "q"}},
        {"filter_state": {"key": "other"}},
        {"terminal": True},
    ) == ((), "[]")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"header": {}}, "header_name error:is empty, wanted the name of a header"),
        (
            rewrite("(", ""),
            ("regex_rewrite.pattern.regex error:is not a valid regular expression: missing ): ("),
        ),
        (
            rewrite("a", r"\1"),
            (
                "regex_rewrite.substitution"
                r" error:substitution has '\\1', wanted at most group 0"
            ),
        ),
    ],
)
def test_a_wrong_header_policy_is_refused(policy: Json, said: str) -> None:
    assert parse({"cookie": {"name": "c"}}, policy)[1] == f"[field:hash_policy[1].header.{said}]"


def test_there_is_a_bound() -> None:
    assert parse(*[{} for _ in range(HASH_POLICIES_MAX + 1)]) == (
        (),
        "[field:hash_policy error:has 1001 elements, wanted at most 1000]",
    )


def test_every_wrong_interval_is_told_once() -> None:
    errors = ValidationErrors()
    backoff = {"base_interval": "-1s", "max_interval": "0s"}
    parse_retry(make("envoy.config.route.v3.RetryPolicy", {"retry_back_off": backoff}), errors)
    assert str(errors) == (
        "[field:retry_back_off.base_interval.seconds error:is -1, wanted 0 to 315576000000;"
        " field:retry_back_off.max_interval error:is 0 s, wanted more]"
    )
