"""The `priority_experimental` policy: sends all RPCs to the highest usable priority.

Specs: A56. Where gRPC's implementations differ from it, environment variables choose.

Theory of operation
    A child is created when the choice first reaches its priority. From then on its last report is
    kept, even while it is not used. A child that is connecting has a failover timer; while that is
    pending, lower priorities are not considered. A child that is not needed is deactivated (see
    `retained_child`), and destroyed after 15 minutes.

    `choice` decides, by the children's last reports and failover timers only. The policy chooses
    again after every change, creates missing children, and publishes the last report of the chosen
    child. If many children fail at once, the next ones are created in slices
    (`runtime.work_queue`); until the choice is made, the policy is CONNECTING.
"""

import os
from collections.abc import Sequence
from typing import ClassVar, Final

from proxyless.base import OK, State, Status, StatusCode
from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.lb.api import Helper, Picker, Update
from proxyless.lb.attributes import DELAY_PRIORITY
from proxyless.lb.description import LbNode, as_child, format_time_left, join_notes
from proxyless.lb.hierarchy import NO_SPLIT, charge_for, split_by_child
from proxyless.lb.pickers import QUEUE_PICKER, FailPicker, NotePicker
from proxyless.lb.policies.priority.choice import (
    FAILED,
    ChildView,
    ChoiceIndex,
    Create,
    Reason,
    Use,
)
from proxyless.lb.policies.priority.config import (
    PriorityConfig,
    parse_config,
)
from proxyless.lb.reentrancy import Hold
from proxyless.lb.retained_child import NOT_LISTED, RetainedChild, join_rejections
from proxyless.runtime import ActionsJob, Timer

FAILOVER_TIMEOUT_S: Final = 10.0

EMPTY_PRIORITY_LIST: Final = "priority policy has empty priority list"

KEEPS_CONNECTING: Final = "GRPC_XDS_PRIORITY_FAILOVER_KEEPS_CONNECTING"
CHILD_POLICY_CACHE: Final = "GRPC_EXPERIMENTAL_ENABLE_PRIORITY_LB_CHILD_POLICY_CACHE"


# Units of `runtime.work_queue`: the policies of a child, without its endpoints.
CREATE_UNITS: Final = 400
CLOSE_UNITS: Final = 150
# An update of a child without a change, which matters only if there are many.
UNCHANGED_UNITS: Final = 10
UNCHARGED_UPDATES_MAX: Final = 20


@frozen
class Switches:
    """Choices where gRPC's implementations differ from A56. The defaults are those of A56."""

    # A child whose failover timer fires stays CONNECTING instead of TRANSIENT_FAILURE.
    keeps_connecting: bool = False
    # Children that leave the config are retained instead of destroyed at once.
    retains_removed: bool = True


def read_switches() -> Switches:
    """Read the environment variables."""
    return Switches(
        keeps_connecting=read_flag(os.environ, KEEPS_CONNECTING, default=False),
        retains_removed=read_flag(os.environ, CHILD_POLICY_CACHE, default=True),
    )


@frozen(eq=False)
class _Report:
    """One report of a child. Compared by identity."""

    state: State
    picker: Picker


_EMPTY: Final = _Report(
    State.TRANSIENT_FAILURE, FailPicker(Status(StatusCode.UNAVAILABLE, EMPTY_PRIORITY_LIST))
)
# Published until the children that are needed have been created.
_CREATING: Final = _Report(State.CONNECTING, QUEUE_PICKER)


