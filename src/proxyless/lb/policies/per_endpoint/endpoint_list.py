"""One pick_first per endpoint: what all petiole policies have in common.

Specs: A61, RR-01, RR-02, RR-05, RR-08, RR-09. Used by round_robin, and by whatever else spreads
RPCs over endpoints.

Keeps the children in step with the list of endpoints and knows their states. What to report is the
policy's. An endpoint is its set of addresses: one that stays keeps its child, and with it its
connection, whatever else changes. The cost of an update is that of its changes.

Theory of operation, if an update removes all endpoints that are READY
    Those endpoints are retained: they stay in `ready`, so that RPCs go on while the new ones
    connect. They are released together when a listed endpoint is READY, when all listed ones have
    failed, or after `REMOVED_RETENTION_S` (D45); and each by itself when it is not READY any more.
    While endpoints are retained, no listed one is READY: so a further update retains no others.
    Lazy children (ring_hash) are never retained.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from operator import eq
from typing import Any, ClassVar, Final, Generic, TypeVar

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    Address,
    Attributes,
    Endpoint,
    State,
)
from proxyless.lb.aggregate import StateCounts, stick
from proxyless.lb.api import Context, Helper, Picker, Policy, Subchannel, Update
from proxyless.lb.attributes import HEALTH_WATCH, IS_LISTED_AGAIN
from proxyless.lb.pickers import QUEUE_PICKER
from proxyless.lb.policies.pick_first import PickFirst, PickFirstConfig
from proxyless.lb.policies.pick_first.config import CONNECTION_ATTEMPT_DELAY
from proxyless.lb.reentrancy import SoonQueue
from proxyless.lb.view import (
    LbNode,
    describe_policy,
    in_seconds,
    join_notes,
    left_s,
    name_endpoint,
    place,
)
from proxyless.runtime import IDLE_TIMER

# How long removed endpoints take RPCs while the new ones connect. Longer than a connection attempt
# (20 s), so that new endpoints normally end it by being READY or by failing (D45).
REMOVED_RETENTION_S: Final = 30.0

_REMOVED_NOTE: Final = "removed, takes RPCs until a listed endpoint is READY"

_CHILD_CONFIG: Final = PickFirstConfig()
_WITH_HEALTH_WATCH: Final = EMPTY_ATTRIBUTES.with_(HEALTH_WATCH, True)
_CHILD_KIND: Final = "pick_first"


class EndpointChild:
    """One endpoint and its policy, whose helper it is. A policy may use a subclass of its own.

    Driven by its policy and its list.
    """

    # A lazy one has a policy only from the first time somebody wants it connected. One that is
    # not connects at once, and again whenever it is IDLE.
    is_lazy: ClassVar[bool] = False

    __slots__ = ("_list", "endpoint", "is_closed", "picker", "policy", "state", "times_listed")

    def __init__(self, endpoints: "EndpointList[Any]", endpoint: Endpoint) -> None:
        self._list = endpoints
        self.set_endpoint(endpoint)
        self.policy: Policy | None = None
        self.times_listed = 0
        self.is_closed = False
        # From the last report that counted.
        self.state = State.IDLE if self.is_lazy else State.CONNECTING
        self.picker: Picker = QUEUE_PICKER

    def set_endpoint(self, endpoint: Endpoint) -> None:
        """For the list: this is the endpoint now. The same addresses, maybe other attributes."""
        self.endpoint = endpoint

    def create_policy(self) -> Policy:
        return PickFirst(self)

    @property
    def context(self) -> Context:
        return self._list.helper.context

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        return self._list.helper.create_subchannel(address, attributes)

    def update_state(self, state: State, picker: Picker) -> None:
        if not self.is_closed:
            self._list.on_child_report(self, state, picker)

    def request_reresolution(self) -> None:
        self._list.helper.request_reresolution()

    def describe(self, note: str) -> LbNode:
        name = name_endpoint(self.endpoint.addresses)
        if self.policy is None:
            return LbNode(name, _CHILD_KIND, self.state.name, note or "not needed so far")
        node = describe_policy(self.policy, _CHILD_KIND)
        return place(node, name, state=self.state, failure=self.picker.status, note=note)


C = TypeVar("C", bound=EndpointChild)


class EndpointList(Generic[C]):
    """The children of one policy. Driven by the policy and the children.

    The policy hears of each report that counts, with the state before it; also inside `update`,
    where it should wait for the end.
    """

    def __init__(
        self, helper: Helper, child_type: type[C], on_report: Callable[[C, State], None]
    ) -> None:
        # Fixed at construction.
        self.helper = helper
        self._child_type = child_type
        self._on_report = on_report
        # From the last update: endpoints, and at the same places the children they are for.
        self._endpoints: Sequence[Endpoint] = ()
        self._listed: list[C] = []
        # What children are told about the update as a whole.
        self._attributes = EMPTY_ATTRIBUTES
        # Each child once, by what makes it an endpoint.
        self._children: dict[frozenset[Address], C] = {}
        # Derived from the children's reports.
        self.counts = StateCounts()
        self._ready: dict[C, Picker] = {}
        # Changes whenever `ready` does.
        self.ready_version = 0
        # The child that failed last, as long as it is failing.
        self._last_failed: C | None = None
        # Removed endpoints that still take RPCs, all of them READY, and when that ends.
        self._retained: dict[frozenset[Address], C] = {}
        self._retention_timer = IDLE_TIMER
        # Children to close and children to connect, after the current call; each in order.
        self._lost: list[C] = []
        self._wanted = SoonQueue[C](helper.context.clock, self._act)

    @property
    def children(self) -> Collection[C]:
        return self._children.values()

    @property
    def listed(self) -> Sequence[C]:
        """The children in the order of the endpoints; one whose endpoint is there twice, twice."""
        return self._listed

    @property
    def ready(self) -> Mapping[C, Picker]:
        """The children that are READY, and their pickers."""
        return self._ready

    @property
    def retained(self) -> Collection[C]:
        """The removed endpoints that still take RPCs. They are among the READY ones."""
        return self._retained.values()

    def find_last_error(self) -> str:
        """The newest error of a child that is failing. There must be one."""
        failed = self._last_failed
        if failed is None:
            failing = State.TRANSIENT_FAILURE
            failed = next(each for each in self._children.values() if each.state is failing)
        return failed.picker.status.details

    def update(self, endpoints: Sequence[Endpoint], attributes: Attributes) -> None:
        """Have one child for each endpoint. For one that is listed twice, the first counts."""
        to_start, changed, removed = self._diff(endpoints)
        removed += self._retained.values()
        # No report of a child releases them before the end.
        self._retained = {}
        try:
            self._tell_children(to_start, changed, _for_children(attributes))
        finally:
            # Last, so that a connection that a new child shares survives.
            self._retain_ready(removed)
            if attributes.get(IS_LISTED_AGAIN):
                self._release_retained()

    def _tell_children(self, to_start: list[C], changed: list[C], attributes: Attributes) -> None:
        if attributes is not self._attributes and attributes != self._attributes:
            self._attributes = attributes
            changed = list(self._children.values())
        for child in changed:
            if child.policy is not None:
                self._send(child, child.policy)
        if not self._child_type.is_lazy:
            for child in _rotate(to_start, self.helper.context.random.randrange):
                self._start(child)

    def connect(self, child: C) -> None:
        """Tell the child to connect now. It may report at once."""
        if child.policy is None:
            self._start(child)
        else:
            child.policy.exit_idle()

    def connect_soon(self, child: C) -> None:
        """Tell the child to connect, after whatever is going on now. From pickers, too."""
        if not child.is_closed:  # A picker may outlive it.
            self._wanted.add(child)

    def describe(self, note_of: Callable[[C], str]) -> tuple[LbNode, ...]:
        """The endpoints, each once, with the policy's note about it; then the retained ones."""
        listed = [child.describe(note_of(child)) for child in self._children.values()]
        retained = [
            child.describe(join_notes(_REMOVED_NOTE, note_of(child))) for child in self.retained
        ]
        return (*listed, *retained)

    def count_ready(self) -> str:
        """How many of them RPCs can go to, in words."""
        retained = len(self._retained)
        text = f"{len(self._ready) - retained} of {len(self._children)} endpoints are READY"
        if not retained:
            return text
        left = in_seconds(left_s(self._retention_timer, self.helper.context.clock.now_s()))
        return f"{text}; {retained} removed, in use for {left} at most"

    def exit_idle(self) -> None:
        for child in self._children.values():
            self.connect(child)

    def reset_backoff(self) -> None:
        for child in self._children.values():
            if child.policy is not None:
                child.policy.reset_backoff()

    def close(self) -> None:
        self._wanted.cancel()
        self._close_lost()
        self._release_retained()
        for child in self._children.values():
            self._close_child(child)
        self._children = {}

    def on_child_report(self, child: C, state: State, picker: Picker) -> None:
        """A child reports. One that was failing and is only trying again does not count."""
        before = child.state
        if self._retained and state is not State.READY and self._is_retained(child):
            self._lose(child)
            child.state, child.picker = state, picker
            self._on_report(child, before)
            return
        if state is State.IDLE and not child.is_lazy:
            self.connect_soon(child)
        if stick(before, state) is not state:
            return
        child.state, child.picker = state, picker
        self.counts.move(before, state)
        if state is State.TRANSIENT_FAILURE:
            self._last_failed = child
        elif child is self._last_failed:
            self._last_failed = None
        if state is State.READY:
            self._ready[child] = picker
            self.ready_version += 1
        elif before is State.READY:
            self._forget_ready(child)
        if self._retained and not self._needs_retained():
            self._release_retained()
        self._on_report(child, before)

    def _diff(self, endpoints: Sequence[Endpoint]) -> tuple[list[C], list[C], list[C]]:
        """Children to start, changed and removed by this list; none has been called yet."""
        had_duplicates = self._has_duplicates
        start, end = _find_changed_part(self._endpoints, endpoints)
        before = self._listed[start : len(self._listed) - end]
        part = endpoints[start : len(endpoints) - end]
        to_start: list[C] = []
        after = [self._children.get(each.key) or self._add(each, to_start) for each in part]
        for child in before:
            child.times_listed -= 1
        for child in after:
            child.times_listed += 1
        removed = {child: None for child in before if not child.times_listed}
        for child in removed:
            del self._children[child.endpoint.key]
        self._endpoints = endpoints
        self._listed[start : len(self._listed) - end] = after
        # Which of several counts depends on the whole list.
        is_all_to_check = had_duplicates or self._has_duplicates
        listed, theirs = (self._listed, endpoints) if is_all_to_check else (after, part)
        return to_start, _move_to_first(zip(listed, theirs, strict=True)), list(removed)

    @property
    def _has_duplicates(self) -> bool:
        return len(self._children) < len(self._listed)

    def _add(self, endpoint: Endpoint, to_start: list[C]) -> C:
        child = self._retained.pop(endpoint.key, None)
        if child is None:
            child = self._child_type(self, endpoint)
            self.counts.add(child.state)
        self._children[endpoint.key] = child
        to_start.append(child)
        return child

    def _start(self, child: C) -> None:
        # One that was retained has a policy, which may have missed an update.
        if child.policy is None:
            child.policy = child.create_policy()
        self._send(child, child.policy)

    def _send(self, child: C, policy: Policy) -> None:
        policy.update(Update((child.endpoint,), _CHILD_CONFIG, self._attributes))

    # Removed endpoints.

    def _retain_ready(self, removed: Iterable[C]) -> None:
        """Retain those that are READY, if they are needed; close the others."""
        for child in removed:
            if child.state is State.READY and not child.is_lazy:
                self._retained[child.endpoint.key] = child
            else:
                self._close_child(child)
        if not self._needs_retained():
            self._release_retained()
        elif not self._retention_timer.pending:
            clock = self.helper.context.clock
            self._retention_timer = clock.call_later(REMOVED_RETENTION_S, self._on_retention_over)

    def _needs_retained(self) -> bool:
        """Whether there are retained ones, and listed ones may yet be READY, but none is."""
        counts, retained = self.counts, len(self._retained)
        is_pending = counts[State.CONNECTING] > 0 or counts[State.IDLE] > 0
        return retained > 0 and is_pending and counts[State.READY] == retained

    def _is_retained(self, child: C) -> bool:
        return self._retained.get(child.endpoint.key) is child

    def _release_retained(self) -> None:
        self._retention_timer.cancel()
        retained, self._retained = self._retained, {}
        for child in retained.values():
            self._close_child(child)

    def _on_retention_over(self) -> None:
        # One report stands for all: the policy looks at the whole list.
        child = next(iter(self._retained.values()))
        self._release_retained()
        self._on_report(child, State.READY)

    def _lose(self, child: C) -> None:
        """A retained child is not READY any more. Not closed at once: it is calling us."""
        del self._retained[child.endpoint.key]
        self._forget(child)
        self._lost.append(child)
        self._wanted.request()
        if not self._retained:
            self._retention_timer.cancel()

    # What is done after a call is over.

    def _act(self, wanted: list[C]) -> None:
        self._close_lost()
        for child in wanted:
            if not child.is_closed:
                self.connect(child)

    def _close_lost(self) -> None:
        lost, self._lost = self._lost, []
        for child in lost:
            assert child.policy is not None, "a child that was READY has a policy"
            child.policy.close()

    def _close_child(self, child: C) -> None:
        self._forget(child)
        if child.policy is not None:
            child.policy.close()

    def _forget(self, child: C) -> None:
        child.is_closed = True
        self.counts.remove(child.state)
        if child is self._last_failed:
            self._last_failed = None
        if child.state is State.READY:
            self._forget_ready(child)

    def _forget_ready(self, child: C) -> None:
        del self._ready[child]
        self.ready_version += 1


