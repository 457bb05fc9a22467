"""Hash policies and mirror policies of routes. Retry policies are tested in tests/spec."""

import pytest

from proxyless.base import ValidationErrors
from proxyless.xds.parsing.limits import HASH_POLICIES_MAX, MIRROR_POLICIES_MAX
from proxyless.xds.parsing.route_policies import (
    parse_hash_policies,
    parse_mirror_policies,
    parse_retry,
)
from proxyless.xds.resources import HashPolicy
from proxyless.xds.resources.route import MirrorPolicy
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


def test_hash_policies_of_headers_and_channel_id_are_parsed() -> None:
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


def test_other_kinds_of_hash_policies_are_ignored() -> None:
    assert parse(
        {"cookie": {"name": "c"}},
        {"connection_properties": {"source_ip": True}},
        {"query_parameter": {"name": "q"}},
        {"filter_state": {"key": "other"}},
        {"terminal": True},
    ) == ((), "[]")


@pytest.mark.parametrize(
    ("policy", "error"),
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
def test_invalid_header_policy_is_an_error(policy: Json, error: str) -> None:
    assert parse({"cookie": {"name": "c"}}, policy)[1] == f"[field:hash_policy[1].header.{error}]"


def test_too_many_hash_policies_are_an_error() -> None:
    assert parse(*[{} for _ in range(HASH_POLICIES_MAX + 1)]) == (
        (),
        "[field:hash_policy error:has 101 elements, wanted at most 100]",
    )


def test_each_invalid_interval_is_one_error() -> None:
    errors = ValidationErrors()
    backoff = {"base_interval": "-1s", "max_interval": "0s"}
    parse_retry(make("envoy.config.route.v3.RetryPolicy", {"retry_back_off": backoff}), errors)
    assert str(errors) == (
        "[field:retry_back_off.base_interval.seconds error:is -1, wanted 0 to 315576000000;"
        " field:retry_back_off.max_interval error:is 0 s, wanted more]"
    )


# Mirror policies


def parse_mirrors(*policies: Json) -> tuple[tuple[MirrorPolicy, ...], str]:
    action = make("envoy.config.route.v3.RouteAction", {"request_mirror_policies": list(policies)})
    errors = ValidationErrors()
    return parse_mirror_policies(action.request_mirror_policies, errors), str(errors)


@pytest.mark.spec("MR-02", "MR-03")
def test_mirror_policies_are_parsed() -> None:
    percent = {"numerator": 25, "denominator": "HUNDRED"}
    assert parse_mirrors(
        {"cluster": "a"},
        {"cluster": "b", "runtime_fraction": {"default_value": percent}},
        {"cluster": "c", "disable_shadow_host_suffix_append": True},
    ) == (
        (
            MirrorPolicy("a", 1_000_000),
            MirrorPolicy("b", 250_000),
            MirrorPolicy("c", 1_000_000, has_shadow_suffix=False),
        ),
        "[]",
    )


@pytest.mark.spec("MR-02")
def test_mirror_policies_without_a_cluster_or_a_share_are_ignored() -> None:
    never = {"default_value": {"numerator": 0}}
    assert parse_mirrors(
        {"cluster_header": "x-mirror"}, {}, {"cluster": "a", "runtime_fraction": never}
    ) == ((), "[]")


@pytest.mark.spec("MR-02")
def test_mirror_policy_that_changes_metadata_is_ignored() -> None:
    """A copy with all metadata might have credentials that the mirror must not get."""
    mutation = {"remove": "authorization"}
    policy = {"cluster": "a", "request_headers_mutations": [mutation]}
    assert parse_mirrors(policy, {"cluster": "b"}) == ((MirrorPolicy("b", 1_000_000),), "[]")


@pytest.mark.spec("MR-02")
def test_too_many_mirror_policies_are_an_error() -> None:
    policies, text = parse_mirrors(*[{"cluster": "a"}] * (MIRROR_POLICIES_MAX + 1))
    assert policies == ()
    assert text.startswith("[field:request_mirror_policies error:")