class PriorityPolicy:
    """Owns the children; `ChoiceIndex` decides."""

    __slots__ = (
        "_active_until",
        "_children",
        "_choice",
        "_config",
        "_hold",
        "_inactive_from",
        "_is_refreshing",
        "_last_published",
        "_priority_of",
        "_rejections",
        "_split",
        "_update",
        "helper",
        "switches",
    )

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction; the children read these, too.
        self.helper: Final = helper
        self.switches: Final = read_switches()
        # The last update, and its endpoints by child.
        self._config = PriorityConfig()
        self._update = Update((), self._config)
        self._split = NO_SPLIT
        # The listed children in order of priority, and the highest priority of each.
        self._choice = ChoiceIndex()
        self._priority_of: dict[str, int] = {}
        # Children of priorities below `_active_until` are active; those from `_inactive_from` on
        # are deactivated or not created.
        self._active_until = 0
        self._inactive_from = 0
        # Rejections by children that were created since the last choice; and whether `_refresh`,
        # which returns them, is running.
        self._rejections: list[str] = []
        self._is_refreshing = False
        # Includes retained children, which are not in the config.
        self._children: dict[str, PriorityChild] = {}
        # Active during calls to children.
        self._hold: Final = Hold()
        self._last_published: _Report | None = None

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, PriorityConfig), "the factory parsed the config"
        priorities_before = self._config.priorities
        self._update, self._config = update, config
        self._split = split_by_child(update.endpoints, self._split)
        charge_for(update.endpoints, self.helper.context.work)
        if config.priorities != priorities_before:
            self._index_children(config.priorities)
        rejections: list[str] = []
        if len(self._children) > UNCHARGED_UPDATES_MAX:
            self.helper.context.work.charge(len(self._children) * UNCHANGED_UNITS)
        with self._hold:
            for child in self._children.values():
                if child.name in config.children:
                    rejections += self._update_child(child)
                else:
                    child.unlist()
        for child in self._children.values():
            if child.name not in self._priority_of:
                child.deactivate()
        rejections += self._refresh()
        if not self.switches.retains_removed:
            # After the report: until then, RPCs may use one of these.
            for child in list(self._children.values()):
                if child.name not in config.children:
                    self.destroy(child.name)
        return join_rejections(rejections) if rejections else OK

    def exit_idle(self) -> None:
        names = self._config.priorities
        choice = self._choice.choose() if names else None
        if not isinstance(choice, Use):
            return
        with self._hold:
            self._children[names[choice.priority]].policy.exit_idle()
        if self._refresh():
            self._on_late_rejection()

    def reset_backoff(self) -> None:
        if not self._children:
            return
        with self._hold:
            for child in self._children.values():
                child.policy.reset_backoff()
        if self._refresh():
            self._on_late_rejection()

    def close(self) -> None:
        self.helper.context.work.cancel(self)
        children, self._children = self._children, {}
        if children:
            job = ActionsJob([child.close for child in children.values()])
            self.helper.context.work.run(job, CLOSE_UNITS)

    def describe(self) -> LbNode:
        names, published = self._config.priorities, self._last_published
        state = "" if published is None else published.state.name
        choice = self._choice.choose() if names else None
        if not isinstance(choice, Use):
            return LbNode(state=state, detail="creates children" if names else EMPTY_PRIORITY_LIST)
        chosen = names[choice.priority]
        listed = [self._describe_listed(name, chosen) for name in names]
        gone = [child for child in self._children.values() if child.name not in names]
        others = (child.describe(NOT_LISTED, in_use=False) for child in gone)
        detail = f"uses priority {choice.priority}, {chosen!r}: {choice.reason.value}"
        problem = listed[choice.priority].problem
        return LbNode(state=state, detail=detail, children=(*listed, *others), problem=problem)

    def _describe_listed(self, name: str, chosen: str) -> LbNode:
        child = self._children.get(name)
        if child is None:
            kind = self._config.children[name].policy.name
            return LbNode(name, kind, detail="not needed so far", in_use=False)
        return child.describe("", in_use=name == chosen)

    # Called by children

    def on_change(self, child: "PriorityChild") -> None:
        """Called after a change of the child's state, picker or failover timer."""
        if child.name not in self._children:
            # This policy is closed, and the child is about to be.
            return
        priority = self._priority_of.get(child.name)
        if priority is not None:
            self._choice.set(priority, child.view)
        # "still in the middle of applying a config update from its parent" - A56
        if not self._hold.active and self._refresh():
            self._on_late_rejection()

    def destroy(self, name: str) -> None:
        child = self._children.pop(name, None)
        # None if this policy is closed, and the child is about to be.
        if child is not None:
            child.close()
            self._record(name, None)

    def _on_late_rejection(self) -> None:
        """Handle the rejection of a new child when no `update` is left to return it."""
        self.helper.request_reresolution()

    # The choice

    def _index_children(self, names: Sequence[str]) -> None:
        """Apply a new priority list."""
        self._priority_of = {}
        views: list[ChildView | None] = []
        for priority, name in enumerate(names):
            # A duplicate is never chosen: its first occurrence is the same child.
            is_first = self._priority_of.setdefault(name, priority) == priority
            child = self._children.get(name)
            view = None if child is None else child.view
            views.append(view if is_first else FAILED)
        self._choice = ChoiceIndex(views)
        self._active_until, self._inactive_from = 0, len(names)

    def _record(self, name: str, view: ChildView | None) -> None:
        priority = self._priority_of.get(name)
        if priority is not None:
            self._choice.set(priority, view)

    def _refresh(self) -> list[str]:
        """Choose and publish. Idempotent. Returns the rejections of new children's updates."""
        names = self._config.priorities
        if not names:
            self._publish(_EMPTY)
            return []
        choice = self._choice.choose()
        if isinstance(choice, Use):
            self._apply(choice, names)
            return []
        work = self.helper.context.work
        self._is_refreshing = True
        try:
            work.run(self, CREATE_UNITS)
        finally:
            self._is_refreshing = False
        if work.is_waiting(self):
            self._publish(_CREATING)
        rejections, self._rejections = self._rejections, []
        return rejections

    def step(self) -> bool:
        """Create the next child, if one is needed, or publish. Called by the work queue."""
        names = self._config.priorities
        choice = self._choice.choose() if names else None
        if isinstance(choice, Create):
            self._rejections += self._create_child(names[choice.priority])
            choice = self._choice.choose()
        if isinstance(choice, Create):
            return True
        if choice is not None:
            self._apply(choice, names)
        if self._rejections and not self._is_refreshing:
            self._rejections = []
            self._on_late_rejection()
        return False

    def _create_child(self, name: str) -> Sequence[str]:
        child = PriorityChild(self, name, self._config.children[name].inner_priorities)
        # Before the update: the child may report or raise inside it.
        self._children[name] = child
        self._record(name, child.view)
        with self._hold:
            return self._update_child(child)

    def _update_child(self, child: "PriorityChild") -> Sequence[str]:
        """Update the child with its part of the last update. Returns its rejection, if any."""
        config = self._config.children[child.name]
        child.ignores_requests = config.ignore_reresolution_requests
        child.set_inner_priorities(config.inner_priorities)
        endpoints = self._split.endpoints_of(child.name)
        return child.update_policy(self._update, endpoints, config.policy)

    def _apply(self, choice: Use, names: Sequence[str]) -> None:
        chosen = self._children[names[choice.priority]]
        considered = choice.considered
        trace = self.helper.context.trace
        if trace.active:
            trace.emit(
                "priority.choice",
                child=chosen.name,
                priority=choice.priority,
                reason=choice.reason.value,
            )
        for name in names[self._active_until : considered]:
            self._children[name].reactivate()
        if choice.reason is Reason.CONNECTED:
            for name in names[considered : self._inactive_from]:
                child = self._children.get(name)
                if child is not None and self._priority_of[name] >= considered:
                    child.deactivate()
            self._active_until = self._inactive_from = considered
        else:
            self._active_until = max(self._active_until, considered)
            self._inactive_from = max(self._inactive_from, considered)
        self._publish(chosen.report, choice.priority)

    def _publish(self, report: _Report, priority: int | None = None) -> None:
        # The change may have been in another child.
        if report is not self._last_published:
            self._last_published = report
            picker, is_measured = report.picker, self.helper.context.metrics.active
            if is_measured and priority is not None and report.state is State.CONNECTING:
                picker = NotePicker(picker, DELAY_PRIORITY, str(priority))
            self.helper.update_state(report.state, picker)


