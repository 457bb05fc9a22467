"""Config of the `proxyless.peak_ewma` policy."""

from collections.abc import Mapping
from typing import Final

from proxyless.base import ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import DURATION, POSITIVE_DURATION, JsonObject

NAME: Final = "proxyless.peak_ewma"


@frozen(kw_only=True)
class PeakEwmaConfig:
    """Parsed config."""

    # Time constant of the averages: after it, a past value counts 1/e.
    decay_time_s: float = 10.0
    # Added to the latency of an endpoint whose RPCs all fail; in proportion if some do.
    failure_penalty_s: float = 1.0


def parse_peak_ewma(json: Mapping[str, object], errors: ValidationErrors) -> PeakEwmaConfig:
    fields, default = JsonObject(json, errors), PeakEwmaConfig()
    return PeakEwmaConfig(
        decay_time_s=fields.read_or("decayTime", POSITIVE_DURATION, default.decay_time_s),
        failure_penalty_s=fields.read_or("failurePenalty", DURATION, default.failure_penalty_s),
    )
