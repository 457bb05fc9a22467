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

Fields = dict[str, Any]


def _says(field: str, *texts: str) -> Callable[[Fields], bool]:
    """Whether a field's text has all of these in it."""
    return lambda fields: all(text in str(fields.get(field, "")) for text in texts)


def _always(_: Fields) -> bool:
    return True


# Name → event and what its fields must say.
PROBES: Final[Mapping[str, tuple[str, Callable[[Fields], bool]]]] = {
    "failover timer is waited for": ("priority.choice", _says("reason", "timer is pending")),
    "lower priority in use": ("priority.choice", lambda fields: fields["priority"] > 0),
    "priority child rests": ("priority.child", _says("change", "deactivated")),
    "priority child is back": ("priority.child", _says("change", "reactivated")),
    "cluster is retained": ("xds_cluster_manager.child", _says("change", "deactivated")),
    "cluster is back": ("xds_cluster_manager.child", _says("change", "reactivated")),
    "session's subchannel kept for it": ("override_host.kept", _always),
    "session's subchannel made for it": ("override_host.created", _always),
    "session's subchannel swept": ("override_host.dropped", _always),
    "resource refused": ("controlplane.nack", _always),
    "stream ended": ("xds.stream_ended", _always),
    "stream ended by the server": ("xds.stream_ended", _says("status", "broken on purpose")),
    "fallback server asked": ("control.stream_opened", _says("host", "control-2")),
    "connection reset": ("subchannel.state", _says("reason", "reset by peer")),
    "connection refused": ("subchannel.state", _says("reason", "refused")),
    "connection attempt timed out": ("subchannel.state", _says("reason", "no connection within")),
    "peer went away politely": ("subchannel.state", _says("reason", "going away")),
    "rpc out of time": ("rpc.end", _says("code", "DEADLINE_EXCEEDED")),
    "rpc given up by its caller": ("rpc.end", _says("code", "CANCELLED")),
    "rpc failed": ("rpc.end", _says("code", "UNAVAILABLE")),
    "rpc dropped, its cluster is gone": ("rpc.end", _says("details", "does not exist")),
}


class Probes:
    """Counts what is reached. Driven by a journal."""

    def __init__(self, journal: Journal) -> None:
        self.hits: Counter[str] = Counter()
        self._by_event: dict[str, list[tuple[str, Callable[[Fields], bool]]]] = {}
        for name, (event, holds) in PROBES.items():
            self._by_event.setdefault(event, []).append((name, holds))
        journal.subscribe(self._on_event)

    def _on_event(self, host: str, event: str, fields: Fields) -> None:
        for name, holds in self._by_event.get(event, ()):
            if holds({"host": host, **fields}):
                self.hits[name] += 1
