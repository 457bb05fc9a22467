"""Static stride scheduler: chooses indices in proportion to weights.

Specs: A58, with the static stride of its later implementations in place of EDF; WRR-05, WRR-06.

Theory of operation
    The scheduler visits the indices cyclically, and adds its stride to the credit of each index
    that it visits. An index with a credit of STRIDE_MAX is chosen, and its credit is reduced by
    STRIDE_MAX. The largest stride is STRIDE_MAX, so that each round chooses at least one index, and
    equal weights result in plain round robin. Strides are integers and no credit is lost, so that
    weights of 1:2:3 are exact in any six consecutive choices.

    Weights are limited to between WEIGHT_RATIO_MIN and WEIGHT_RATIO_MAX times the mean, which
    bounds the number of visits per choice.
"""

from collections.abc import Sequence
from typing import Final

# Divisible by every number up to 16, so that ratios of small numbers are exact.
STRIDE_MAX: Final = 720_720
# Difference between the initial credits of neighbours: the golden section of STRIDE_MAX, so that
# the choices of indices with small weights are spread.
_STEP: Final = 445_429

WEIGHT_RATIO_MAX: Final = 10.0
WEIGHT_RATIO_MIN: Final = 0.01


def choose_strides(weights: Sequence[float]) -> list[int]:
    """Return the strides of these weights. A weight of 0 is unknown."""
    positive = [weight for weight in weights if weight > 0]
    # "When less than two subchannels have load info, all subchannels will get the same weight" -
    # A58. A single weight is the mean, so the code below also makes all equal.
    if not positive:
        return [STRIDE_MAX] * len(weights)
    # Relative to the largest weight, so that the sum does not overflow or underflow.
    unit = max(positive)
    mean = sum(weight / unit for weight in positive) / len(positive)
    lightest, heaviest = WEIGHT_RATIO_MIN * mean, min(WEIGHT_RATIO_MAX * mean, 1.0)

    def to_stride(weight: float) -> int:
        return round(min(max(weight, lightest), heaviest) / heaviest * STRIDE_MAX)

    # "Subchannels that are included with a zero weight are still picked but with the average
    # weight" - A58
    mean_stride = to_stride(mean)
    return [to_stride(weight / unit) if weight > 0 else mean_stride for weight in weights]


class StrideScheduler:
    """Chooses an index for each pick."""

    __slots__ = ("_credits", "_next", "_size", "_strides")

    def __init__(self, weights: Sequence[float], start: int) -> None:
        """Create a scheduler with a start of 0 or more, which should differ between clients."""
        assert weights, "there is at least one index to choose"
        # Fixed at construction.
        self._size: Final = len(weights)
        # From the last weights.
        self._strides = choose_strides(weights)
        # The index that is visited next, and the credits.
        self._next = start % self._size
        phase = start // self._size
        self._credits = [(phase + index * _STEP) % STRIDE_MAX for index in range(self._size)]

    def set_weights(self, weights: Sequence[float]) -> None:
        """Continue with these weights, which must be as many as before."""
        assert len(weights) == self._size, "the number of indices is fixed"
        self._strides = choose_strides(weights)

    def next_index(self) -> int:
        strides, credit_of, size = self._strides, self._credits, self._size
        index = self._next
        while True:
            current = index
            index = current + 1
            if index == size:
                index = 0
            credit = credit_of[current] + strides[current]
            if credit >= STRIDE_MAX:
                credit_of[current] = credit - STRIDE_MAX
                self._next = index
                return current
            credit_of[current] = credit
