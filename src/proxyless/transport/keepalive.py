"""Is the peer still there?

Specs: A8 (client-side keepalive).

The decision is a pure function of times; `client` sends the PING and owns the timer.
"""

from dataclasses import replace
from math import inf
from typing import Final

from proxyless.base.frozen import frozen

# "The client may not send PINGs more often": what servers tolerate without calls under way.
PING_INTERVAL_WITHOUT_DATA_S: Final = 60.0


@frozen(kw_only=True)
class KeepaliveConfig:
    """When to ask, and how long to wait for the answer."""

    # Off by default, as in grpcio.
    time_s: float = inf
    timeout_s: float = 20.0
    permit_without_calls: bool = False
    # PINGs sent before we slow down, while we send no DATA; 0 means no limit.
    pings_without_data_max: int = 2

    @property
    def is_enabled(self) -> bool:
        return self.time_s < inf

    def doubled(self) -> "KeepaliveConfig":
        """For the next connection, after the server complained of too many PINGs."""
        return replace(self, time_s=2 * self.time_s)


@frozen
class Activity:
    """What the decision may know about the connection."""

    heard_s: float
    pinged_s: float
    is_ping_unanswered: bool
    pings_without_data: int
    calls: int


@frozen
class Look:
    """Nothing to do before this time."""

    at_s: float


@frozen
class Ping:
    """Send a PING and look again at this time: its answer, or the next PING, may be due then."""

    look_at_s: float


@frozen
class GiveUp:
    """The peer does not answer: the connection is dead."""


def choose_keepalive(config: KeepaliveConfig, now_s: float, seen: Activity) -> Look | Ping | GiveUp:
    """What to do now. Any byte heard since the PING counts as its answer."""
    if seen.is_ping_unanswered and seen.heard_s < seen.pinged_s:
        answer_by_s = seen.pinged_s + config.timeout_s
        return GiveUp() if now_s >= answer_by_s else Look(answer_by_s)
    interval_s = config.time_s
    if 0 < config.pings_without_data_max <= seen.pings_without_data:
        interval_s = max(interval_s, PING_INTERVAL_WITHOUT_DATA_S)
    due_s = max(seen.heard_s + config.time_s, seen.pinged_s + interval_s)
    if now_s < due_s:
        # A call that sends DATA meanwhile must not wait for the end of a slow interval.
        return Look(min(due_s, now_s + config.time_s))
    if not seen.calls and not config.permit_without_calls:
        return Look(now_s + config.time_s)
    return Ping(now_s + min(config.time_s, config.timeout_s))
