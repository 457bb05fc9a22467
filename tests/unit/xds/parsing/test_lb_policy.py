"""Conversions of LB policies, and errors of the policies' parsers."""

from collections.abc import Mapping
from typing import Any

import pytest

from proxyless.base import ValidationErrors
from proxyless.lb import Helper, Policy, PolicyRegistry
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.protos import Proto
from proxyless.xds.parsing.lb_policy import (
    DEFAULT_CONVERSIONS,
    Conversion,
    LbConfigConverter,
    parse_duration_text,
)
from tests.worlds.xds_messages import (
    ROUND_ROBIN,
    any_with,
    cluster,
    known_policies,
    lb_policy,
    parsed_cluster,
    policies_of,
    proto,
    refused_cluster,
    typed_struct,
)

WRR = "envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3"


def convert(
    *typed_configs: Proto,
    policies: PolicyRegistry | None = None,
    conversions: tuple[Conversion, ...] = DEFAULT_CONVERSIONS,
    environ: Mapping[str, str] | None = None,
) -> tuple[list[object], str]:
    """The config and its errors."""
    errors = ValidationErrors()
    converter = LbConfigConverter(policies or known_policies(), conversions, environ or {})
    config = converter.convert(policies_of(*typed_configs), errors)
    return list(config), str(errors)


def test_conversion_is_skipped_when_its_policy_is_not_registered() -> None:
    few = PolicyRegistry([RoundRobinFactory()])
    ring_hash = lb_policy("ring_hash", "RingHash")
    assert convert(ring_hash, ROUND_ROBIN, policies=few) == ([{"round_robin": {}}], "[]")


def test_enum_value_is_rejected_when_its_policy_is_not_registered() -> None:
    errors = ValidationErrors()
    few = PolicyRegistry([RoundRobinFactory()])
    LbConfigConverter(few, DEFAULT_CONVERSIONS, {}).convert_cluster(cluster(), errors)
    assert str(errors) == (
        "[field:lb_policy error:No known policies in list: xds_wrr_locality_experimental]"
    )


def test_custom_conversion_is_used_unless_its_guard_is_false() -> None:
    def shorter(message: Proto, _errors: ValidationErrors, _convert: object) -> dict[str, object]:
        return {"minRingSize": message.value}

    custom = Conversion(
        "google.protobuf.UInt32Value", "ring_hash_experimental", shorter, "MY_GUARD"
    )
    message = proto("google.protobuf.UInt32Value", value=7)
    expected: list[object] = [{"ring_hash_experimental": {"minRingSize": 7}}]
    assert convert(message, conversions=(custom,)) == (expected, "[]")
    config, text = convert(message, conversions=(custom,), environ={"MY_GUARD": " False "})
    assert config == []
    assert text == "[error:has no policy that is supported, got google.protobuf.UInt32Value]"


@pytest.mark.parametrize("value", ["", "true", "0", "anything"])
def test_conversion_is_disabled_only_when_its_guard_is_false(value: str) -> None:
    custom = Conversion("a.B", "c", lambda *_: {}, "MY_GUARD")
    assert custom.is_enabled({"MY_GUARD": value})
    assert custom.is_enabled({})
    assert not custom.is_enabled({"MY_GUARD": "false"})


class RaisingFactory:
    """A custom policy with a bug in its parser."""

    name = "my.Policy"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        raise KeyError(json["size"])

    def create(self, helper: Helper) -> Policy:
        raise NotImplementedError


def test_policy_is_rejected_when_its_parser_raises() -> None:
    policies = PolicyRegistry([RaisingFactory()])
    _, text = convert(typed_struct("my.Policy", {"size": 3}), policies=policies)
    assert text == "[error:its policy could not parse it: KeyError(3)]"


def test_typed_struct_without_a_type_is_rejected() -> None:
    _, text = convert(typed_struct(""), ROUND_ROBIN)
    assert text.startswith(
        "[field:policies[0].typed_extension_config.typed_config"
        '["xds.type.v3.TypedStruct"].type_url error:'
    )


def test_whole_numbers_of_a_typed_struct_are_integers() -> None:
    custom = typed_struct("ring_hash_experimental", {"minRingSize": 7.0, "note": 0.5})
    assert convert(custom) == ([{"ring_hash_experimental": {"minRingSize": 7, "note": 0.5}}], "[]")


def least_request(**fields: object) -> Proto:
    return lb_policy("least_request", "LeastRequest", **fields)


def test_least_request_is_converted() -> None:
    assert convert(least_request()) == ([{"least_request_experimental": {}}], "[]")
    four = least_request(choice_count={"value": 4})
    assert convert(four) == ([{"least_request_experimental": {"choiceCount": 4}}], "[]")
    _, text = convert(least_request(choice_count={"value": 1}))
    assert text.endswith(".choice_count error:is 1, wanted at least 2]")


