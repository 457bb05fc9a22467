"""Which rare situations did a run reach?

A probe is a name and the event that shows it. A situation that no run of many reaches is not
tested, however good the checkers are; the report names it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.sim.journal import Journal
    from proxyless.sim.scenario import Scenario

Fields = dict[str, Any]


def _says(field: str, *texts: str) -> Callable[[Fields], bool]:
    """Whether a field's text has all of these in it."""
    return lambda fields: all(text in str(fields.get(field, "")) for text in texts)


def _always(_: Fields) -> bool:
    return True


# Name → event and what its fields must say.
PROBES: Final[Mapping[str, tuple[str, Callable[[Fields], bool]]]] = {
    "failover timer is waited for": ("priority.choice", _says("reason", "timer is pending")),
    "no priority is usable": ("priority.choice", _says("reason", "last one stands in")),
    "all priorities still connect": ("priority.choice", _says("reason", "still CONNECTING")),
    "lower priority in use": ("priority.choice", lambda fields: fields["priority"] > 0),
    "priority child rests": ("priority.child", _says("change", "deactivated")),
    "priority child is back": ("priority.child", _says("change", "reactivated")),
    "failover timer fired": ("priority.child", _says("change", "timer fired")),
    "cluster is retained": ("xds_cluster_manager.child", _says("change", "deactivated")),
    "cluster is back": ("xds_cluster_manager.child", _says("change", "reactivated")),
    "session's subchannel kept for it": ("override_host.kept", _always),
    "session's subchannel made for it": ("override_host.created", _always),
    "session's subchannel swept": ("override_host.dropped", _always),
    "resource refused": ("controlplane.nack", _always),
    "resource did not come in time": ("xds.resource_timeout", _always),
    "stream ended": ("xds.stream_ended", _always),
    "stream ended by the server": ("xds.stream_ended", _says("status", "broken on purpose")),
    "fallback server asked": ("control.stream_opened", _says("host", "control-2")),
    "load reported": ("control.load_report", _always),
    "connection reset": ("subchannel.state", _says("reason", "reset by peer")),
    "connection refused": ("subchannel.state", _says("reason", "refused")),
    "connection attempt timed out": ("subchannel.state", _says("reason", "no connection within")),
    "peer went away politely": ("subchannel.state", _says("reason", "going away")),
    "rpc out of time": ("rpc.end", _says("code", "DEADLINE_EXCEEDED")),
    "rpc given up by its caller": ("rpc.end", _says("code", "CANCELLED")),
    "rpc failed": ("rpc.end", _says("code", "UNAVAILABLE")),
    "rpc dropped, its cluster is gone": ("rpc.end", _says("details", "does not exist")),
}


# What one event does not show.
RETENTION_OVER: Final = "child let go after 15 minutes"
SENT_AGAIN: Final = "rpc sent again"
QUEUED_UNROUTED: Final = "rpc queued on a cluster that routes have left"
OUTLIVED: Final = "rpc outlived the routes it was sent by"
SESSION_DRAINING: Final = "session stays on a draining endpoint"
NAMES: Final = (*PROBES, RETENTION_OVER, SENT_AGAIN, QUEUED_UNROUTED, OUTLIVED, SESSION_DRAINING)

_RETENTION_S: Final = 15 * 60.0


class Probes:
    """Counts what is reached. Driven by a journal, and in the end by what was written down."""

    def __init__(self, journal: Journal, now_s: Callable[[], float]) -> None:
        self.hits: Counter[str] = Counter()
        self._now_s = now_s
        # Since when children rest, by host, policy and name.
        self._resting_s: dict[tuple[str, str, str], float] = {}
        self._by_event: dict[str, list[tuple[str, Callable[[Fields], bool]]]] = {}
        for name, (event, holds) in PROBES.items():
            self._by_event.setdefault(event, []).append((name, holds))
        journal.subscribe(self._on_event)

    def _on_event(self, host: str, event: str, fields: Fields) -> None:
        for name, holds in self._by_event.get(event, ()):
            if holds({"host": host, **fields}):
                self.hits[name] += 1
        if event.endswith(".child"):
            self._note_child((host, event, str(fields["child"])), str(fields["change"]))

    def _note_child(self, child: tuple[str, str, str], change: str) -> None:
        if change == "deactivated":
            self._resting_s[child] = self._now_s()
            return
        since_s = self._resting_s.pop(child, None)
        if since_s is not None and change == "destroyed":
            # A little less, because times are rounded.
            self.hits[RETENTION_OVER] += self._now_s() - since_s > _RETENTION_S - 1.0

    def look_at(self, scenario: Scenario) -> None:
        """Count what only the records of the whole run show."""
        for rpc in scenario.recorder.rpcs.values():
            complete = [pick for pick in rpc.picks if pick.address]
            self.hits[SENT_AGAIN] += len(complete) > 1
            configs = rpc.client.configs
            for pick in rpc.picks:
                config = configs[pick.config]
                plan = scenario.generations[config.generation]
                is_left = pick.cluster not in plan.lanes[rpc.lane]
                self.hits[QUEUED_UNROUTED] += is_left and pick.answer == "Queue"
                is_draining = pick.address in config.cluster(pick.cluster).draining
                self.hits[SESSION_DRAINING] += bool(pick.address) and is_draining
            if rpc.picks and rpc.ended_s is not None:
                later = (each for each in configs if each.at_s <= (rpc.ended_s or 0.0))
                first = configs[rpc.picks[0].config].generation
                self.hits[OUTLIVED] += any(each.generation > first for each in later)
