"""View: all values that the demo shows at one moment, computed from its records.

The terminal, the page and the log render a view and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from proxyless.base.frozen import frozen
from proxyless.controlplane import CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG
from proxyless.demo.mesh import EDS, PLACES
from proxyless.lb.retained_child import NOT_LISTED
from proxyless.xds.client.api import ResourceStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from proxyless.demo.mesh import Plan
    from proxyless.demo.story import Step, StepLog
    from proxyless.demo.traffic import Record
    from proxyless.demo.verdict import Row
    from proxyless.lb import LbNode
    from proxyless.xds.client.api import ResourceDump

# Columns of the history, half a second each.
COLUMNS: Final = 60

# Shorter times would be shown as 0.0 s.
_AT_ONCE_S: Final = 0.05

WAITING, RUNNING, SEEN, MISSED = "waiting", "running", "seen", "missed"

_TYPES: Final = {LISTENER: "LDS", ROUTE_CONFIG: "RDS", CLUSTER: "CDS", ENDPOINTS: "EDS"}
_LOCALITY: Final = re.compile(r"\{region=[^,]*, zone=(?P<zone>[^,]*), sub_zone=[^}]*\}")
# Part of the names of the children of a priority policy.
_NUMBERED: Final = "child_number="
# Prefixes of notes that are left out: the tree shows the same, or they never change.
_REDUNDANT: Final = ("uses priority ", "weight ", "node id ")
_ADDRESS: Final = re.compile(r"^\d+(\.\d+){3}:\d+: ")


@frozen
class TreeRow:
    """One line of the LB tree: a policy, and the chain of its only children."""

    depth: int
    label: str
    policies: tuple[str, ...]
    # Empty if the policy has not been created.
    state: str
    note: str
    # Whether picks may use it.
    is_active: bool = False


@frozen
class BackendView:
    """One backend and its RPC rate."""

    name: str
    zone: str
    cluster: str
    address: str
    is_running: bool
    # None if it is in no priority.
    priority: int | None
    rate: float
    history: tuple[float, ...]


@frozen
class SessionView:
    """Endpoint of the session."""

    backend: str
    address: str
    cluster: str
    rpcs: int
    # Number of changes of the backend, and the seconds since the last one.
    moves: int
    there_s: float


@frozen
class HeldType:
    """Resources of one type that the client holds."""

    type: str
    version: str
    # Resources that were requested and have not arrived.
    missing: tuple[str, ...] = ()


@frozen
class GenerationView:
    """Generation that is served, the versions that the client holds, and the cluster in use."""

    served: str
    is_served: bool
    held: tuple[HeldType, ...]
    cluster: str


@frozen
class StepView:
    """One step of the story."""

    title: str
    expected: str
    state: str
    # Time until the check held, or what was observed instead.
    note: str = ""


@frozen
class View:
    """All values of one moment."""

    elapsed_s: float
    rate: float
    sent: int
    # RPCs that failed because their backend was killed, and other failures.
    lost: int
    failed: int
    tree: tuple[TreeRow, ...]
    backends: tuple[BackendView, ...]
    session: SessionView
    generation: GenerationView
    steps: tuple[StepView, ...]
    # Empty until the end.
    verdict: tuple[Row, ...] = ()
    is_good: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def view_tree(
    root: LbNode | None, names: Mapping[str, str], session: str = ""
) -> tuple[TreeRow, ...]:
    """The tree as lines. `names` are those of backends by address, `session` is a label.

    A policy whose only child has no name of its own shares one line with that child. A child that
    is no longer in the config is one line.
    """
    if root is None:
        return ()
    rows = list(_rows(root, _Line(0, _label(root, names), is_active=True), names))
    for index, row in enumerate(rows):
        if row.label == session:
            note = "; ".join(filter(None, (row.note, "the session is here")))
            rows[index] = replace(row, note=note)
    return tuple(rows)


@frozen
class _Line:
    """Properties of a line that depend on its parents."""

    depth: int
    label: str
    is_active: bool


def _rows(node: LbNode, line: _Line, names: Mapping[str, str]) -> Iterable[TreeRow]:
    chain = [node]
    while len(chain[-1].children) == 1 and chain[-1].children[0].name in ("", chain[-1].name):
        chain.append(chain[-1].children[0])
    policies = tuple(_short(each.policy) for each in chain if each.policy)
    if policies[:1] == (line.label,):
        policies = policies[1:]
    yield TreeRow(line.depth, line.label, policies, node.state, _note(node), line.is_active)
    last = chain[-1]
    number = 0
    for child in last.children if NOT_LISTED not in node.detail else ():
        label = _label(child, names)
        if _NUMBERED in child.name and NOT_LISTED not in child.detail:
            label, number = f"priority {number}", number + 1
        below = _Line(line.depth + 1, label, is_active=line.is_active and child.in_use)
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
    """The innermost cause of a failure, or the notes of the policy."""
    if node.state == "TRANSIENT_FAILURE":
        cause = (node.problem or node.detail).rpartition("last error: ")[2]
        # The lines below show the address.
        return _ADDRESS.sub("", cause.partition(" (node id")[0])
    notes = node.detail.split("; ")
    return "; ".join(note for note in notes if not note.startswith(_REDUNDANT))


def view_backends(
    record: Record, plan: Plan, running: Collection[str], now_s: float
) -> tuple[BackendView, ...]:
    views = []
    for place in PLACES:
        history = record.rates(place.name, now_s, COLUMNS)
        views.append(
            BackendView(
                name=place.name,
                zone=place.zone,
                cluster=place.cluster,
                address=plan.address_of(place),
                is_running=place.name in running,
                priority=plan.priority_of(place) if place.cluster == EDS else None,
                rate=sum(history[-2:]) / 2,
                history=history,
            )
        )
    return tuple(views)


def view_session(record: Record, plan: Plan, cluster: str, now_s: float) -> SessionView:
    backend, moves, since_s = "", 0, now_s
    for rpc in record.session:
        if rpc.backend != backend:
            moves += bool(backend)
            backend, since_s = rpc.backend, rpc.ended_s
    place = next((place for place in PLACES if place.name == backend), None)
    address = plan.address_of(place) if place is not None else ""
    return SessionView(backend, address, cluster, len(record.session), moves, now_s - since_s)


def view_held(dumps: Iterable[ResourceDump]) -> tuple[HeldType, ...]:
    """Held resources by type, in the order of ADS, with the newest version of each type."""
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
    by_key = {log.key: log for log in logs}
    return tuple(_view_step(step, by_key.get(step.key)) for step in story)


def _view_step(step: Step, log: StepLog | None) -> StepView:
    if log is None:
        return StepView(step.title, step.expected, WAITING)
    if log.got:
        return StepView(step.title, step.expected, MISSED, log.got)
    if log.seen_s is None:
        return StepView(step.title, step.expected, RUNNING)
    took_s = log.seen_s - log.started_s
    note = f"{took_s:.1f} s" if took_s >= _AT_ONCE_S else "at once"
    return StepView(step.title, step.expected, SEEN if log.ended_s is not None else RUNNING, note)