def test_least_request_is_converted_from_the_enum() -> None:
    def config(**fields: Any) -> object:  # noqa: ANN401 - fields of a message
        return parsed_cluster(cluster(lb_policy="LEAST_REQUEST", **fields)).lb_config.json

    def in_each_locality(child: dict[str, int]) -> object:
        policy = {"childPolicy": [{"least_request_experimental": child}]}
        return ({"xds_wrr_locality_experimental": policy},)

    assert config() == in_each_locality({})
    assert config(least_request_lb_config={"choice_count": {"value": 3}}) == (
        in_each_locality({"choiceCount": 3})
    )
    one = {"choice_count": {"value": 1}}
    assert refused_cluster(cluster(lb_policy="LEAST_REQUEST", least_request_lb_config=one)) == (
        "field:least_request_lb_config.choice_count error:is 1, wanted at least 2"
    )


def weighted_round_robin(**fields: object) -> Proto:
    return proto(f"{WRR}.ClientSideWeightedRoundRobin", **fields)


def test_weighted_round_robin_config_has_no_unset_fields() -> None:
    expected: list[object] = [{"weighted_round_robin": {}}]
    assert convert(weighted_round_robin()) == (expected, "[]")
    off = weighted_round_robin(enable_oob_load_report={"value": False})
    assert convert(off) == (expected, "[]")


@pytest.mark.spec("A100-05")
def test_slow_start_of_weighted_round_robin_is_converted() -> None:
    window = {"slow_start_window": {"seconds": 60}}
    message = weighted_round_robin(
        slow_start_config={
            **window,
            "aggression": {"default_value": 2.0, "runtime_key": "unused"},
            "min_weight_percent": {"value": 25.0},
        }
    )
    expected = {"slowStartWindow": "60s", "aggression": 2.0, "minWeightPercent": 25.0}
    assert convert(message) == (
        [{"weighted_round_robin": {"slowStartConfig": expected}}],
        "[]",
    )
    plain = weighted_round_robin(slow_start_config=window)
    assert convert(plain) == (
        [{"weighted_round_robin": {"slowStartConfig": {"slowStartWindow": "60s"}}}],
        "[]",
    )


@pytest.mark.spec("A100-05")
@pytest.mark.parametrize(
    "config", [{}, {"slow_start_window": {}}, {"aggression": {"default_value": 1}}]
)
def test_slow_start_without_a_window_is_none(config: dict[str, object]) -> None:
    message = weighted_round_robin(slow_start_config=config)
    assert convert(message) == ([{"weighted_round_robin": {}}], "[]")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"slow_start_config": {"slow_start_window": {"seconds": -1}}},
            "slow_start_config.slow_start_window.seconds error:is -1, wanted 0",
        ),
        (
            {
                "slow_start_config": {
                    "slow_start_window": {"seconds": 1},
                    "aggression": {"default_value": 0.0},
                }
            },
            "slow_start_config.aggression error:is 0, wanted a number above 0",
        ),
        (
            {
                "slow_start_config": {
                    "slow_start_window": {"seconds": 1},
                    "min_weight_percent": {"value": 101.0},
                }
            },
            "slow_start_config.min_weight_percent error:is 101, wanted 0 to 100",
        ),
        ({"blackout_period": {"seconds": -1}}, "blackout_period.seconds error:is -1, wanted 0"),
        (
            {"weight_expiration_period": {"nanos": -1}},
            "weight_expiration_period.nanos error:is -1, wanted 0",
        ),
        (
            {"error_utilization_penalty": {"value": -0.5}},
            "error_utilization_penalty error:is -0.5, wanted a number from 0",
        ),
        (
            {"error_utilization_penalty": {"value": float("nan")}},
            "error_utilization_penalty error:is nan, wanted a number from 0",
        ),
    ],
)
def test_invalid_weighted_round_robin_is_rejected(fields: dict[str, object], expected: str) -> None:
    _, text = convert(weighted_round_robin(**fields))
    assert f'["{WRR}.ClientSideWeightedRoundRobin"].{expected}' in text


def test_undecodable_policy_config_is_rejected() -> None:
    _, text = convert(
        any_with("envoy.extensions.load_balancing_policies.random.v3.Random", b"\xff")
    )
    assert "error:cannot be decoded as envoy.extensions" in text


@pytest.mark.parametrize(
    ("seconds", "nanos", "text"),
    [(0, 0, "0s"), (5, 0, "5s"), (1, 500_000_000, "1.500000000s"), (0, 1, "0.000000001s")],
)
def test_duration_is_converted_to_text(seconds: int, nanos: int, text: str) -> None:
    message = weighted_round_robin(blackout_period={"seconds": seconds, "nanos": nanos})
    assert parse_duration_text(message, "blackout_period", ValidationErrors()) == text
    assert parse_duration_text(message, "weight_update_period", ValidationErrors()) is None
