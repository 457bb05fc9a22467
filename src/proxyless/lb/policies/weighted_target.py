"""Every child that is connected takes its share of the RPCs.

Specs: A28 (weighted_target_experimental); requirements WT-01 to WT-08.

`combine` decides, from the children's states, which pickers take part and in which state all are
together; the policy owns the children, and reports that. Shares are by chance, so that many clients
together, each with few RPCs, still keep to the weights.

A target of weight 0 has a child, so that it is connected when its weight grows; but it takes no
part in anything.
"""

from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import accumulate
from typing import ClassVar, Final

from proxyless.base import OK, State, Status, StatusCode, ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import JsonObject, integer
from proxyless.lb.aggregate import IDLE_IS_IDLE, StateCounts, aggregate, stick
from proxyless.lb.api import Helper, Picker, PickInfo, PickResult, Policy, PolicyRegistry, Update
from proxyless.lb.attributes import LOCALITY_LABEL
from proxyless.lb.config import PolicyConfig, parse_child_policy
from proxyless.lb.hierarchy import NO_SPLIT, split_by_child
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker
from proxyless.lb.reentrancy import Hold, SoonQueue
from proxyless.lb.retained_child import NOT_LISTED, RetainedChild, join_rejections
from proxyless.lb.view import LbNode, join_notes, place

WEIGHT_MAX: Final = 2**32 - 1
_WEIGHT: Final = integer(0, WEIGHT_MAX)

NO_TARGETS: Final = "weighted_target policy has no target with a weight above 0"


# ---------------------------------------------------------------------------------------------
# Config


@frozen
class TargetConfig:
    """What one child is, and how much it takes."""

    weight: int
    policy: PolicyConfig
    # What metrics call it, if that is not its name.
    label: str = ""


@frozen
class WeightedTargetConfig:
    """The children by name."""

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


# ---------------------------------------------------------------------------------------------
# Decision


@frozen
class TargetView:
    """All that matters about one target."""

    weight: int
    state: State
    picker: Picker
    # Why it failed last; OK if it does not count as failing.
    failure: Status = OK


@frozen
class Combined:
    """All targets together: the state, and the pickers in use with their weights."""

    state: State
    shares: tuple[tuple[int, Picker], ...] = ()
    # Why the state is TRANSIENT_FAILURE, if there are shares; OK with any other state.
    failure: Status = OK


def combine(targets: Iterable[TargetView]) -> Combined:
    """Without shares, RPCs wait, or fail if that is the state."""
    weighty = [target for target in targets if target.weight]
    counts = StateCounts()
    for target in weighty:
        counts.add(target.state)
    state = aggregate(counts, IDLE_IS_IDLE)
    if state is State.CONNECTING or state is State.IDLE:
        return Combined(state)
    # If all fail, their pickers are used: they fail RPCs with their own errors, or queue them while
    # a child connects again.
    chosen = [target for target in weighty if target.state is state]
    shares = tuple((target.weight, target.picker) for target in chosen)
    is_failing = state is State.TRANSIENT_FAILURE and shares
    return Combined(state, shares, _find_failure(chosen) if is_failing else OK)


def _find_failure(failing: Sequence[TargetView]) -> Status:
    """Why these targets fail; if all of them connect again, why they failed before."""
    for target in failing:
        if not target.picker.status.is_ok:
            return target.picker.status
    before = failing[0].failure
    if before.is_ok:  # A policy of an application that does not say why.
        return before
    return Status(before.code, f"connecting again after: {before.details}")


class WeightedPicker(Picker):
    """Asks a picker by chance, in proportion to its weight."""

    __slots__ = ("_draw", "_last", "_limits", "_pickers", "_status", "_total")

    def __init__(
        self,
        shares: Sequence[tuple[int, Picker]],
        draw: Callable[[], float],
        failure: Status = OK,
    ) -> None:
        self._pickers: Final = tuple(picker for _, picker in shares)
        # Where the share of each picker ends; it starts where the one before ends.
        self._limits: Final = tuple(accumulate(weight for weight, _ in shares))
        self._total: Final = float(self._limits[-1])
        self._last: Final = len(self._pickers) - 1
        self._draw: Final = draw
        self._status: Final = failure

    def pick(self, info: PickInfo) -> PickResult:
        # The last one has all that the others have not: rounding cannot lead past the end.
        index = bisect(self._limits, self._draw() * self._total, 0, self._last)
        return self._pickers[index].pick(info)

    @property
    def is_reconnecting(self) -> bool:
        return not self._status.is_ok and any(picker.status.is_ok for picker in self._pickers)

    @property
    def status(self) -> Status:
        """Why all targets fail, even if picks wait because one connects again."""
        return self._status


# ---------------------------------------------------------------------------------------------
# Policy


