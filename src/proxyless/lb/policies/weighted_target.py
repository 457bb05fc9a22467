"""The `weighted_target_experimental` policy: sends RPCs to children in proportion to weights.

Specs: A28; requirements WT-01 to WT-08.

`combine` decides, from the children's states, which pickers are used and which state is reported.
The choice is random per RPC, so that many clients with few RPCs each still match the weights.

A target of weight 0 has a child, so that it is connected when its weight grows, but it is ignored
in picks and in the state.

Many children are updated in slices (`runtime.work_queue`), and their reports are combined once per
turn. A child without its first update counts as CONNECTING.
"""

from bisect import bisect
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import accumulate
from typing import ClassVar, Final

from proxyless.base import OK, State, Status, StatusCode, ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import UINT32_MAX, JsonObject, integer
from proxyless.lb.aggregate import IDLE_IS_IDLE, StateCounts, aggregate, sticky_state
from proxyless.lb.api import Helper, Picker, PickInfo, PickResult, PolicyRegistry, Update
from proxyless.lb.attributes import LOCALITY_LABEL
from proxyless.lb.config import PolicyConfig, parse_child_policy
from proxyless.lb.description import LbNode, as_child, join_notes
from proxyless.lb.hierarchy import NO_SPLIT, charge_for, split_by_child
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker
from proxyless.lb.reentrancy import Hold
from proxyless.lb.retained_child import NOT_LISTED, RetainedChild, join_rejections
from proxyless.runtime import ActionsJob, Soon, SoonQueue

_WEIGHT: Final = integer(0, UINT32_MAX)

# Units of `runtime.work_queue`: the policies of a child, without its endpoints.
UPDATE_UNITS: Final = 150
CLOSE_UNITS: Final = 50
# With more targets, their reports are combined in the next turn.
COMBINED_AT_ONCE_MAX: Final = 100

NO_TARGETS: Final = "weighted_target policy has no target with a weight above 0"


@frozen
class TargetConfig:
    """Parsed config of one target."""

    weight: int
    policy: PolicyConfig
    # The metric label; empty: the name.
    label: str = ""


@frozen
class WeightedTargetConfig:
    """Parsed config."""

    targets: Mapping[str, TargetConfig] = field(default_factory=dict)


def parse_config(
    json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
) -> WeightedTargetConfig:
    targets: dict[str, TargetConfig] = {}
    for name, fields in JsonObject(json, errors).entries("targets"):
        weight = fields.need("weight", _WEIGHT) or 0
        policy = parse_child_policy(fields, registry)
        if policy is not None:
            targets[name] = TargetConfig(weight, policy)
    return WeightedTargetConfig(targets)


@frozen
class TargetView:
    """Input of `combine`: one target."""

    weight: int
    state: State
    picker: Picker
    # The last error, if it counts as failing; otherwise OK.
    failure: Status = OK


@frozen
class Combined:
    """Aggregated state, and the pickers in use with their weights."""

    state: State
    # Empty: RPCs fail in TRANSIENT_FAILURE, and are queued in any other state.
    shares: tuple[tuple[int, Picker], ...] = ()
    # The reason for TRANSIENT_FAILURE, if there are shares; otherwise OK.
    failure: Status = OK


def combine(targets: Iterable[TargetView]) -> Combined:
    weighted = [target for target in targets if target.weight]
    counts = StateCounts()
    for target in weighted:
        counts.add(target.state)
    state = aggregate(counts, IDLE_IS_IDLE)
    if state is State.CONNECTING or state is State.IDLE:
        return Combined(state)
    # If all targets fail, their pickers are used: they fail RPCs with their own errors, or queue
    # RPCs while a child connects again.
    chosen = [target for target in weighted if target.state is state]
    shares = tuple((target.weight, target.picker) for target in chosen)
    is_failing = state is State.TRANSIENT_FAILURE and shares
    return Combined(state, shares, _find_failure(chosen) if is_failing else OK)


def _find_failure(failing: Sequence[TargetView]) -> Status:
    """Return the first error of these targets; if all connect again, their previous error."""
    for target in failing:
        if not target.picker.status.is_ok:
            return target.picker.status
    before = failing[0].failure
    if before.is_ok:  # An application's policy may report TRANSIENT_FAILURE without an error.
        return before
    return Status(before.code, f"connecting again after: {before.details}")


