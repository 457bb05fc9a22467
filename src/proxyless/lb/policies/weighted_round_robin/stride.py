"""Whose turn is it, if turns are in proportion to weights?

Specs: A58, with the static stride of its later implementations in place of EDF; WRR-05, WRR-06.

Theory of operation
    Everybody is visited in order, round after round, and at each visit credited with its stride. A
    whole STRIDE_MAX of credit is a turn. The heaviest has a stride of STRIDE_MAX, so in each round
    there is at least one turn, and with equal weights this is plain round robin. Strides are whole
    numbers and credit is never lost, so that weights of 1:2:3 are served exactly so in any six
    turns.

    One weight may be at most WEIGHT_RATIO_MAX, and at least WEIGHT_RATIO_MIN times the mean.
    That bounds how many visits a turn takes, whatever the weights and however many there are.

Knows nothing of endpoints or time: an index comes out.
"""

from collections.abc import Sequence
from typing import Final

# Divisible by every number up to 16, so that ratios of small numbers are exact.
STRIDE_MAX: Final = 720_720
# How far neighbours are out of step: a golden section, so that turns of light ones are spread.
_STEP: Final = 445_429

WEIGHT_RATIO_MAX: Final = 10.0
WEIGHT_RATIO_MIN: Final = 0.01


def choose_strides(weights: Sequence[float]) -> list[int]:
    """The strides for these weights, of which 0 means that nothing is known."""
    known = [weight for weight in weights if weight > 0]
    # "When less than two subchannels have load info, all subchannels will get the same weight" -
    # A58. One that is known is the mean, so it gets no more than the others below.
    if not known:
        return [STRIDE_MAX] * len(weights)
    # As parts of the heaviest, so that no sum is too large for a float, or too small.
    unit = max(known)
    mean = sum(weight / unit for weight in known) / len(known)
    lightest, heaviest = WEIGHT_RATIO_MIN * mean, min(WEIGHT_RATIO_MAX * mean, 1.0)

    def to_stride(part: float) -> int:
        return round(min(max(part, lightest), heaviest) / heaviest * STRIDE_MAX)

    # "Subchannels that are included with a zero weight are still picked but with the average
    # weight" - A58
    mean_stride = to_stride(mean)
    return [to_stride(weight / unit) if weight > 0 else mean_stride for weight in weights]


class StrideScheduler:
    """Says whose turn is next. Driven by picks, and by whoever knows new weights."""

    __slots__ = ("_credits", "_next", "_size", "_strides")

    def __init__(self, weights: Sequence[float], start: int) -> None:
        """Two that start at different numbers are out of step. A start is 0 or more."""
        assert weights, "somebody has to take turns"
        # Fixed at construction.
        self._size: Final = len(weights)
        # From the last weights.
        self._strides = choose_strides(weights)
        # The cursor: who is visited next, and what everybody has been credited with.
        self._next = start % self._size
        phase = start // self._size
        self._credits = [(phase + index * _STEP) % STRIDE_MAX for index in range(self._size)]

    def weigh(self, weights: Sequence[float]) -> None:
        """Go on from here with these weights, of the same number."""
        assert len(weights) == self._size, "those who take turns stay the same"
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