class WeightedTargetPolicy:
    """Owns the children; `combine` owns the decision. Driven by its parent and the children."""

    __slots__ = (
        "_children",
        "_helper",
        "_hold",
        "_shown",
        "_split",
        "_targets",
        "_wanted",
    )

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper = helper
        # From the last update: the targets, and its endpoints by child.
        self._targets: Mapping[str, TargetConfig] = {}
        self._split = NO_SPLIT
        # Those that exist, whether they are in the config or not.
        self._children: dict[str, TargetChild] = {}
        # Around calls to children.
        self._hold: Final = Hold(self._reconsider)
        # What was last reported.
        self._shown: Combined | None = None
        self._wanted = SoonQueue[str](helper.context.clock, self._connect_wanted)

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, WeightedTargetConfig), "the config is one of ours"
        self._targets = config.targets
        self._split = split_by_child(update.endpoints, self._split)
        rejections: list[str] = []
        # All of them first: none must be missing, even if one raises.
        for name in self._targets:
            self._have_child(name)
        with self._hold:
            for name, target in self._targets.items():
                child = self._children[name]
                attributes = update.attributes.with_(LOCALITY_LABEL, target.label or name)
                part = Update((), None, attributes, update.resolution_note)
                rejections += child.update_policy(part, self._split.of(name), target.policy)
            for name, child in self._children.items():
                if name not in self._targets:
                    child.unlist()
            # Every update is answered, even if it changed nothing.
            self._shown = None
        return join_rejections(rejections) if rejections else OK

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
        self._wanted.cancel()
        children, self._children = self._children, {}
        for child in children.values():
            child.close()

    def describe(self) -> LbNode:
        state = "" if self._shown is None else self._shown.state.name
        detail = "" if any(target.weight for target in self._targets.values()) else NO_TARGETS
        children = tuple(
            child.describe(self._targets.get(child.name)) for child in self._children.values()
        )
        return LbNode(state=state, detail=detail, children=children)

    def _have_child(self, name: str) -> None:
        if name in self._children:
            self._children[name].reactivate()
        else:
            self._children[name] = TargetChild(self._helper, name, self)

    # Called by children.

    def on_change(self) -> None:
        """A child may be in another state than it was, or have another picker."""
        if not self._hold.active:
            self._reconsider()

    def connect_soon(self, name: str) -> None:
        """Tell the child to leave IDLE, after whatever is going on now."""
        self._wanted.add(name)

    def destroy(self, name: str) -> None:
        self._children.pop(name).close()

    def _connect_wanted(self, wanted: list[str]) -> None:
        with self._hold:
            for name in wanted:
                if (child := self._children.get(name)) is not None:
                    child.policy.exit_idle()

    # Reports.

    def _reconsider(self) -> None:
        """Report, if that is not what was reported last."""
        children = self._children
        combined = combine(
            children[name].view(target.weight) for name, target in self._targets.items()
        )
        if combined != self._shown:
            trace = self._helper.context.trace
            if trace.active:
                before = None if self._shown is None else self._shown.state
                trace.emit("weighted_target.state", before=before, after=combined.state)
            self._shown = combined
            self._helper.update_state(combined.state, self._make_picker(combined))

    def _make_picker(self, combined: Combined) -> Picker:
        match combined.shares:
            case ():
                is_failing = combined.state is State.TRANSIENT_FAILURE
                return _NO_TARGETS_PICKER if is_failing else QUEUE_PICKER
            case ((_, picker),) if picker.status == combined.failure:
                return picker
            case shares:
                return WeightedPicker(shares, self._helper.context.random.random, combined.failure)


_NO_TARGETS_PICKER: Final = FailPicker(Status(StatusCode.UNAVAILABLE, NO_TARGETS))


class TargetChild(RetainedChild):
    """One child and its last report. Called by the policy above and by its own."""

    trace_name: ClassVar[str] = "weighted_target.child"

    __slots__ = ("_failure", "_owner", "_picker", "_state")

    def __init__(self, helper: Helper, name: str, owner: WeightedTargetPolicy) -> None:
        super().__init__(helper, name, owner.destroy)
        self._owner: Final = owner
        # From reports: the state sticks in TRANSIENT_FAILURE, the picker is always the last one.
        self._state = State.CONNECTING
        self._picker: Picker = QUEUE_PICKER
        # From the last report of TRANSIENT_FAILURE; OK if that is not the state.
        self._failure = OK

    def view(self, weight: int) -> TargetView:
        return TargetView(weight, self._state, self._picker, self._failure)

    def describe(self, target: TargetConfig | None) -> LbNode:
        note = NOT_LISTED if target is None else f"weight {target.weight}"
        own = self.policy.describe()
        node = place(
            own,
            self.name,
            state=self._state,
            failure=self._failure,
            note=join_notes(note, self.retention_note),
            in_use=target is not None and target.weight > 0,
        )
        # While it counts as failing, its picker may queue RPCs until it is READY.
        return replace(node, problem=own.problem) if self._picker.status.is_ok else node

    def update_state(self, state: State, picker: Picker) -> None:
        if state is State.IDLE:
            self._owner.connect_soon(self.name)
        if state is self._state and picker is self._picker:
            # Reported before: the picker itself has grown.
            return
        # A child that fails counts as failing until it is READY; its picker is its own.
        self._state, self._picker = stick(self._state, state), picker
        if state is State.TRANSIENT_FAILURE:
            self._failure = picker.status
        elif self._state is not State.TRANSIENT_FAILURE:
            self._failure = OK
        self._owner.on_change()


class WeightedTargetFactory:
    """What the registry knows of weighted_target_experimental."""

    name: Final = "weighted_target_experimental"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> WeightedTargetConfig:
        return parse_config(json, errors, registry)

    def create(self, helper: Helper) -> Policy:
        return WeightedTargetPolicy(helper)
