"""When is an endpoint an outlier, and what comes of it? The config of outlier_detection.

Specs: A50 "LB Policy Config" and "Validation"; requirements OD-01 and OD-02.

The names are those of A50; where it says address, today's gRPC means endpoint (A61).
"""

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from proxyless.base import ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.lb.config import PolicyConfig, parse_policy_list
from proxyless.lb.json_values import DURATION_MAX_S, show_value, to_integer, to_seconds
from proxyless.lb.registry import PolicyRegistry

PERCENT_MAX: Final = 100
UINT32_MAX: Final = 2**32 - 1


@frozen(kw_only=True)
class SuccessRateEjection:
    """Endpoints that do much worse than the others are outliers."""

    stdev_factor: int = 1900
    enforcement_percentage: int = 100
    minimum_hosts: int = 5
    request_volume: int = 100


@frozen(kw_only=True)
class FailurePercentageEjection:
    """Endpoints that fail too much are outliers, whatever the others do."""

    threshold: int = 85
    enforcement_percentage: int = 100
    minimum_hosts: int = 5
    request_volume: int = 50


@frozen(kw_only=True)
class EjectionRules:
    """Who is ejected, how many at most, and for how long."""

    base_ejection_time_s: float = 30.0
    max_ejection_time_s: float = 300.0
    max_ejection_percent: int = 10
    success_rate: SuccessRateEjection | None = None
    failure_percentage: FailurePercentageEjection | None = None

    @property
    def is_counting(self) -> bool:
        """Whether there is any reason to count RPCs."""
        return self.success_rate is not None or self.failure_percentage is not None

    def ejection_time_s(self, multiplier: int) -> float:
        longest_s = max(self.base_ejection_time_s, self.max_ejection_time_s)
        return min(self.base_ejection_time_s * multiplier, longest_s)


@frozen(kw_only=True)
class OutlierDetectionConfig:
    """How often to sweep, by which rules, and whom to watch."""

    child: PolicyConfig
    interval_s: float = 10.0
    rules: EjectionRules = field(default_factory=EjectionRules)


# ---------------------------------------------------------------------------------------------
# Parsing


def parse_config(
    json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
) -> OutlierDetectionConfig | None:
    """The config, or None without a child policy, which adds an error."""
    interval_s, rules = parse_rules(json, errors)
    with errors.field("childPolicy"):
        if (listed := _Fields(json, errors).get("childPolicy")) is None:
            errors.add("is missing, wanted a list of policies")
            return None
        child = parse_policy_list(listed, errors, registry)
    if child is None:
        return None
    return OutlierDetectionConfig(child=child, interval_s=interval_s, rules=rules)


def parse_rules(
    json: Mapping[str, object], errors: ValidationErrors
) -> tuple[float, EjectionRules]:
    """How many seconds are between sweeps, and by which rules they eject."""
    fields, defaults = _Fields(json, errors), EjectionRules()
    interval_s = fields.seconds("interval", 10.0)
    base_s = fields.seconds("baseEjectionTime", defaults.base_ejection_time_s)
    rules = EjectionRules(
        base_ejection_time_s=base_s,
        # "the default value (300000ms or 300s) or the base_ejection_time value is applied,
        # whatever is larger" - A50
        max_ejection_time_s=fields.seconds(
            "maxEjectionTime", max(defaults.max_ejection_time_s, base_s)
        ),
        max_ejection_percent=fields.percent("maxEjectionPercent", defaults.max_ejection_percent),
        success_rate=_parse_success_rate(fields.nested("successRateEjection")),
        failure_percentage=_parse_failure_percentage(fields.nested("failurePercentageEjection")),
    )
    return interval_s, rules


def _parse_success_rate(fields: "_Fields | None") -> SuccessRateEjection | None:
    if fields is None:
        return None
    defaults = SuccessRateEjection()
    return SuccessRateEjection(
        stdev_factor=fields.integer("stdevFactor", defaults.stdev_factor),
        enforcement_percentage=fields.percent(
            "enforcementPercentage", defaults.enforcement_percentage
        ),
        minimum_hosts=fields.integer("minimumHosts", defaults.minimum_hosts),
        request_volume=fields.integer("requestVolume", defaults.request_volume),
    )


def _parse_failure_percentage(fields: "_Fields | None") -> FailurePercentageEjection | None:
    if fields is None:
        return None
    defaults = FailurePercentageEjection()
    return FailurePercentageEjection(
        threshold=fields.percent("threshold", defaults.threshold),
        enforcement_percentage=fields.percent(
            "enforcementPercentage", defaults.enforcement_percentage
        ),
        minimum_hosts=fields.integer("minimumHosts", defaults.minimum_hosts),
        request_volume=fields.integer("requestVolume", defaults.request_volume),
    )


class _Fields:
    """One message in proto3's JSON, read field by field. Driven by the parser.

    A field that is absent or null has its default; so has one that is wrong, and `errors` says why.
    """

    __slots__ = ("_errors", "_path", "_values")

    def __init__(
        self, values: Mapping[str, object], errors: ValidationErrors, path: str = ""
    ) -> None:
        self._values: Final = values
        self._errors: Final = errors
        # Where the message is, seen from where the errors are.
        self._path: Final = path

    def get(self, name: str) -> object:
        """The value under the name in JSON or, failing that, the one in the proto."""
        value = self._values.get(name)
        return self._values.get(_to_snake_case(name)) if value is None else value

    def nested(self, name: str) -> "_Fields | None":
        """The message in this field; None if there is none."""
        value = self.get(name)
        if isinstance(value, dict):
            return _Fields(value, self._errors, f"{self._path}{name}.")
        if value is not None:
            self._refuse(name, value, "an object")
        return None

    def seconds(self, name: str, default: float) -> float:
        value = self.get(name)
        if value is None:
            return default
        seconds = to_seconds(value)
        if seconds is None:
            self._refuse(name, value, f"a duration from 0s to {DURATION_MAX_S}s, such as '1.5s'")
            return default
        return seconds

    def integer(self, name: str, default: int, most: int = UINT32_MAX) -> int:
        value = self.get(name)
        if value is None:
            return default
        number = to_integer(value)
        if number is None or not 0 <= number <= most:
            self._refuse(name, value, f"an integer from 0 to {most}")
            return default
        return number

    def percent(self, name: str, default: int) -> int:
        return self.integer(name, default, PERCENT_MAX)

    def _refuse(self, name: str, value: object, wanted: str) -> None:
        with self._errors.field(self._path + name):
            self._errors.add(f"is {show_value(value)}, wanted {wanted}")


def _to_snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda upper: f"_{upper[0].lower()}", name)
