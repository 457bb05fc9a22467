"""Config of outlier_detection and its parser.

Specs: A50 "LB Policy Config" and "Validation"; requirements OD-01 and OD-02.

The names are those of A50. Where A50 says address, endpoint is meant (A61).
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from proxyless.base import ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import (
    DURATION_MAX_S,
    UINT32_MAX,
    FieldKind,
    JsonObject,
    integer,
    to_seconds,
)
from proxyless.lb.api import PolicyRegistry
from proxyless.lb.config import PolicyConfig, parse_child_policy

PERCENT_MAX: Final = 100

_PERCENT: Final = integer(0, PERCENT_MAX)
_COUNT: Final = integer(0, UINT32_MAX)
_DURATION: Final = FieldKind(to_seconds, f"a duration from 0s to {DURATION_MAX_S}s, such as '1.5s'")


@frozen(kw_only=True)
class SuccessRateEjection:
    """Ejects endpoints with a success rate far below that of the others."""

    stdev_factor: int = 1900
    enforcement_percentage: int = 100
    minimum_hosts: int = 5
    request_volume: int = 100


@frozen(kw_only=True)
class FailurePercentageEjection:
    """Ejects endpoints with too many failed RPCs, independent of the others."""

    threshold: int = 85
    enforcement_percentage: int = 100
    minimum_hosts: int = 5
    request_volume: int = 50


@frozen(kw_only=True)
class EjectionRules:
    """Limits of ejections, and the configured algorithms."""

    base_ejection_time_s: float = 30.0
    max_ejection_time_s: float = 300.0
    max_ejection_percent: int = 10
    success_rate: SuccessRateEjection | None = None
    failure_percentage: FailurePercentageEjection | None = None

    @property
    def is_counting(self) -> bool:
        """Whether an algorithm is configured, so that RPCs must be counted."""
        return self.success_rate is not None or self.failure_percentage is not None

    def ejection_time_s(self, multiplier: int) -> float:
        longest_s = max(self.base_ejection_time_s, self.max_ejection_time_s)
        return min(self.base_ejection_time_s * multiplier, longest_s)


@frozen(kw_only=True)
class OutlierDetectionConfig:
    """Parsed config."""

    child: PolicyConfig
    interval_s: float = 10.0
    rules: EjectionRules = field(default_factory=EjectionRules)


def parse_config(
    json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
) -> OutlierDetectionConfig | None:
    """Return the config; None, after adding an error, if there is no valid child policy."""
    interval_s, rules = parse_rules(json, errors)
    child = parse_child_policy(JsonObject(json, errors), registry)
    if child is None:
        return None
    return OutlierDetectionConfig(child=child, interval_s=interval_s, rules=rules)


def parse_rules(
    json: Mapping[str, object], errors: ValidationErrors
) -> tuple[float, EjectionRules]:
    """Return the interval in seconds, and the rules."""
    fields, defaults = JsonObject(json, errors), EjectionRules()
    interval_s = fields.read_or("interval", _DURATION, 10.0)
    base_s = fields.read_or("baseEjectionTime", _DURATION, defaults.base_ejection_time_s)
    rules = EjectionRules(
        base_ejection_time_s=base_s,
        # "the default value (300000ms or 300s) or the base_ejection_time value is applied,
        # whatever is larger" - A50
        max_ejection_time_s=fields.read_or(
            "maxEjectionTime", _DURATION, max(defaults.max_ejection_time_s, base_s)
        ),
        max_ejection_percent=fields.read_or(
            "maxEjectionPercent", _PERCENT, defaults.max_ejection_percent
        ),
        success_rate=fields.nested("successRateEjection", _parse_success_rate),
        failure_percentage=fields.nested("failurePercentageEjection", _parse_failure_percentage),
    )
    return interval_s, rules


def _parse_success_rate(fields: JsonObject) -> SuccessRateEjection:
    defaults = SuccessRateEjection()
    factor = fields.read_or("stdevFactor", _COUNT, defaults.stdev_factor)
    return SuccessRateEjection(stdev_factor=factor, **_parse_common(fields, defaults))


def _parse_failure_percentage(fields: JsonObject) -> FailurePercentageEjection:
    defaults = FailurePercentageEjection()
    threshold = fields.read_or("threshold", _PERCENT, defaults.threshold)
    return FailurePercentageEjection(threshold=threshold, **_parse_common(fields, defaults))


def _parse_common(
    fields: JsonObject, defaults: SuccessRateEjection | FailurePercentageEjection
) -> dict[str, int]:
    percentage, hosts = defaults.enforcement_percentage, defaults.minimum_hosts
    return {
        "enforcement_percentage": fields.read_or("enforcementPercentage", _PERCENT, percentage),
        "minimum_hosts": fields.read_or("minimumHosts", _COUNT, hosts),
        "request_volume": fields.read_or("requestVolume", _COUNT, defaults.request_volume),
    }
