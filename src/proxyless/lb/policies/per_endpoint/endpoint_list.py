"""List of pick_first children, one per endpoint.

Specs: A61, RR-01, RR-02, RR-05, RR-08, RR-09.

An endpoint is identified by its set of addresses: an endpoint that stays in the list keeps its
child and connection, whatever else changes. The cost of an update is that of its changes.

Theory of operation, if an update removes all READY endpoints
    Those endpoints are retained: they stay in `ready` and take RPCs while the new ones connect.
    They are released together when a listed endpoint is READY, when all listed ones have failed, or
    after `REMOVED_RETENTION_S` (D45), and individually when they are not READY any more. While
    endpoints are retained no listed one is READY, so a further update retains no others.
    Lazy children (ring_hash) are never retained.

Children are started, connected and closed in slices (`runtime.work_queue`). A child that has not
been started counts as CONNECTING.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice, takewhile
from operator import eq
from typing import Any, ClassVar, Final, Generic, TypeVar

from proxyless.base import EMPTY_ATTRIBUTES, Address, Attributes, Endpoint, State
from proxyless.lb.aggregate import StateCounts, sticky_state
from proxyless.lb.api import Complete, Context, Helper, Picker, Policy, Subchannel, Update
from proxyless.lb.attributes import HEALTH_WATCH, IS_LISTED_AGAIN
from proxyless.lb.description import (
    LbNode,
    as_child,
    describe_policy,
    endpoint_name,
    format_time_left,
    join_notes,
)
from proxyless.lb.pickers import QUEUE_PICKER, SubchannelPicker
from proxyless.lb.policies.pick_first import PickFirstConfig, PickFirstPolicy
from proxyless.lb.policies.pick_first.config import CONNECTION_ATTEMPT_DELAY
from proxyless.runtime import IDLE_TIMER, SoonQueue
from proxyless.runtime.work_queue import UNITS_PER_TURN

# The time that removed endpoints take RPCs while the new ones connect. Longer than a connection
# attempt (20 s), so that it normally ends because a new endpoint is READY or all failed (D45).
REMOVED_RETENTION_S: Final = 30.0

# Units of `runtime.work_queue`, without those of the connection.
START_UNITS: Final = 150
CLOSE_UNITS: Final = 30
# While many are to be started and few are READY, one is started in a turn: the first connection,
# which RPCs wait for, and their answers take several turns.
FIRST_UNITS: Final = UNITS_PER_TURN
MANY_STARTING: Final = 50
FEW_READY: Final = 10

_REMOVED_NOTE: Final = "removed, takes RPCs until a listed endpoint is READY"

_CHILD_CONFIG: Final = PickFirstConfig()
_WITH_HEALTH_WATCH: Final = EMPTY_ATTRIBUTES.with_(HEALTH_WATCH, True)
_CHILD_KIND: Final = "pick_first"


class EndpointChild:
    """One endpoint, its pick_first policy, and the helper of that policy."""

    # A lazy child creates its policy when it is first connected. Others connect at once, and again
    # whenever they are IDLE.
    is_lazy: ClassVar[bool] = False

    __slots__ = (
        "_list",
        "context",
        "endpoint",
        "is_closed",
        "key",
        "picker",
        "policy",
        "state",
        "times_listed",
    )

    # The addresses of the endpoint. Set by the list.
    key: frozenset[Address]

    def __init__(self, endpoints: "EndpointList[Any]", endpoint: Endpoint) -> None:
        self._list = endpoints
        # Copied: each access through the list would be a call.
        self.context: Final[Context] = endpoints.helper.context
        self.set_endpoint(endpoint)
        self.policy: Policy | None = None
        self.times_listed = 0
        self.is_closed = False
        # From the last report that was not ignored; TRANSIENT_FAILURE is sticky.
        self.state: State = endpoints.initial_state
        self.picker: Picker = QUEUE_PICKER

    def set_endpoint(self, endpoint: Endpoint) -> None:
        """Called by the list; the addresses are the same, the attributes may differ."""
        self.endpoint = endpoint

    def create_policy(self) -> Policy:
        return PickFirstPolicy(self)

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        return self._list.helper.create_subchannel(address, attributes)

    def update_state(self, state: State, picker: Picker) -> None:
        if not self.is_closed:
            self._list.on_child_report(self, state, picker)

    def request_reresolution(self) -> None:
        self._list.helper.request_reresolution()

    @property
    def result(self) -> Complete:
        """The result of picks of this endpoint, which is READY."""
        picker = self.picker
        assert isinstance(picker, SubchannelPicker), "a pick_first that is READY has one subchannel"
        return picker.result

    def describe(self, note: str) -> LbNode:
        name = endpoint_name(self.endpoint.addresses)
        if self.policy is None:
            return LbNode(name, _CHILD_KIND, self.state.name, note or "not needed so far")
        node = describe_policy(self.policy, _CHILD_KIND)
        return as_child(node, name, state=self.state, failure=self.picker.status, note=note)


C = TypeVar("C", bound=EndpointChild)


class EndpointList(Generic[C]):
    """Owns the children of one policy.

    Calls `on_report` with the child and its previous state, even inside `update`: then the policy
    should defer its own report.
    """

    def __init__(
        self, helper: Helper, child_type: type[C], on_report: Callable[[C, State], None]
    ) -> None:
        # Fixed at construction.
        self.helper = helper
        self._child_type = child_type
        # The state of a child that has not been started.
        self.initial_state: Final = State.IDLE if child_type.is_lazy else State.CONNECTING
        self._on_report = on_report
        # From the last update: endpoints, and their children at the same indices. Duplicated
        # endpoints have the same child.
        self._endpoints: Sequence[Endpoint] = ()
        self.listed: list[C] = []
        # Attributes of the children's updates.
        self._attributes = EMPTY_ATTRIBUTES
        self._children: dict[frozenset[Address], C] = {}
        # Derived from the children's reports: counts, and pick results of the READY children.
        self.counts = StateCounts()
        self.ready: dict[C, Complete] = {}
        # Incremented with each change of `ready`.
        self.ready_version = 0
        # The child that failed last, if it is still failing.
        self._last_failed: C | None = None
        # Removed endpoints that still take RPCs, all READY; the timer runs while there are some.
        self._retained: dict[frozenset[Address], C] = {}
        self._retention_timer = IDLE_TIMER
        # Children to close and to connect after the current call.
        self._to_close: list[C] = []
        self._to_connect = SoonQueue[C](helper.context.clock, self._close_and_connect)
        # Children to start, to connect and to close in slices; some may be closed by now.
        self._work: Final = helper.context.work
        self._starting: deque[C] = deque()
        self._connecting: deque[C] = deque()
        self._closing: deque[Policy] = deque()

    @property
    def children(self) -> Collection[C]:
        return self._children.values()

    @property
    def retained(self) -> Collection[C]:
        """Removed endpoints that still take RPCs. They are also in `ready`."""
        return self._retained.values()

    def find_last_error(self) -> str:
        """Return the newest error of the failing children. There must be one."""
        failed = self._last_failed
        if failed is None:
            failing = State.TRANSIENT_FAILURE
            failed = next(each for each in self._children.values() if each.state is failing)
        return failed.picker.status.details

    def update(self, endpoints: Sequence[Endpoint], attributes: Attributes) -> None:
        """Create and remove children to match the endpoints. Of duplicates, the first is used."""
        to_start, changed, removed = self._diff(endpoints)
        removed += self._retained.values()
        # Emptied, so that no report releases them before `_retain_or_close`.
        self._retained = {}
        try:
            self._update_children(to_start, changed, _child_attributes(attributes))
        finally:
            # After the updates, so that connections that new children share stay open.
            self._retain_or_close(removed)
            if attributes.get(IS_LISTED_AGAIN):
                self._release_retained()

    def _update_children(self, to_start: list[C], changed: list[C], attributes: Attributes) -> None:
        if attributes is not self._attributes and attributes != self._attributes:
            self._attributes = attributes
            changed = list(self._children.values())
        for child in changed:
            if child.policy is not None:
                self._update_child(child, child.policy)
        if not self._child_type.is_lazy and to_start:
            self._starting += _rotate(to_start, self.helper.context.random.randrange)
            self._work.run(self, START_UNITS)

    def step(self) -> bool:
        """Start, connect or close one child. Called by the work queue."""
        if self._starting:
            child = self._starting.popleft()
            if not child.is_closed:
                self._start(child)
            is_many = len(self._starting) > MANY_STARTING
            if is_many and self.counts[State.READY] < FEW_READY:
                self._work.charge(FIRST_UNITS)
        elif self._connecting:
            child = self._connecting.popleft()
            if not child.is_closed:
                self.connect(child)
        else:
            # Last, so that connections that new children share stay open.
            self._closing.popleft().close()
        return bool(self._starting or self._connecting or self._closing)

    def connect(self, child: C) -> None:
        """Connect the child now. It may report inside this call."""
        if child.is_closed:
            return
        if child.policy is None:
            self._start(child)
        else:
            child.policy.exit_idle()

    def connect_soon(self, child: C) -> None:
        """Connect the child after the current call. Pickers may call this."""
        if not child.is_closed:  # An old picker may hold a closed child.
            self._to_connect.add(child)

    def describe(self, note_of: Callable[[C], str]) -> tuple[LbNode, ...]:
        """Describe the endpoints with the policy's notes, then the retained ones."""
        listed = [child.describe(note_of(child)) for child in self._children.values()]
        retained = [
            child.describe(join_notes(_REMOVED_NOTE, note_of(child))) for child in self.retained
        ]
        return (*listed, *retained)

    def describe_ready(self) -> str:
        retained = len(self._retained)
        text = f"{len(self.ready) - retained} of {len(self._children)} endpoints are READY"
        if not retained:
            return text
        left = format_time_left(self._retention_timer, self.helper.context.clock.now_s())
        return f"{text}; {retained} removed, in use for {left} at most"

    def exit_idle(self) -> None:
        for child in self._children.values():
            # A child without a policy connects when it is started.
            if child.policy is not None:
                child.policy.exit_idle()

    def reset_backoff(self) -> None:
        for child in self._children.values():
            if child.policy is not None:
                child.policy.reset_backoff()

    def close(self) -> None:
        self._to_connect.cancel()
        self._work.cancel(self)
        self._close_dropped()
        self._retention_timer.cancel()
        for child in (*self._retained.values(), *self._children.values()):
            self._discard_and_close(child)
        self._children, self._retained = {}, {}
        self._starting.clear()
        self._connecting.clear()
        if self._closing:
            self._work.run(self, CLOSE_UNITS)

    def on_child_report(self, child: C, state: State, picker: Picker) -> None:
        """Called by a child. The report of a failing child that connects again is ignored."""
        before = child.state
        if before is state is State.CONNECTING:
            # The first report of each child: it has been CONNECTING since it was created.
            return
        if self._retained and state is not State.READY and self._is_retained(child):
            self._drop_retained(child)
            child.state, child.picker = state, picker
            self._on_report(child, before)
            return
        if state is State.IDLE and not child.is_lazy:
            self.connect_soon(child)
        if sticky_state(before, state) is not state:
            return
        child.state, child.picker = state, picker
        self.counts.move(before, state)
        if state is State.TRANSIENT_FAILURE:
            self._last_failed = child
        elif child is self._last_failed:
            self._last_failed = None
        if state is State.READY:
            assert isinstance(picker, SubchannelPicker), "a READY pick_first has one subchannel"
            self.ready[child] = picker.result
            self.ready_version += 1
        elif before is State.READY:
            self._discard_ready(child)
        if self._retained and not self._needs_retained():
            self._release_retained()
        self._on_report(child, before)

    def _diff(self, endpoints: Sequence[Endpoint]) -> tuple[list[C], list[C], list[C]]:
        """Apply the list, and return the new, changed and removed children. Calls none of them."""
        had_duplicates = len(self._children) < len(self.listed)
        start, end = _find_changed_part(self._endpoints, endpoints)
        before = self.listed[start : len(self.listed) - end]
        part = endpoints[start : len(endpoints) - end]
        to_start: list[C] = []
        created: list[C] = []
        after = [self._find_or_add(each, to_start, created) for each in part]
        if created:
            # All of them have the same state.
            self.counts[created[0].state] += len(created)
        for child in before:
            child.times_listed -= 1
        for child in after:
            child.times_listed += 1
        removed = {child: None for child in before if not child.times_listed}
        for child in removed:
            del self._children[child.key]
        self._endpoints = endpoints
        self.listed[start : len(self.listed) - end] = after
        # Which of several duplicates is the first depends on the whole list.
        checks_all = had_duplicates or len(self._children) < len(self.listed)
        if not checks_all and len(created) == len(after):
            # All are new, and have their endpoints.
            return to_start, [], list(removed)
        children, compared = (self.listed, endpoints) if checks_all else (after, part)
        return to_start, _set_first_endpoints(zip(children, compared, strict=True)), list(removed)

    def _find_or_add(self, endpoint: Endpoint, to_start: list[C], created: list[C]) -> C:
        key = frozenset(endpoint.addresses)
        child = self._children.get(key)
        if child is not None:
            return child
        child = self._retained.pop(key, None) if self._retained else None
        if child is None:
            child = self._child_type(self, endpoint)
            child.key = key
            created.append(child)
        self._children[key] = child
        to_start.append(child)
        return child

    def _start(self, child: C) -> None:
        # A retained child already has a policy, which may have missed an update.
        if child.policy is None:
            child.policy = child.create_policy()
        self._update_child(child, child.policy)

    def _update_child(self, child: C, policy: Policy) -> None:
        policy.update(Update((child.endpoint,), _CHILD_CONFIG, self._attributes))

    def _retain_or_close(self, removed: Iterable[C]) -> None:
        """Retain the READY children if they are needed, and close the others."""
        not_started = 0
        for child in removed:
            if child.policy is None:
                child.is_closed = True
                not_started += 1
            elif child.state is State.READY and not child.is_lazy:
                self._retained[child.key] = child
            else:
                self._discard_and_close(child)
        # They still have the state in which they were created.
        self.counts[self.initial_state] -= not_started
        if self._closing:
            self._work.run(self, CLOSE_UNITS)
        if not self._needs_retained():
            if self._retained or self._retention_timer.pending:
                self._release_retained()
        elif not self._retention_timer.pending:
            clock = self.helper.context.clock
            self._retention_timer = clock.call_later(REMOVED_RETENTION_S, self._on_retention_over)

    def _needs_retained(self) -> bool:
        """Whether children are retained, no listed one is READY, and some may still become so."""
        counts, retained = self.counts, len(self._retained)
        is_pending = counts[State.CONNECTING] > 0 or counts[State.IDLE] > 0
        return retained > 0 and is_pending and counts[State.READY] == retained

    def _is_retained(self, child: C) -> bool:
        return self._retained.get(child.key) is child

    def _release_retained(self) -> None:
        self._retention_timer.cancel()
        retained, self._retained = self._retained, {}
        for child in retained.values():
            self._discard_and_close(child)
        if self._closing:
            self._work.run(self, CLOSE_UNITS)

    def _on_retention_over(self) -> None:
        # One report is enough: the policy reads the state of the whole list.
        child = next(iter(self._retained.values()))
        self._release_retained()
        self._on_report(child, State.READY)

    def _drop_retained(self, child: C) -> None:
        """Remove a retained child that is not READY any more. It is closed after its own call."""
        del self._retained[child.key]
        self._discard(child)
        self._to_close.append(child)
        self._to_connect.request()
        if not self._retained:
            self._retention_timer.cancel()

    def _close_and_connect(self, to_connect: list[C]) -> None:
        self._close_dropped()
        self._connecting += to_connect
        if self._connecting:
            self._work.run(self, START_UNITS)

    def _close_dropped(self) -> None:
        dropped, self._to_close = self._to_close, []
        for child in dropped:
            assert child.policy is not None, "a child that was READY has a policy"
            child.policy.close()
            child.policy = None

    def _discard_and_close(self, child: C) -> None:
        """Ignore the child from now on; the caller then runs the job, which closes its policy."""
        self._discard(child)
        if child.policy is not None:
            self._closing.append(child.policy)
            # The policy refers to the child, which is its helper: a reference cycle.
            child.policy = None

    def _discard(self, child: C) -> None:
        child.is_closed = True
        self.counts.remove(child.state)
        if child is self._last_failed:
            self._last_failed = None
        if child.state is State.READY:
            self._discard_ready(child)

    def _discard_ready(self, child: C) -> None:
        del self.ready[child]
        self.ready_version += 1