def _for_children(attributes: Attributes) -> Attributes:
    """What a child reads, and nothing else: in a mesh the rest is new in every update."""
    delay_s = attributes.get(CONNECTION_ATTEMPT_DELAY)
    if delay_s is None:
        return _WITH_HEALTH_WATCH
    return _WITH_HEALTH_WATCH.with_(CONNECTION_ATTEMPT_DELAY, delay_s)


def _find_changed_part(before: Sequence[Endpoint], after: Sequence[Endpoint]) -> tuple[int, int]:
    """How many endpoints both lists have in common at their start, and how many at their end."""
    start = _count_same(before, after)
    length = min(len(before), len(after)) - start
    return start, _count_same(islice(reversed(before), length), reversed(after))


def _count_same(one: Iterable[Endpoint], other: Iterable[Endpoint]) -> int:
    """How many endpoints both have in common at their start."""
    # Tuples ask for identity first, and all of this runs without a line of Python per endpoint.
    return sum(takewhile(bool, map(eq, zip(one), zip(other))))


def _move_to_first(pairs: Iterable[tuple[C, Endpoint]]) -> list[C]:
    """Give each child the first endpoint it is listed with; returns those for whom it is new."""
    firsts: dict[C, Endpoint] = {}
    for child, endpoint in pairs:
        firsts.setdefault(child, endpoint)
    changed = [child for child, first in firsts.items() if not _is_same(child.endpoint, first)]
    for child in changed:
        child.set_endpoint(firsts[child])
    return changed


def _is_same(one: Endpoint, other: Endpoint) -> bool:
    # Asking for identity first spares most comparisons of a long list.
    return one is other or one == other


def _rotate(children: list[C], randrange: Callable[[int], int]) -> list[C]:
    """Start at a random place, so that not all clients connect to the same endpoint first."""
    if not children:
        return children
    start = randrange(len(children))
    return children[start:] + children[:start]
