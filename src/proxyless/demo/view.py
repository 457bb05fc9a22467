"""What is shown at one moment?

One frozen value, made by pure functions from what was recorded. The terminal, the page and the log
render it and know nothing else, so they cannot disagree.
"""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from proxyless.base.frozen import frozen
from proxyless.controlplane import CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG
from proxyless.demo.mesh import PLACES
from proxyless.lb.retained_child import NOT_LISTED
from proxyless.xds.client.api import ResourceStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from proxyless.demo.mesh import Plan
    from proxyless.demo.story import Step, StepLog
    from proxyless.demo.traffic import Record
    from proxyless.demo.verdict import Verdict
    from proxyless.lb import LbNode
    from proxyless.xds.client.api import ResourceDump

# Of the history, half a second each.
COLUMNS: Final = 60

# Seconds have one decimal place.
_AT_ONCE_S: Final = 0.05

WAITING, RUNNING, SEEN, MISSED = "waiting", "running", "seen", "missed"

_TYPES: Final = {LISTENER: "LDS", ROUTE_CONFIG: "RDS", CLUSTER: "CDS", ENDPOINTS: "EDS"}
_LOCALITY: Final = re.compile(r"\{region=[^,]*, zone=(?P<zone>[^,]*), sub_zone=[^}]*\}")
# How the children of a cluster's priorities are named.
_NUMBERED: Final = "child_number="
# How notes begin that say what can be seen, or what never changes here.
_SAID: Final = ("uses priority ", "weight ", "node id ")
_ADDRESS: Final = re.compile(r"^\d+(\.\d+){3}:\d+: ")


@frozen
class TreeRow:
    """One line of the LB tree: a policy with those that it merely passes things on to."""

    depth: int
    label: str
    policies: tuple[str, ...]
    # Empty if there is nothing yet that could be in one.
    state: str
    note: str
    # Whether RPCs may pass here.
    is_active: bool = False


@frozen
class BackendView:
    """One backend, and what it answers."""

    name: str
    zone: str
    cluster: str
    address: str
    is_running: bool
    # None if it is in no priority.
    priority: int | None
    # RPCs per second: now, and before.
    rate: float
    history: tuple[float, ...]


@frozen
class SessionView:
    """Where the session lives."""

    backend: str
    address: str
    cluster: str
    rpcs: int
    # How often it has been on another backend than before, and when that was last.
    moves: int
    since_s: float


@frozen
class HeldType:
    """What the client holds of one type."""

    type: str
    version: str
    # Resources that it has asked for and does not have.
    missing: tuple[str, ...] = ()


@frozen
class GenerationView:
    """What is served, what the client has of it, and what RPCs run on."""

    served: str
    is_served: bool
    held: tuple[HeldType, ...]
    cluster: str


@frozen
class StepView:
    """One step of the story."""

    title: str
    wanted: str
    state: str
    # How long it took until it was seen, or what was there instead.
    note: str = ""


@frozen
class RowView:
    """One row of the verdict."""

    name: str
    value: str
    is_good: bool


@frozen
class View:
    """All that is shown."""

    elapsed_s: float
    rate: float
    sent: int
    # Those that failed because their backend was killed under them, and the others.
    lost: int
    failed: int
    tree: tuple[TreeRow, ...]
    backends: tuple[BackendView, ...]
    session: SessionView
    generation: GenerationView
    steps: tuple[StepView, ...]
    # Empty until the end.
    verdict: tuple[RowView, ...] = ()
    is_good: bool = False

    def to_json(self) -> dict[str, Any]:
        """As the page reads it."""
        return asdict(self)


# The tree


def view_tree(
    root: LbNode | None, names: Mapping[str, str], session: str = ""
) -> tuple[TreeRow, ...]:
    """The tree as lines; names are those of addresses, the session is at a line with its label.

    A policy whose only child has no name of its own is one line with that child. What is not in
    the config any more is one line: it waits for its end.
    """
    if root is None:
        return ()
    rows = _rows(root, _Place(0, _label(root, names), is_active=True), names)
    return tuple(_with_session(row) if row.label == session else row for row in rows)


def _with_session(row: TreeRow) -> TreeRow:
    return replace(row, note="; ".join(filter(None, (row.note, "the session is here"))))


@frozen
class _Place:
    """What those above know about a line."""

    depth: int
    label: str
    is_active: bool


