"""Keepalive: decides when to send a PING (pure).

Specs: A8 (client-side keepalive). `client` sends the PING and owns the timer.
"""

from dataclasses import replace
from math import inf
from typing import Final

from proxyless.base.frozen import frozen

# The shortest interval that servers tolerate without DATA.
PING_INTERVAL_WITHOUT_DATA_S: Final = 60.0


@frozen(kw_only=True)
class KeepaliveConfig:
    """When to send a PING, and how long to wait for the answer."""

    # Off by default, as in grpcio.
    time_s: float = inf
    timeout_s: float = 20.0
    permit_without_calls: bool = False
    # PINGs before the interval grows while no DATA is sent; 0: no limit.
    pings_without_data_max: int = 2

    @property
    def is_enabled(self) -> bool:
        return self.time_s < inf

    def doubled(self) -> "KeepaliveConfig":
        """The config after the server complained about too many PINGs."""
        return replace(self, time_s=2 * self.time_s)


@frozen
class Activity:
    """What happened on a connection so far."""

    received_s: float
    pinged_s: float
    is_ping_unanswered: bool
    pings_without_data: int
    calls: int


@frozen
class CheckAt:
    """Decide again at this time."""

    at_s: float


@frozen
class Ping:
    """Send a PING, and decide again at this time."""

    check_at_s: float


@frozen
class GiveUp:
    """The peer does not answer: abort the connection."""


def choose_keepalive(
    config: KeepaliveConfig, now_s: float, activity: Activity
) -> CheckAt | Ping | GiveUp:
    """Decide what to do now. Any byte received since the PING counts as its answer."""
    if activity.is_ping_unanswered and activity.received_s < activity.pinged_s:
        answer_by_s = activity.pinged_s + config.timeout_s
        return GiveUp() if now_s >= answer_by_s else CheckAt(answer_by_s)
    interval_s = config.time_s
    if 0 < config.pings_without_data_max <= activity.pings_without_data:
        interval_s = max(interval_s, PING_INTERVAL_WITHOUT_DATA_S)
    due_s = max(activity.received_s + config.time_s, activity.pinged_s + interval_s)
    if now_s < due_s:
        # A call that sends DATA meanwhile must not wait for the end of a slow interval.
        return CheckAt(min(due_s, now_s + config.time_s))
    if not activity.calls and not config.permit_without_calls:
        return CheckAt(now_s + config.time_s)
    return Ping(now_s + min(config.time_s, config.timeout_s))