def _child_attributes(attributes: Attributes) -> Attributes:
    """Keep only what pick_first reads, because in a mesh the rest changes with every update."""
    delay_s = attributes.get(CONNECTION_ATTEMPT_DELAY)
    if delay_s is None:
        return _WITH_HEALTH_WATCH
    return _WITH_HEALTH_WATCH.with_(CONNECTION_ATTEMPT_DELAY, delay_s)


def _find_changed_part(before: Sequence[Endpoint], after: Sequence[Endpoint]) -> tuple[int, int]:
    """Return the lengths of the common prefix and of the common suffix of the lists."""
    start = _count_same(before, after)
    length = min(len(before), len(after)) - start
    return start, _count_same(islice(reversed(before), length), reversed(after))


def _count_same(one: Iterable[Endpoint], other: Iterable[Endpoint]) -> int:
    """Return the length of the common prefix."""
    # Wrapped in tuples, which compare by identity first. No Python bytecode runs per endpoint.
    return sum(takewhile(bool, map(eq, zip(one), zip(other))))


def _set_first_endpoints(pairs: Iterable[tuple[C, Endpoint]]) -> list[C]:
    """Set each child's endpoint to its first one in the list, and return the changed children."""
    firsts: dict[C, Endpoint] = {}
    for child, endpoint in pairs:
        firsts.setdefault(child, endpoint)
    changed = [
        child
        for child, first in firsts.items()
        if child.endpoint is not first and child.endpoint != first
    ]
    for child in changed:
        child.set_endpoint(firsts[child])
    return changed


def _rotate(children: list[C], randrange: Callable[[int], int]) -> list[C]:
    """Rotate the list randomly, so that not all clients connect to the same endpoint first."""
    start = randrange(len(children))
    return children[start:] + children[:start]