class WeightedTargetPicker(Picker):
    """Picks with a random child picker, in proportion to the weights."""

    __slots__ = ("_last", "_limits", "_pickers", "_random", "_status", "_total")

    def __init__(
        self,
        shares: Sequence[tuple[int, Picker]],
        random: Callable[[], float],
        failure: Status = OK,
    ) -> None:
        self._pickers: Final = tuple(picker for _, picker in shares)
        # Cumulative weights: the upper limit of each picker's share.
        self._limits: Final = tuple(accumulate(weight for weight, _ in shares))
        self._total: Final = float(self._limits[-1])
        self._last: Final = len(self._pickers) - 1
        self._random: Final = random
        self._status: Final = failure

    def pick(self, info: PickInfo) -> PickResult:
        # The search excludes the last limit, so that rounding cannot exceed the last index.
        index = bisect(self._limits, self._random() * self._total, 0, self._last)
        return self._pickers[index].pick(info)

    @property
    def is_reconnecting(self) -> bool:
        return not self._status.is_ok and any(picker.status.is_ok for picker in self._pickers)

    @property
    def status(self) -> Status:
        """Error of the targets if all fail, even if RPCs are queued because one connects again."""
        return self._status


class WeightedTargetPolicy:
    """Owns the children; `combine` decides."""

    __slots__ = (
        "_children",
        "_helper",
        "_hold",
        "_last_published",
        "_refresh_soon",
        "_rejections",
        "_split",
        "_targets",
        "_to_connect",
        "_update",
        "_waiting",
    )

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        # From the last update: the targets, and its endpoints by child.
        self._targets: Mapping[str, TargetConfig] = {}
        self._split = NO_SPLIT
        # The last update; the targets that wait for it; and the rejections of the others.
        self._update: Update | None = None
        self._waiting: deque[str] = deque()
        self._rejections: list[str] = []
        # Includes retained children, which are not in the config.
        self._children: dict[str, TargetChild] = {}
        # Active during calls to children.
        self._hold: Final = Hold(self._refresh)
        self._last_published: Combined | None = None
        self._refresh_soon = Soon(helper.context.clock, self._refresh)
        self._to_connect = SoonQueue[str](helper.context.clock, self._connect_children)

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, WeightedTargetConfig), "the factory parsed the config"
        self._targets = config.targets
        self._split = split_by_child(update.endpoints, self._split)
        charge_for(update.endpoints, self._helper.context.work)
        # Before the updates: no child may be missing if the update of another one raises.
        for name in self._targets:
            child = self._children.get(name)
            if child is None:
                self._children[name] = TargetChild(self._helper, name, self)
            else:
                child.reactivate()
        waiting = dict.fromkeys(self._targets)
        if self._waiting:
            # Targets that wait for the previous update come first, so that frequent updates cannot
            # starve the last ones.
            first = dict.fromkeys(name for name in self._waiting if name in waiting)
            waiting = first | waiting
        self._update, self._waiting = update, deque(waiting)
        with self._hold:
            if self._waiting:
                self._helper.context.work.run(self, UPDATE_UNITS)
            for name, child in self._children.items():
                if name not in self._targets:
                    child.unlist()
            # Every update leads to a report, even if nothing changed.
            self._last_published = None
        rejections, self._rejections = self._rejections, []
        return join_rejections(rejections) if rejections else OK

    def step(self) -> bool:
        """Update the next child. Called by the work queue, inside `update` or later."""
        if not self._waiting:
            # The last update has removed the targets that waited.
            return False
        update, name = self._update, self._waiting.popleft()
        assert update is not None, "targets wait for an update"
        target = self._targets[name]
        attributes = update.attributes.with_(LOCALITY_LABEL, target.label or name)
        part = Update((), None, attributes, update.resolution_note)
        endpoints = self._split.endpoints_of(name)
        self._rejections += self._children[name].update_policy(part, endpoints, target.policy)
        if self._rejections and not self._hold.active:
            # `update` has returned, and can no longer report the rejections.
            self._rejections = []
            self._helper.request_reresolution()
        return bool(self._waiting)

    def exit_idle(self) -> None:
        if not self._targets:
            return
        with self._hold:
            for name in self._targets:
                self._children[name].policy.exit_idle()

    def reset_backoff(self) -> None:
        if not self._children:
            return
        with self._hold:
            for child in self._children.values():
                child.policy.reset_backoff()

    def close(self) -> None:
        self._to_connect.cancel()
        self._refresh_soon.cancel()
        self._helper.context.work.cancel(self)
        children, self._children = self._children, {}
        if children:
            job = ActionsJob([child.close for child in children.values()])
            self._helper.context.work.run(job, CLOSE_UNITS)

    def describe(self) -> LbNode:
        state = "" if self._last_published is None else self._last_published.state.name
        detail = "" if any(target.weight for target in self._targets.values()) else NO_TARGETS
        children = tuple(
            child.describe(self._targets.get(child.name)) for child in self._children.values()
        )
        return LbNode(state=state, detail=detail, children=children)

    # Called by children.

    def on_change(self) -> None:
        """Called after a change of a child's state or picker."""
        # After `close`, children may still report until it is their turn.
        if self._hold.active or not self._children:
            return
        if len(self._targets) > COMBINED_AT_ONCE_MAX:
            self._refresh_soon.request()
        else:
            self._refresh()

    def connect_soon(self, name: str) -> None:
        """Make the child leave IDLE after the current call."""
        if name in self._children:
            self._to_connect.add(name)

    def destroy(self, name: str) -> None:
        child = self._children.pop(name, None)
        # None if this policy is closed, and the child is about to be.
        if child is not None:
            child.close()

    def _connect_children(self, names: list[str]) -> None:
        with self._hold:
            for name in names:
                if (child := self._children.get(name)) is not None:
                    child.policy.exit_idle()

    def _refresh(self) -> None:
        """Report if the combined state or its pickers changed."""
        children = self._children
        combined = combine(
            children[name].view(target.weight) for name, target in self._targets.items()
        )
        if combined != self._last_published:
            trace = self._helper.context.trace
            if trace.active:
                before = None if self._last_published is None else self._last_published.state
                trace.emit("weighted_target.state", before=before, after=combined.state)
            self._last_published = combined
            self._helper.update_state(combined.state, self._make_picker(combined))

    def _make_picker(self, combined: Combined) -> Picker:
        match combined.shares:
            case ():
                is_failing = combined.state is State.TRANSIENT_FAILURE
                return _NO_TARGETS_PICKER if is_failing else QUEUE_PICKER
            case ((_, picker),) if picker.status == combined.failure:
                return picker
            case shares:
                random = self._helper.context.random.random
                return WeightedTargetPicker(shares, random, combined.failure)