def _rows(node: LbNode, place: _Place, names: Mapping[str, str]) -> Iterable[TreeRow]:
    chain = [node]
    while len(chain[-1].children) == 1 and chain[-1].children[0].name in ("", chain[-1].name):
        chain.append(chain[-1].children[0])
    policies = tuple(_short(each.policy) for each in chain if each.policy)
    if policies[:1] == (place.label,):
        policies = policies[1:]
    yield TreeRow(place.depth, place.label, policies, node.state, _note(node), place.is_active)
    last = chain[-1]
    number = 0
    for child in last.children if NOT_LISTED not in node.detail else ():
        label = _label(child, names)
        if _NUMBERED in child.name and NOT_LISTED not in child.detail:
            label, number = f"priority {number}", number + 1
        below = _Place(place.depth + 1, label, is_active=place.is_active and child.in_use)
        yield from _rows(child, below, names)


def _label(node: LbNode, names: Mapping[str, str]) -> str:
    if found := _LOCALITY.fullmatch(node.name):
        return f"zone {found['zone']}" if found["zone"] else "no zone"
    if _NUMBERED in node.name:
        return "an old priority"
    plain = node.name.removeprefix("cluster:") or _short(node.policy)
    return f"{names[plain]} {plain}" if names.get(plain) else plain


def _short(policy: str) -> str:
    return policy.removeprefix("xds_").removesuffix("_experimental")


def _note(node: LbNode) -> str:
    """What is to be said of the line: the innermost cause of a failure, or what it waits for."""
    if node.state == "TRANSIENT_FAILURE":
        cause = (node.problem or node.detail).rpartition("last error: ")[2]
        # Which address that was is said by the lines below.
        return _ADDRESS.sub("", cause.partition(" (node id")[0])
    notes = node.detail.split("; ")
    return "; ".join(note for note in notes if not note.startswith(_SAID))


# The other parts


def view_backends(
    record: Record, plan: Plan, running: Collection[str], now_s: float
) -> tuple[BackendView, ...]:
    """Each backend with what it answered."""
    views = []
    for place in PLACES:
        history = record.rates(place.name, now_s, COLUMNS)
        is_prioritized = place.zone in ("a", "b")
        views.append(
            BackendView(
                name=place.name,
                zone=place.zone,
                cluster=place.cluster,
                address=plan.address_of(place),
                is_running=place.name in running,
                priority=plan.priority_of(place) if is_prioritized else None,
                rate=sum(history[-2:]) / 2,
                history=history,
            )
        )
    return tuple(views)


def view_session(record: Record, plan: Plan, cluster: str) -> SessionView:
    """From the answers that the session got."""
    backend, moves, since_s, rpcs = "", 0, 0.0, 0
    for rpc in record.session:
        rpcs += 1
        if rpc.backend != backend:
            moves += bool(backend)
            backend, since_s = rpc.backend, rpc.ended_s
    place = next((place for place in PLACES if place.name == backend), None)
    address = plan.address_of(place) if place is not None else ""
    return SessionView(backend, address, cluster, rpcs, moves, since_s)


def view_held(dumps: Iterable[ResourceDump]) -> tuple[HeldType, ...]:
    """By type, in the order in which they are asked for; the newest version of each."""
    by_type: dict[str, list[ResourceDump]] = {type_url: [] for type_url in _TYPES}
    for dump in dumps:
        by_type.setdefault(dump.type_url, []).append(dump)
    held = []
    for type_url, found in by_type.items():
        versions = [dump.version for dump in found if dump.version]
        missing = [dump.name for dump in found if dump.status is not ResourceStatus.ACKED]
        newest = max(versions, key=lambda text: (len(text), text), default="")
        held.append(HeldType(_TYPES.get(type_url, type_url), newest, tuple(missing)))
    return tuple(held)


def view_steps(story: Sequence[Step], logs: Sequence[StepLog]) -> tuple[StepView, ...]:
    """Those that were reached, and those to come."""
    by_key = {log.key: log for log in logs}
    return tuple(_view_step(step, by_key.get(step.key)) for step in story)


def _view_step(step: Step, log: StepLog | None) -> StepView:
    if log is None:
        return StepView(step.title, step.wanted, WAITING)
    if log.got:
        return StepView(step.title, step.wanted, MISSED, log.got)
    if log.seen_s is None:
        return StepView(step.title, step.wanted, RUNNING)
    took_s = log.seen_s - log.started_s
    note = f"{took_s:.1f} s" if took_s >= _AT_ONCE_S else "at once"
    return StepView(step.title, step.wanted, SEEN if log.ended_s is not None else RUNNING, note)


def view_verdict(verdict: Verdict) -> tuple[RowView, ...]:
    return tuple(RowView(row.name, row.value, row.is_good) for row in verdict.rows)
