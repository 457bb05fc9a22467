"""Slow start: weights of endpoints grow during a window after they become READY (pure).

Specs: A100 (a draft), with the parameters and the curve of Envoy's slow start.
"""

from collections.abc import Sequence
from math import inf, pow  # noqa: A004 - of two floats, a float
from sys import float_info
from typing import Final

from proxyless.base.frozen import frozen
from proxyless.base.json_fields import POSITIVE_DURATION, FieldKind, JsonObject, to_number

PERCENT_MAX: Final = 100.0
# The first second counts as a whole one: "max(time_since_ready_seconds, 1)" - A100
TIME_MIN_S: Final = 1.0
# Above 0, which is an unknown weight.
_WEIGHT_MIN: Final = float_info.min


@frozen
class SlowStartConfig:
    """Parsed config: the length of the window, and the curve."""

    window_s: float
    # 1: linear; above: faster at first; below: slower at first.
    aggression: float = 1.0
    # Smallest part of the weight.
    min_weight_percent: float = 10.0


def _to_aggression(value: object) -> float | None:
    number = to_number(value)
    return number if number is not None and 0 < number < inf else None


def _to_percent(value: object) -> float | None:
    number = to_number(value)
    return number if number is not None and 0 <= number <= PERCENT_MAX else None


_AGGRESSION: Final = FieldKind(_to_aggression, "a number above 0")
_PERCENT: Final = FieldKind(_to_percent, "a number from 0 to 100")


def parse_slow_start(fields: JsonObject) -> SlowStartConfig:
    """Parse `slowStartConfig`."""
    default = SlowStartConfig(0.0)
    return SlowStartConfig(
        fields.need("slowStartWindow", POSITIVE_DURATION) or 0.0,
        fields.read_or("aggression", _AGGRESSION, default.aggression),
        fields.read_or("minWeightPercent", _PERCENT, default.min_weight_percent),
    )


def choose_scale(config: SlowStartConfig, ready_for_s: float) -> float:
    """The part of its weight that an endpoint gets, this long after it became READY."""
    if ready_for_s >= config.window_s:
        return 1.0
    time_factor = min(max(ready_for_s, TIME_MIN_S) / config.window_s, 1.0)
    share = pow(time_factor, 1.0 / config.aggression)
    return max(config.min_weight_percent / PERCENT_MAX, share)


def scale_weights(weights: Sequence[float], scales: Sequence[float]) -> list[float]:
    """Multiply the weights by their scales. A weight of 0 is unknown, and counts as the mean.

    The results are above 0, even if a scale is 0: a product of 0 would count as the mean again.
    """
    usable = [weight for weight in weights if weight > 0]
    # Relative to the largest weight, so that the sum does not overflow.
    unit = max(usable, default=1.0)
    mean = sum(weight / unit for weight in usable) / len(usable) if usable else 1.0
    return [
        max((weight / unit or mean) * scale, _WEIGHT_MIN)
        for weight, scale in zip(weights, scales, strict=True)
    ]