_NO_TARGETS_PICKER: Final = FailPicker(Status(StatusCode.UNAVAILABLE, NO_TARGETS))


class TargetChild(RetainedChild):
    """One child, and its last report."""

    trace_name: ClassVar[str] = "weighted_target.child"

    __slots__ = ("_failure", "_owner", "_picker", "_state")

    def __init__(self, helper: Helper, name: str, owner: WeightedTargetPolicy) -> None:
        super().__init__(helper, name, owner.destroy)
        self._owner: Final = owner
        # TRANSIENT_FAILURE is sticky; the picker is always from the last report.
        self._state = State.CONNECTING
        self._picker: Picker = QUEUE_PICKER
        # The error of the last report of TRANSIENT_FAILURE; OK in any other state.
        self._failure = OK

    def view(self, weight: int) -> TargetView:
        return TargetView(weight, self._state, self._picker, self._failure)

    def describe(self, target: TargetConfig | None) -> LbNode:
        note = NOT_LISTED if target is None else f"weight {target.weight}"
        own = self.policy.describe()
        node = as_child(
            own,
            self.name,
            state=self._state,
            failure=self._failure,
            note=join_notes(note, self.retention_note),
            in_use=target is not None and target.weight > 0,
        )
        # A child that counts as failing may have a picker that queues RPCs.
        return replace(node, problem=own.problem) if self._picker.status.is_ok else node

    def update_state(self, state: State, picker: Picker) -> None:
        if state is State.IDLE:
            self._owner.connect_soon(self.name)
        if state is self._state and picker is self._picker:
            # The child changed the picker in place.
            return
        self._state, self._picker = sticky_state(self._state, state), picker
        if state is State.TRANSIENT_FAILURE:
            self._failure = picker.status
        elif self._state is not State.TRANSIENT_FAILURE:
            self._failure = OK
        self._owner.on_change()


class WeightedTargetFactory:
    """Factory of weighted_target_experimental."""

    name: Final = "weighted_target_experimental"
    create = WeightedTargetPolicy
    parse_config = staticmethod(parse_config)
