"""Unit tests of proxyless.lb.policies.peak_ewma.config."""

import pytest

from proxyless.base import ValidationErrors
from proxyless.lb.policies.peak_ewma.config import PeakEwmaConfig, parse_peak_ewma


def parse(**json: object) -> tuple[PeakEwmaConfig, str]:
    errors = ValidationErrors()
    config = parse_peak_ewma(json, errors)
    return config, "" if errors.ok else str(errors)


@pytest.mark.spec("PE-01")
def test_config_has_defaults() -> None:
    default = PeakEwmaConfig(decay_time_s=10.0, failure_penalty_s=1.0)
    assert parse() == (default, "")
    assert parse(decayTime=None, failurePenalty=None, other=1) == (default, "")


@pytest.mark.spec("PE-01")
def test_fields_are_read() -> None:
    expected = PeakEwmaConfig(decay_time_s=2.5, failure_penalty_s=0.0)
    assert parse(decayTime="2.5s", failurePenalty="0s") == (expected, "")


@pytest.mark.spec("PE-01")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("decayTime", "0s"),
        ("decayTime", "-1s"),
        ("decayTime", 10),
        ("failurePenalty", "-1s"),
        ("failurePenalty", "soon"),
    ],
)
def test_value_is_rejected_when_it_is_no_duration_in_range(field: str, value: object) -> None:
    _, text = parse(**{field: value})
    assert f"field:{field} error:is " in text
