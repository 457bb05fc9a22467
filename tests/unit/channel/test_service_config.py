"""Unit tests of proxyless.channel.service_config."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import StatusCode, ValidationErrors
from proxyless.channel.service_config import (
    EMPTY_METHOD_CONFIG,
    HedgingPolicy,
    MethodConfig,
    RetryPolicy,
    RetryThrottling,
    ServiceConfig,
    parse_service_config,
)
from proxyless.lb import Helper, Policy, PolicyConfig, PolicyRegistry


@dataclass(frozen=True)
class FakeFactory:
    """A policy factory of which only `parse_config` is used."""

    name: str
    needs: str = ""

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        if self.needs and self.needs not in json:
            with errors.field(self.needs):
                errors.add("is missing")
        return dict(json)

    def create(self, helper: Helper) -> Policy:
        raise AssertionError("parsing creates nothing")


PICK_FIRST, ROUND_ROBIN = FakeFactory("pick_first"), FakeFactory("round_robin")
PRIORITY = FakeFactory("priority_experimental", needs="children")
REGISTRY = PolicyRegistry([PICK_FIRST, ROUND_ROBIN, PRIORITY])


def parse(document: object, registry: PolicyRegistry = REGISTRY) -> ServiceConfig:
    errors = ValidationErrors()
    config = parse_service_config(document, errors, registry)
    errors.raise_if_any("service config")
    return config


def errors_of(document: object, registry: PolicyRegistry = REGISTRY) -> str:
    errors = ValidationErrors()
    parse_service_config(document, errors, registry)
    return str(errors)


def method(**fields: object) -> dict[str, object]:
    """A config with these fields for every method."""
    return {"methodConfig": [{"name": [{}], **fields}]}


def parse_method(**fields: object) -> MethodConfig:
    return parse(method(**fields)).method_config("/s/m")


# Policies


@pytest.mark.parametrize(
    ("document", "factory", "config"),
    [
        ({}, PICK_FIRST, {}),
        ({"loadBalancingConfig": None, "loadBalancingPolicy": None}, PICK_FIRST, {}),
        ({"loadBalancingConfig": [{"round_robin": {"a": 1}}]}, ROUND_ROBIN, {"a": 1}),
        ({"loadBalancingConfig": [{"new": {}}, {"round_robin": {}}]}, ROUND_ROBIN, {}),
        ({"loadBalancingPolicy": "round_robin"}, ROUND_ROBIN, {}),
        ({"loadBalancingPolicy": "ROUND_ROBIN"}, ROUND_ROBIN, {}),
        ({"loadBalancingPolicy": ""}, PICK_FIRST, {}),
        (
            {"loadBalancingPolicy": "pick_first", "loadBalancingConfig": [{"round_robin": {}}]},
            ROUND_ROBIN,
            {},
        ),
    ],
)
def test_the_policy_is_the_listed_one_then_the_named_one_then_pick_first(
    document: object, factory: FakeFactory, config: object
) -> None:
    assert parse(document).policy == PolicyConfig(factory, config)


@pytest.mark.spec("REG-01")
@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            {"loadBalancingConfig": [{"a": {}}, {"b": {}}]},
            "[field:loadBalancingConfig error:No known policies in list: a b]",
        ),
        (
            {"loadBalancingConfig": [{"ROUND_ROBIN": {}}]},
            "[field:loadBalancingConfig error:No known policies in list: ROUND_ROBIN]",
        ),
        (
            {"loadBalancingConfig": {}},
            "[field:loadBalancingConfig error:is an object, wanted a list of policies]",
        ),
        (
            {"loadBalancingPolicy": "UnknownPolicy"},
            "[field:loadBalancingPolicy error:No known policies in list: unknownpolicy]",
        ),
        (
            {"loadBalancingPolicy": "unknown", "loadBalancingConfig": [{"round_robin": {}}]},
            "[field:loadBalancingPolicy error:No known policies in list: unknown]",
        ),
        (
            {"loadBalancingPolicy": "priority_experimental"},
            "[field:loadBalancingPolicy[0].priority_experimental.children error:is missing]",
        ),
        ({"loadBalancingPolicy": 1}, "[field:loadBalancingPolicy error:is 1, wanted a string]"),
    ],
)
def test_a_policy_that_cannot_be_used_is_an_error(document: object, expected: str) -> None:
    assert errors_of(document) == expected


def test_a_registry_without_the_default_policy_needs_one_that_is_named() -> None:
    registry = PolicyRegistry([ROUND_ROBIN])
    text = "[field:loadBalancingPolicy error:No known policies in list: pick_first]"
    assert errors_of({}, registry) == text
    assert errors_of({"loadBalancingConfig": [{"round_robin": {}}]}, registry) == "[]"


# Methods


def test_most_specific_entry_is_used_without_merging() -> None:
    config = parse(
        {
            "methodConfig": [
                {"name": [{}], "timeout": "1s", "waitForReady": True},
                {"name": [{"service": "a.S"}], "timeout": "2s"},
                {"name": [{"service": "a.S", "method": "M"}, {"service": "b.S"}], "timeout": "3s"},
            ]
        }
    )
    assert config.method_config("/a.S/M") == MethodConfig(timeout_s=3)
    assert config.method_config("/b.S/M") == MethodConfig(timeout_s=3)
    assert config.method_config("/a.S/Other") == MethodConfig(timeout_s=2)
    assert config.method_config("/a.S2/M") == MethodConfig(timeout_s=1, wait_for_ready=True)


@pytest.mark.parametrize("path", ["/s/m", "/s/", "/", "", "s", "s/m"])
def test_without_an_entry_the_method_config_is_empty(path: str) -> None:
    config = parse({"methodConfig": [{"name": [{"service": "t"}], "timeout": "1s"}]})
    assert config.method_config(path) is EMPTY_METHOD_CONFIG


@pytest.mark.parametrize(
    "name", [{}, {"service": "", "method": ""}, {"service": None, "method": None}]
)
def test_empty_null_and_absent_names_are_the_same(name: object) -> None:
    config = parse({"methodConfig": [{"name": [name], "timeout": "1s"}]})
    assert config.method_config("/s/m").timeout_s == 1
    config = parse({"methodConfig": [{"name": [{"service": "s", "method": ""}], "timeout": "1s"}]})
    assert config.method_config("/s/m").timeout_s == 1


def test_an_entry_without_names_is_for_no_method_but_must_be_valid() -> None:
    config = parse({"methodConfig": [{"timeout": "1s"}, {"name": [], "timeout": "1s"}]})
    assert config.methods == {}
    text = "[field:methodConfig[0].timeout error:is '1', wanted a duration such as '1.5s']"
    assert errors_of({"methodConfig": [{"timeout": "1"}]}) == text


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            [{"service": "s"}, {"service": "s", "method": None}],
            "field:methodConfig[0].name[1] error:names /s/ a second time",
        ),
        ([{}, {}], "field:methodConfig[0].name[1] error:names every method a second time"),
        (
            [{"service": "s", "method": "m"}, {"service": "s", "method": "m"}],
            "field:methodConfig[0].name[1] error:names /s/m a second time",
        ),
        (
            [{"method": "m"}],
            "field:methodConfig[0].name[0] error:has method 'm' without a service",
        ),
        ([{"service": 1}], "field:methodConfig[0].name[0].service error:is 1, wanted a string"),
        (["s"], "field:methodConfig[0].name[0] error:is 's', wanted an object"),
        ({}, "field:methodConfig[0].name error:is an object, wanted a list"),
    ],
)
def test_invalid_names_are_errors(names: object, expected: str) -> None:
    assert errors_of({"methodConfig": [{"name": names}]}) == f"[{expected}]"


def test_a_name_repeated_in_another_entry_is_an_error() -> None:
    entry = {"name": [{"service": "s"}]}
    text = "[field:methodConfig[1].name[0] error:names /s/ a second time]"
    assert errors_of({"methodConfig": [entry, entry]}) == text


@pytest.mark.parametrize(
    ("fields", "config"),
    [
        ({}, MethodConfig()),
        ({"waitForReady": True}, MethodConfig(wait_for_ready=True)),
        ({"waitForReady": False}, MethodConfig(wait_for_ready=False)),
        ({"waitForReady": None}, MethodConfig()),
        ({"timeout": "0s"}, MethodConfig(timeout_s=0)),
        ({"timeout": "1.5s"}, MethodConfig(timeout_s=1.5)),
        ({"timeout": "0.000000001s"}, MethodConfig(timeout_s=1e-9)),
        ({"timeout": "315576000000s"}, MethodConfig(timeout_s=315576000000)),
        ({"maxRequestMessageBytes": 0}, MethodConfig(request_bytes_max=0)),
        ({"maxRequestMessageBytes": "4194304"}, MethodConfig(request_bytes_max=4194304)),
        ({"maxResponseMessageBytes": 2**32 - 1}, MethodConfig(response_bytes_max=2**32 - 1)),
        ({"maxResponseMessageBytes": 0}, MethodConfig(response_bytes_max=0)),
        ({"maxResponseMessageBytes": 10.0}, MethodConfig(response_bytes_max=10)),
        ({"unknown": object()}, MethodConfig()),
    ],
)
def test_the_settings_of_a_method_are_read(fields: dict[str, object], config: MethodConfig) -> None:
    assert parse_method(**fields) == config
    assert parse_method(**fields).is_plain is (config == MethodConfig())


@pytest.mark.parametrize(
    "config",
    [
        MethodConfig(wait_for_ready=False),
        MethodConfig(timeout_s=0),
        MethodConfig(request_bytes_max=0),
        MethodConfig(response_bytes_max=0),
        MethodConfig(hedging_policy=HedgingPolicy(attempts_max=2)),
    ],
)
def test_config_with_any_field_is_not_plain(config: MethodConfig) -> None:
    assert not config.is_plain
    assert EMPTY_METHOD_CONFIG.is_plain


BAD_DURATIONS = ["1", "1.5", ".5s", "1.s", "-1s", "1m", " 1s", "1s ", "1.0000000001s", "1e3s", "s"]
BAD_DURATIONS += ["", "315576000001s", "9999999999999s", "\u0661s"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        *(({"timeout": text}, f"timeout error:is {text!r}, wanted a d") for text in BAD_DURATIONS),
        ({"timeout": 1}, "timeout error:is 1, wanted a duration such as '1.5s'"),
        ({"timeout": True}, "timeout error:is a boolean, wanted a duration such as '1.5s'"),
        ({"waitForReady": "true"}, "waitForReady error:is 'true', wanted a boolean"),
        ({"waitForReady": 1}, "waitForReady error:is 1, wanted a boolean"),
        *(
            (
                {"maxRequestMessageBytes": value},
                f"maxRequestMessageBytes error:is {shown}, wanted an integer from 0 to 4294967295",
            )
            for value, shown in [
                (-1, "-1"),
                (2**32, "4294967296"),
                (1.5, "1.5"),
                ("1.5", "'1.5'"),
                ("x", "'x'"),
                (True, "a boolean"),
                ([], "a list"),
                (float("inf"), "inf"),
            ]
        ),
        ({"maxResponseMessageBytes": {}}, "maxResponseMessageBytes error:is an object, wanted an"),
    ],
)
def test_invalid_settings_are_errors(fields: dict[str, object], expected: str) -> None:
    assert errors_of(method(**fields)).startswith(f"[field:methodConfig[0].{expected}")


# Retries and hedging

RETRY: dict[str, Any] = {
    "maxAttempts": 4,
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
RETRY_POLICY = RetryPolicy(
    attempts_max=4,
    initial_backoff_s=0.1,
    max_backoff_s=1,
    backoff_multiplier=2,
    retryable_codes=frozenset({StatusCode.UNAVAILABLE}),
)


@pytest.mark.parametrize(
    ("changed", "policy"),
    [
        ({}, RETRY_POLICY),
        ({"maxAttempts": 2}, replace(RETRY_POLICY, attempts_max=2)),
        ({"maxAttempts": 5}, replace(RETRY_POLICY, attempts_max=5)),
        ({"maxAttempts": 6}, replace(RETRY_POLICY, attempts_max=5)),
        ({"maxAttempts": 2**32 - 1}, replace(RETRY_POLICY, attempts_max=5)),
        ({"backoffMultiplier": 0.5}, replace(RETRY_POLICY, backoff_multiplier=0.5)),
        ({"initialBackoff": "3s"}, replace(RETRY_POLICY, initial_backoff_s=3)),
        ({"maxBackoff": "0.000000001s"}, replace(RETRY_POLICY, max_backoff_s=1e-9)),
        (
            {"retryableStatusCodes": [14, "aborted", "Data_Loss", "ABORTED"]},
            replace(
                RETRY_POLICY,
                retryable_codes=frozenset(
                    {StatusCode.UNAVAILABLE, StatusCode.ABORTED, StatusCode.DATA_LOSS}
                ),
            ),
        ),
        (
            {"perAttemptRecvTimeout": "2s"},
            replace(RETRY_POLICY, per_attempt_recv_timeout_s=2),
        ),
        ({"unknown": 1}, RETRY_POLICY),
    ],
)
def test_a_retry_policy_is_read(changed: dict[str, object], policy: RetryPolicy) -> None:
    config = parse_method(retryPolicy=RETRY | changed)
    assert config == MethodConfig(retry_policy=policy)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"maxAttempts": None}, "maxAttempts error:is missing, wanted an integer from 2"),
        ({"maxAttempts": 1}, "maxAttempts error:is 1, wanted an integer from 2 to 4294967295"),
        ({"maxAttempts": "no"}, "maxAttempts error:is 'no', wanted an integer from 2"),
        ({"initialBackoff": None}, "initialBackoff error:is missing, wanted a duration above 0"),
        ({"initialBackoff": "0s"}, "initialBackoff error:is '0s', wanted a duration above 0"),
        ({"maxBackoff": None}, "maxBackoff error:is missing, wanted a duration above 0 such as"),
        ({"maxBackoff": "0.0s"}, "maxBackoff error:is '0.0s', wanted a duration above 0"),
        ({"backoffMultiplier": None}, "backoffMultiplier error:is missing, wanted a number above"),
        ({"backoffMultiplier": 0}, "backoffMultiplier error:is 0, wanted a number above 0"),
        ({"backoffMultiplier": "x"}, "backoffMultiplier error:is 'x', wanted a number above 0"),
        ({"backoffMultiplier": True}, "backoffMultiplier error:is a boolean, wanted a number"),
        ({"backoffMultiplier": 10**400}, "backoffMultiplier error:is 1000"),
        ({"backoffMultiplier": float("nan")}, "backoffMultiplier error:is nan, wanted a number"),
        ({"retryableStatusCodes": None}, "retryableStatusCodes error:is missing or empty, wanted"),
        ({"retryableStatusCodes": []}, "retryableStatusCodes error:is missing or empty, wanted a"),
        ({"retryableStatusCodes": "A"}, "retryableStatusCodes error:is 'A', wanted a list]"),
        ({"retryableStatusCodes": [0]}, "retryableStatusCodes[0] error:is 0, wanted the status"),
        ({"retryableStatusCodes": [1, 17]}, "retryableStatusCodes[1] error:is 17, wanted the sta"),
        ({"retryableStatusCodes": ["ok"]}, "retryableStatusCodes[0] error:is 'ok', wanted the st"),
        ({"retryableStatusCodes": ["X"]}, "retryableStatusCodes[0] error:is 'X', wanted the stat"),
        ({"retryableStatusCodes": [None]}, "retryableStatusCodes[0] error:is null, wanted the st"),
        ({"perAttemptRecvTimeout": "0s"}, "perAttemptRecvTimeout error:is '0s', wanted a duratio"),
    ],
)
def test_invalid_retry_policy_is_an_error(changed: dict[str, object], expected: str) -> None:
    text = errors_of(method(retryPolicy=RETRY | changed))
    assert text.startswith(f"[field:methodConfig[0].retryPolicy.{expected}")
    assert text.count("error:") == 1


@pytest.mark.parametrize(
    ("fields", "policy"),
    [
        ({"maxAttempts": 2}, HedgingPolicy(attempts_max=2)),
        ({"maxAttempts": 9}, HedgingPolicy(attempts_max=5)),
        (
            {"maxAttempts": 3, "hedgingDelay": "0.5s", "nonFatalStatusCodes": ["INTERNAL", 14]},
            HedgingPolicy(
                attempts_max=3,
                hedging_delay_s=0.5,
                non_fatal_codes=frozenset({StatusCode.INTERNAL, StatusCode.UNAVAILABLE}),
            ),
        ),
        (
            {"maxAttempts": 2, "hedgingDelay": "0s", "nonFatalStatusCodes": []},
            HedgingPolicy(attempts_max=2),
        ),
    ],
)
def test_a_hedging_policy_is_read(fields: dict[str, object], policy: HedgingPolicy) -> None:
    assert parse_method(hedgingPolicy=fields) == MethodConfig(hedging_policy=policy)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ".maxAttempts error:is missing, wanted an integer from 2 to 4294967295"),
        ({"maxAttempts": 1}, ".maxAttempts error:is 1, wanted an integer from 2"),
        ({"maxAttempts": 2, "hedgingDelay": 1}, ".hedgingDelay error:is 1, wanted a duration"),
        ({"maxAttempts": 2, "nonFatalStatusCodes": {}}, ".nonFatalStatusCodes error:is an object"),
        ({"maxAttempts": 2, "nonFatalStatusCodes": [99]}, ".nonFatalStatusCodes[0] error:is 99"),
        ([], " error:is a list, wanted an object"),
    ],
)
def test_invalid_hedging_policy_is_an_error(fields: object, expected: str) -> None:
    text = errors_of(method(hedgingPolicy=fields))
    assert text.startswith(f"[field:methodConfig[0].hedgingPolicy{expected}")


def test_both_policies_at_once_are_an_error() -> None:
    document = method(retryPolicy=RETRY, hedgingPolicy={"maxAttempts": 2})
    expected = "has retryPolicy and hedgingPolicy, wanted one of them"
    assert errors_of(document) == f"[field:methodConfig[0] error:{expected}]"
    assert errors_of(method(retryPolicy=RETRY, hedgingPolicy=None)) == "[]"


# Throttling and health checks


@pytest.mark.parametrize(
    ("tokens", "ratio", "throttling"),
    [
        (10, 0.1, RetryThrottling(10_000, 100)),
        (1000, 1, RetryThrottling(1_000_000, 1000)),
        (1, 0.001, RetryThrottling(1000, 1)),
        # "eg. 0.5466 is treated as 0.546" - A6
        (10, 0.5466, RetryThrottling(10_000, 546)),
        (10, 0.57, RetryThrottling(10_000, 570)),
        (10, 0.0019999, RetryThrottling(10_000, 1)),
        ("10", 2.5, RetryThrottling(10_000, 2500)),
    ],
)
def test_throttling_counts_thousandths(
    tokens: object, ratio: object, throttling: RetryThrottling
) -> None:
    config = parse({"retryThrottling": {"maxTokens": tokens, "tokenRatio": ratio}})
    assert config.retry_throttling == throttling


@given(st.integers(1, 5000))
def test_every_ratio_with_three_decimals_is_exact(thousandths: int) -> None:
    throttling = {"maxTokens": 1, "tokenRatio": json.loads(f"{thousandths / 1000:.3f}")}
    config = parse({"retryThrottling": throttling})
    assert config.retry_throttling == RetryThrottling(1000, thousandths)


@pytest.mark.parametrize(
    ("throttling", "expected"),
    [
        ({"tokenRatio": 1}, ".maxTokens error:is missing, wanted an integer from 1 to 1000"),
        ({"maxTokens": 0, "tokenRatio": 1}, ".maxTokens error:is 0, wanted an integer from 1"),
        ({"maxTokens": 1001, "tokenRatio": 1}, ".maxTokens error:is 1001, wanted an integer from"),
        ({"maxTokens": 0.5, "tokenRatio": 1}, ".maxTokens error:is 0.5, wanted an integer from 1"),
        ({"maxTokens": 1}, ".tokenRatio error:is missing, wanted a number of 0.001 or more"),
        ({"maxTokens": 1, "tokenRatio": 0}, ".tokenRatio error:is 0, wanted a number of 0.001"),
        ({"maxTokens": 1, "tokenRatio": -1}, ".tokenRatio error:is -1, wanted a number of 0.001"),
        ({"maxTokens": 1, "tokenRatio": 0.0009}, ".tokenRatio error:is 0.0009, wanted a number of"),
        ({"maxTokens": 1, "tokenRatio": "x"}, ".tokenRatio error:is 'x', wanted a number of 0.001"),
        (1, " error:is 1, wanted an object"),
    ],
)
def test_invalid_throttling_is_an_error(throttling: object, expected: str) -> None:
    text = errors_of({"retryThrottling": throttling})
    assert text.startswith(f"[field:retryThrottling{expected}")
    assert text.count("error:") == 1


@pytest.mark.parametrize(
    ("document", "service"),
    [
        ({}, None),
        ({"healthCheckConfig": {}}, None),
        ({"healthCheckConfig": {"serviceName": ""}}, ""),
        ({"healthCheckConfig": {"serviceName": "s"}}, "s"),
    ],
)
def test_the_health_checked_service_is_read(document: object, service: str | None) -> None:
    assert parse(document).health_check_service == service


# Whole configs


def test_all_errors_are_reported_at_once_by_path() -> None:
    document = {
        "loadBalancingConfig": [{"new": {}}],
        "methodConfig": [
            {"name": [{"method": "m"}], "timeout": "soon"},
            {"name": [{"service": "s"}], "retryPolicy": RETRY | {"maxAttempts": 1}},
        ],
        "retryThrottling": {"maxTokens": 0, "tokenRatio": 0},
        "healthCheckConfig": {"serviceName": 1},
    }
    assert errors_of(document) == (
        "[field:loadBalancingConfig error:No known policies in list: new; "
        "field:methodConfig[0].timeout error:is 'soon', wanted a duration such as '1.5s'; "
        "field:methodConfig[0].name[0] error:has method 'm' without a service; "
        "field:methodConfig[1].retryPolicy.maxAttempts "
        "error:is 1, wanted an integer from 2 to 4294967295; "
        "field:retryThrottling.maxTokens error:is 0, wanted an integer from 1 to 1000; "
        "field:retryThrottling.tokenRatio error:is 0, wanted a number of 0.001 or more; "
        "field:healthCheckConfig.serviceName error:is 1, wanted a string]"
    )


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], "[error:is a list, wanted an object]"),
        (None, "[error:is null, wanted an object]"),
        ("{}", "[error:is '{}', wanted an object]"),
        ({"methodConfig": {}}, "[field:methodConfig error:is an object, wanted a list]"),
        ({"methodConfig": [1]}, "[field:methodConfig[0] error:is 1, wanted an object]"),
    ],
)
def test_document_of_another_shape_is_an_error(document: object, expected: str) -> None:
    assert errors_of(document) == expected


FIELDS = [
    "backoffMultiplier",
    "healthCheckConfig",
    "hedgingPolicy",
    "initialBackoff",
    "loadBalancingConfig",
    "loadBalancingPolicy",
    "maxAttempts",
    "maxBackoff",
    "maxTokens",
    "method",
    "methodConfig",
    "name",
    "pick_first",
    "retryPolicy",
    "retryThrottling",
    "retryableStatusCodes",
    "service",
    "timeout",
    "tokenRatio",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("1s"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_a_config_or_errors_and_never_an_exception(document: object) -> None:
    errors = ValidationErrors()
    config = parse_service_config(document, errors, REGISTRY)
    assert not errors.ok or config.policy is not None
