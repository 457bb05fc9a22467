"""Probes: which rare situations a run reached.

A probe is a name and the event that proves it. A situation that no run reaches is not tested; the
report names it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import State, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxyless.sim.journal import Journal
    from tools.simulation.records import PickRecord, RpcRecord
    from tools.simulation.scenario import Scenario

Fields = dict[str, Any]

_FALLBACK: Final = "control-2"


def _contains(field: str, *texts: str) -> Callable[[Fields], bool]:
    """Condition that the text of a field contains all of these."""
    return lambda fields: all(text in str(fields.get(field, "")) for text in texts)


def _always(_: Fields) -> bool:
    return True


# Event and condition on its fields by name.
PROBES: Final[Mapping[str, tuple[str, Callable[[Fields], bool]]]] = {
    "failover timer is waited for": ("priority.choice", _contains("reason", "timer is pending")),
    "no priority is usable": ("priority.choice", _contains("reason", "last one stands in")),
    "all priorities still connect": ("priority.choice", _contains("reason", "still CONNECTING")),
    "lower priority in use": ("priority.choice", lambda fields: fields["priority"] > 0),
    "priority child is deactivated": ("priority.child", _contains("change", "deactivated")),
    "priority child is back": ("priority.child", _contains("change", "reactivated")),
    "failover timer fired": ("priority.child", _contains("change", "timer fired")),
    "cluster is retained": ("xds_cluster_manager.child", _contains("change", "deactivated")),
    "cluster is back": ("xds_cluster_manager.child", _contains("change", "reactivated")),
    "session's subchannel kept for it": ("override_host.kept", _always),
    "session's subchannel made for it": ("override_host.created", _always),
    "session's subchannel swept at idle_timeout": ("override_host.dropped", _always),
    "resource refused": ("controlplane.nack", _always),
    "does-not-exist timer fired": ("xds.resource_timeout", _always),
    "routes held in an outage": ("xds_resolver.held", _always),
    "stream ended": ("xds.stream_ended", _always),
    "stream ended by the server": ("xds.stream_ended", _contains("status", "broken on purpose")),
    "fallback server connected": ("control.stream_opened", _contains("host", _FALLBACK)),
    "fallback server in use": ("controlplane.ack", _contains("host", _FALLBACK)),
    "load reported": ("control.load_report", _always),
    "connection reset": ("subchannel.state", _contains("reason", "reset by peer")),
    "connection refused": ("subchannel.state", _contains("reason", "refused")),
    "connection attempt timed out": (
        "subchannel.state",
        _contains("reason", "no connection within"),
    ),
    "peer went away politely": ("subchannel.state", _contains("reason", "going away")),
    "rpc out of time": ("rpc.end", _contains("code", "DEADLINE_EXCEEDED")),
    "rpc given up by its caller": ("rpc.end", _contains("code", "CANCELLED")),
    "rpc failed": ("rpc.end", _contains("code", "UNAVAILABLE")),
    "rpc dropped, its cluster is gone": ("rpc.end", _contains("details", "does not exist")),
    "rpc dropped on purpose": ("rpc.end", _contains("details", "EDS-configured drop")),
    "rpc aborted on purpose": ("rpc.end", _contains("code", "ABORTED")),
    "circuit breaker full": ("rpc.end", _contains("details", "circuit breaker drop")),
    "endpoint ejected": ("outlier_detection.ejected", _always),
    "endpoint ejected no more": ("outlier_detection.unejected", _always),
    "DNS look-up failed": ("dns.answer", _contains("endpoints", "UNAVAILABLE")),
    "stream reset in the middle of a message": ("network.cut_short", _contains("inside", "DATA")),
}


# Situations that need more than one event.
RETENTION_OVER: Final = "deactivated child destroyed after 15 minutes"
STUCK: Final = "sticky-TF over 50 rounds"
NACK_THEN_GOOD: Final = "NACK, then good"
PRIMARY_BACK: Final = "primary server back in use"
DNS_CHANGED: Final = "DNS answer changed"
SENT_AGAIN: Final = "rpc sent again"
GOAWAY_RACE: Final = "GOAWAY race: rpc sent while it was under way"
QUEUED_UNROUTED: Final = "queued pick on removed cluster"
OUTLIVED: Final = "rpc outlived the routes it was sent by"
SESSION_DRAINING: Final = "session stays on a draining endpoint"
DNS_LEAF: Final = "aggregate fell back to its DNS leaf"
NAMES: Final = (
    *PROBES,
    RETENTION_OVER,
    STUCK,
    NACK_THEN_GOOD,
    PRIMARY_BACK,
    DNS_CHANGED,
    SENT_AGAIN,
    GOAWAY_RACE,
    QUEUED_UNROUTED,
    OUTLIVED,
    SESSION_DRAINING,
    DNS_LEAF,
)

_RETENTION_S: Final = 15 * 60.0
_ROUNDS: Final = 50


class Probes:
    """Counts the situations of a run, from the events of its journal and from its records."""

    def __init__(self, journal: Journal, now_s: Callable[[], float]) -> None:
        self.hits: Counter[str] = Counter()
        self._by_event: dict[str, list[tuple[str, Callable[[Fields], bool]]]] = {}
        for name, (event, holds) in PROBES.items():
            self._by_event.setdefault(event, []).append((name, holds))
        self._history: Final = _EventHistory(self.hits, now_s)
        journal.subscribe(self._on_event)

    def _on_event(self, host: str, event: str, fields: Fields) -> None:
        for name, holds in self._by_event.get(event, ()):
            if holds({"host": host, **fields}):
                self.hits[name] += 1
        self._history.on_event(host, event, fields)

    def count_records(self, scenario: Scenario) -> None:
        """Count the situations that need the records of the whole run."""
        for rpc in scenario.recorder.rpcs.values():
            self._count_attempts(scenario, rpc)
            for pick in rpc.picks:
                self._count_pick(scenario, rpc, pick)
            if rpc.picks and rpc.ended_s is not None:
                later = (each for each in rpc.client.configs if each.at_s <= (rpc.ended_s or 0.0))
                first = rpc.config_of(rpc.picks[0]).generation
                self.hits[OUTLIVED] += any(each.generation > first for each in later)

    def _count_attempts(self, scenario: Scenario, rpc: RpcRecord) -> None:
        sent = list(rpc.attempts)
        self.hits[SENT_AGAIN] += len(sent) > 1
        for pick, over_s, _ in sent[:-1]:
            name = scenario.backend_at(pick.address)
            # GOAWAY was sent while the RPC was under way, and the RPC did not arrive.
            races = any(
                pick.at_s <= each <= over_s for each in scenario.recorder.goaways.get(name, ())
            )
            self.hits[GOAWAY_RACE] += races and name not in rpc.arrivals

    def _count_pick(self, scenario: Scenario, rpc: RpcRecord, pick: PickRecord) -> None:
        view, generation = rpc.view_of(pick), rpc.config_of(pick).generation
        is_left = pick.cluster not in scenario.generations[generation].lanes[rpc.lane]
        self.hits[QUEUED_UNROUTED] += is_left and pick.answer == "Queue"
        if pick.address:
            self.hits[SESSION_DRAINING] += pick.address in view.draining
            is_in_row = any(form.leaves for form in scenario.cluster_forms.get(pick.cluster, ()))
            is_last = view.priority_of(pick.address) == view.dns_priority
            self.hits[DNS_LEAF] += is_in_row and is_last


class _EventHistory:
    """State from earlier events, for situations that need more than one event."""

    def __init__(self, hits: Counter[str], now_s: Callable[[], float]) -> None:
        self._hits = hits
        self._now_s = now_s
        # Time of deactivation of children by host, policy and name.
        self._deactivated_s: dict[tuple[str, str, str], float] = {}
        # Consecutive failed connections by host and address.
        self._rounds: Counter[tuple[str, str]] = Counter()
        # Client and type of NACKs without a later ACK, and clients of the fallback server.
        self._nacked: set[tuple[str, str]] = set()
        self._served_by_fallback: set[str] = set()
        # Last DNS answer by host and name.
        self._answers: dict[tuple[str, str], str] = {}

    def on_event(self, host: str, event: str, fields: Fields) -> None:
        match event:
            case "subchannel.state":
                self._on_subchannel((host, str(fields["address"])), fields["state"])
            case "controlplane.nack":
                self._nacked.add((fields["nack"].node_id, fields["nack"].type_url))
            case "controlplane.ack":
                self._on_ack(host, fields["node_id"], fields["type_url"])
            case "dns.answer":
                self._on_answer((host, str(fields["host"])), fields["endpoints"])
            case _ if event.endswith(".child"):
                self._on_child((host, event, str(fields["child"])), str(fields["change"]))
            case _:
                pass

    def _on_child(self, child: tuple[str, str, str], change: str) -> None:
        if change == "deactivated":
            self._deactivated_s[child] = self._now_s()
            return
        since_s = self._deactivated_s.pop(child, None)
        if since_s is not None and change == "destroyed":
            # One second less, because times are rounded.
            self._hits[RETENTION_OVER] += self._now_s() - since_s > _RETENTION_S - 1.0

    def _on_subchannel(self, subchannel: tuple[str, str], state: State) -> None:
        """`checkers.check_stickiness` checks the states of pick_first."""
        if state is State.TRANSIENT_FAILURE:
            self._rounds[subchannel] += 1
            self._hits[STUCK] += self._rounds[subchannel] == _ROUNDS
        elif state is State.READY:
            del self._rounds[subchannel]

    def _on_ack(self, server: str, client: str, type_url: str) -> None:
        self._hits[NACK_THEN_GOOD] += (client, type_url) in self._nacked
        self._nacked.discard((client, type_url))
        if server == _FALLBACK:
            self._served_by_fallback.add(client)
        elif client in self._served_by_fallback:
            self._served_by_fallback.discard(client)
            self._hits[PRIMARY_BACK] += 1

    def _on_answer(self, question: tuple[str, str], endpoints: object) -> None:
        if not isinstance(endpoints, Status):
            answer = str(endpoints)
            self._hits[DNS_CHANGED] += self._answers.get(question, answer) != answer
            self._answers[question] = answer