class PriorityChild(RetainedChild):
    """One child, its last report and its failover timer.

    Deactivation does not cancel the failover timer: a child that is reactivated while it connects
    still has its time.
    """

    trace_name: ClassVar[str] = "priority.child"

    __slots__ = (
        "_failover_started_s",
        "_failover_timer",
        "_inner_priorities",
        "_owner",
        "_ready_or_idle_since_failure",
        "ignores_requests",
        "report",
    )

    def __init__(self, owner: PriorityPolicy, name: str, inner_priorities: int) -> None:
        super().__init__(owner.helper, name, owner.destroy)
        # Fixed at construction.
        self._owner: Final = owner
        # From the last update, set by the policy.
        self.ignores_requests = False
        self._inner_priorities = inner_priorities
        # From the last report, or the failover timer.
        self.report = _Report(State.CONNECTING, QUEUE_PICKER)
        # Whether READY or IDLE was reported "more recently than TRANSIENT_FAILURE" - A56
        self._ready_or_idle_since_failure = False
        # "The timer will be started when the child is first created." - A56
        self._failover_timer = self._start_failover_timer()

    @property
    def view(self) -> ChildView:
        state, picker = self.report.state, self.report.picker
        is_reconnecting = state is State.TRANSIENT_FAILURE and picker.is_reconnecting
        return ChildView(state, self._failover_timer.pending, is_reconnecting)

    def set_inner_priorities(self, inner_priorities: int) -> None:
        """Set the number of inner priorities; a pending timer keeps its start (A75-08)."""
        before, self._inner_priorities = self._inner_priorities, inner_priorities
        if inner_priorities != before and self._failover_timer.pending:
            self._failover_timer.cancel()
            elapsed_s = self.context.clock.now_s() - self._failover_started_s
            self._failover_timer = self._start_failover_timer(elapsed_s)

    def close(self) -> None:
        self._failover_timer.cancel()
        super().close()

    def describe(self, note: str, *, in_use: bool) -> LbNode:
        if self._failover_timer.pending:
            left = format_time_left(self._failover_timer, self.context.clock.now_s())
            note = join_notes(note, f"failover timer {left} left")
        note = join_notes(note, self.retention_note)
        return as_child(
            self.policy.describe(),
            self.name,
            state=self.report.state,
            failure=self.report.picker.status,
            note=note,
            in_use=in_use,
        )

    # Called by its policy

    def request_reresolution(self) -> None:
        if not self.ignores_requests:
            super().request_reresolution()

    def update_state(self, state: State, picker: Picker) -> None:
        before, self.report = self.report.state, _Report(state, picker)
        match state:
            case State.READY | State.IDLE:
                self._ready_or_idle_since_failure = True
                self._failover_timer.cancel()
            case State.TRANSIENT_FAILURE:
                self._ready_or_idle_since_failure = False
                self._failover_timer.cancel()
            case _:
                # Only on entry into CONNECTING: a duplicate report must not delay the failover.
                if before is not State.CONNECTING and self._ready_or_idle_since_failure:
                    self._failover_timer = self._start_failover_timer()
        self._owner.on_change(self)

    def _start_failover_timer(self, elapsed_s: float = 0.0) -> Timer:
        clock = self.context.clock
        self._failover_started_s = clock.now_s() - elapsed_s
        return clock.call_later(self._timeout_s - elapsed_s, self._on_failover_timeout)

    @property
    def _timeout_s(self) -> float:
        return FAILOVER_TIMEOUT_S * self._inner_priorities

    def _on_failover_timeout(self) -> None:
        self.trace("failover timer fired")
        if not self._owner.switches.keeps_connecting:
            # "the child will be treated as if it reported TRANSIENT_FAILURE" - A56
            text = f"failover timeout ({self._timeout_s:g}s) expired while CONNECTING"
            error = Status(StatusCode.UNAVAILABLE, f"child {self.name!r}: {text}")
            self._ready_or_idle_since_failure = False
            self.report = _Report(State.TRANSIENT_FAILURE, FailPicker(error))
        self._owner.on_change(self)


class PriorityFactory:
    """Factory of priority_experimental."""

    name: Final = "priority_experimental"
    create = PriorityPolicy
    parse_config = staticmethod(parse_config)
