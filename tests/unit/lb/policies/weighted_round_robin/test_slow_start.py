"""Unit tests of proxyless.lb.policies.weighted_round_robin.slow_start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import ValidationErrors
from proxyless.base.json_fields import JsonObject
from proxyless.lb.policies.weighted_round_robin.slow_start import (
    SlowStartConfig,
    choose_scale,
    parse_slow_start,
    scale_weights,
)
from proxyless.lb.policies.weighted_round_robin.stride import choose_strides

MINUTE = SlowStartConfig(60.0)
numbers = st.floats(0.01, 1000)


@pytest.mark.spec("A100-02")
@pytest.mark.parametrize(
    ("config", "ready_for_s", "scale"),
    [
        (MINUTE, 0, 0.1),
        (MINUTE, 6, 0.1),
        (MINUTE, 30, 0.5),
        (MINUTE, 59.4, 0.99),
        (MINUTE, 60, 1),
        (MINUTE, 1000, 1),
        # The first second counts as a second.
        (SlowStartConfig(10.0, min_weight_percent=0), 0, 0.1),
        (SlowStartConfig(10.0, min_weight_percent=0), 1, 0.1),
        (SlowStartConfig(100.0, aggression=2, min_weight_percent=0), 25, 0.5),
        (SlowStartConfig(100.0, aggression=0.5, min_weight_percent=0), 50, 0.25),
        (SlowStartConfig(100.0, min_weight_percent=70), 50, 0.7),
        # A window that is shorter than that.
        (SlowStartConfig(0.5), 0, 1),
    ],
)
def test_scale_follows_the_curve(config: SlowStartConfig, ready_for_s: float, scale: float) -> None:
    assert choose_scale(config, ready_for_s) == pytest.approx(scale)


@given(numbers, numbers, st.floats(0, 100), numbers, numbers)
def test_scale_grows_and_has_bounds(
    window_s: float, aggression: float, percent: float, one_s: float, more_s: float
) -> None:
    config = SlowStartConfig(window_s, aggression, percent)
    before, after = choose_scale(config, one_s), choose_scale(config, one_s + more_s)
    assert percent / 100 <= before <= after <= 1


@pytest.mark.spec("A100-03")
def test_unknown_weights_count_as_the_mean_before_they_are_scaled() -> None:
    scaled = scale_weights([2.0, 4.0, 0.0], [1.0, 0.5, 0.5])
    assert scaled == pytest.approx([0.5, 0.5, 0.375])


def test_endpoint_whose_scale_is_rounded_to_0_gets_the_smallest_share() -> None:
    config = SlowStartConfig(60.0, aggression=0.005, min_weight_percent=0)
    scale = choose_scale(config, 0)
    assert scale == 0
    whole, smallest = choose_strides(scale_weights([3.0, 3.0], [1.0, scale]))
    assert smallest < whole / 100


@pytest.mark.spec("A100-03")
def test_equal_weights_are_scaled_when_none_is_known() -> None:
    assert scale_weights([0.0, 0.0], [1.0, 0.1]) == [1.0, 0.1]


def test_large_weights_do_not_overflow() -> None:
    assert scale_weights([1e308, 1e308, 0.0], [1.0, 0.5, 1.0]) == [1.0, 0.5, 1.0]


def parse(**fields: object) -> tuple[SlowStartConfig, list[str]]:
    errors = ValidationErrors()
    return parse_slow_start(JsonObject(fields, errors)), [path for path, _ in errors.items()]


@pytest.mark.spec("A100-01")
def test_config_has_defaults() -> None:
    assert parse(slowStartWindow="60s") == (SlowStartConfig(60.0, 1.0, 10.0), [])
    config, errors = parse(slowStartWindow="1.5s", aggression=2, minWeightPercent=0)
    assert (config, errors) == (SlowStartConfig(1.5, 2.0, 0.0), [])


@pytest.mark.spec("A100-01")
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "slowStartWindow"),
        ({"slowStartWindow": "0s"}, "slowStartWindow"),
        ({"slowStartWindow": "1s", "aggression": 0}, "aggression"),
        ({"slowStartWindow": "1s", "aggression": "fast"}, "aggression"),
        ({"slowStartWindow": "1s", "minWeightPercent": 101}, "minWeightPercent"),
        ({"slowStartWindow": "1s", "minWeightPercent": -1}, "minWeightPercent"),
    ],
)
def test_invalid_values_are_errors(fields: dict[str, object], text: str) -> None:
    _, errors = parse(**fields)
    assert len(errors) == 1
    assert text in errors[0]
