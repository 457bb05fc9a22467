"""Metrics of pick_first: connection attempts and disconnections of its subchannels.

Specs: A78; A94 has replaced them by metrics of subchannels. A subchannel may be shared with other
channels, each of which counts it.
"""

from proxyless.base import State
from proxyless.metrics import Metrics
from proxyless.metrics.instruments import (
    PICK_FIRST_ATTEMPTS_FAILED,
    PICK_FIRST_ATTEMPTS_SUCCEEDED,
    PICK_FIRST_DISCONNECTIONS,
)


def record_selected(metrics: Metrics, before: State, after: State) -> None:
    """Record a change of the selected subchannel."""
    if before is State.READY and after is not State.READY:
        metrics.count(PICK_FIRST_DISCONNECTIONS, (metrics.target,))


def record_attempted(metrics: Metrics, before: State, after: State, *, is_eligible: bool) -> None:
    """Record a change of a subchannel that the policy has attempted to connect."""
    if before is not State.CONNECTING:
        return
    if after is State.TRANSIENT_FAILURE:
        metrics.count(PICK_FIRST_ATTEMPTS_FAILED, (metrics.target,))
    elif after is State.READY and is_eligible:
        metrics.count(PICK_FIRST_ATTEMPTS_SUCCEEDED, (metrics.target,))
