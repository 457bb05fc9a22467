"""Load of one endpoint: average latency with peaks, failure rate, RPCs in flight, and their cost.

Theory of operation
    A latency above the average replaces it at once; a lower one is averaged in by the time since
    the last one (a moving average, exponential in time). So a slow endpoint loses RPCs after one
    slow answer, and gets them back over the decay time.

    The averages are only as new as the last answer. While an endpoint is idle its cost decreases,
    so that it gets an RPC after a while and is measured again. Each RPC that is sent ends this
    decrease: an endpoint that does not answer gets one RPC at a time, not many. This is also true
    of one that has never answered: its first RPC may be a stream without a response for hours.

Pure: every method takes the time.
"""

from math import exp, inf
from typing import Final

from proxyless.lb.policies.peak_ewma.config import PeakEwmaConfig

# Cost per RPC in flight of an endpoint that has not answered yet. Higher than any latency, so that
# a second RPC goes to an endpoint that has answered, if there is one to compare with.
UNMEASURED_COST_S: Final = 1e12


class EndpointLoad:
    """Averages and RPCs in flight of one endpoint."""

    __slots__ = ("_active_s", "_failure_rate", "_failures_s", "_latency_s", "_sampled_s", "rpcs")

    def __init__(self) -> None:
        # RPCs in flight, and the time of the last start or answer.
        self.rpcs = 0
        self._active_s = -inf
        # The averages, and the times when they were last updated.
        self._latency_s = 0.0
        self._sampled_s = -inf
        self._failure_rate = 0.0
        self._failures_s = -inf

    @property
    def is_measured(self) -> bool:
        return self._sampled_s > -inf

    @property
    def latency_s(self) -> float:
        """Average latency at the last answer."""
        return self._latency_s

    @property
    def failure_rate(self) -> float:
        """Average share of failed RPCs, from 0 to 1, at the last end of an RPC."""
        return self._failure_rate

    def on_start(self, now_s: float) -> None:
        self.rpcs += 1
        self._active_s = now_s

    def on_end(self) -> None:
        self.rpcs -= 1

    def add_latency(self, latency_s: float, now_s: float, config: PeakEwmaConfig) -> None:
        """Add the latency of an answer, which counts with the decay time at most.

        Without that maximum, the late answer of one long poll would count for minutes.
        """
        decay_s = config.decay_time_s
        sample_s = min(latency_s, decay_s)
        above_s = self._latency_s - sample_s
        # Peak: an average below the sample is not used.
        past_s = above_s * exp((self._sampled_s - now_s) / decay_s) if above_s > 0 else 0.0
        self._latency_s = sample_s + past_s
        self._sampled_s = self._active_s = now_s

    def add_wait(self, waited_s: float, now_s: float, config: PeakEwmaConfig) -> None:
        """Add the time of an RPC that the client ended before an answer came.

        The latency is longer, so it can only raise the average.
        """
        if waited_s >= self._latency_s:
            self.add_latency(waited_s, now_s, config)

    def add_result(self, now_s: float, config: PeakEwmaConfig, *, is_failure: bool) -> None:
        """Add the result of an RPC to the failure rate."""
        past = exp((self._failures_s - now_s) / config.decay_time_s)
        self._failure_rate = self._failure_rate * past + (1 - past) * is_failure
        self._failures_s = now_s

    def cost(self, now_s: float, config: PeakEwmaConfig) -> float:
        """The expected latency of one more RPC, in seconds, for comparison with other endpoints."""
        rpcs, idle = self.rpcs, exp((self._active_s - now_s) / config.decay_time_s)
        if self._sampled_s == -inf:
            return UNMEASURED_COST_S * idle * rpcs
        expected_s = self._latency_s + self._failure_rate * config.failure_penalty_s
        return expected_s * idle * (rpcs + 1)
