"""Story for `explore`: choices and reports of the priority policy, in any order of events.

`Rules` is a second implementation of A56, written from docs/spec/lb.md and not from the policy:
children with a state, two deadlines each, and a choice that is repeated after every event. The
story passes each event to the policy and to the rules, and compares all reports, in order, with
their pickers, and the children that exist. Events: a child reports any state; time advances to the
next timer, by half a failover timeout, or by almost 15 minutes; the config has fewer, more or other
priorities. So timers of several children, of both kinds, fire in every possible order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from proxyless.lb import QUEUE_PICKER
from proxyless.lb.policies.priority import PriorityFactory
from proxyless.lb.policies.priority.policy import EMPTY_PRIORITY_LIST
from tests.worlds.child_policies import ParentPolicyWorld, stub_config
from tests.worlds.policies import CONNECTING, FAILURE, IDLE, READY

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from proxyless.base import State
    from proxyless.lb import Picker
    from tools.simulation.explore import Chooser

NAMES = ("p0", "p1", "p2")
CONFIGS = (NAMES, NAMES[:2], NAMES[:1], NAMES[1:], ("p1", "p0"), ())
STATES = (CONNECTING, READY, FAILURE, IDLE)

FAILOVER_S = 10.0
RETENTION_S = 900.0
HALF_S = FAILOVER_S / 2
# The rest of a retention is then shorter than a failover timeout.
ALMOST_S = RETENTION_S - HALF_S

Timer = Literal["failover", "retention"]


# ---------------------------------------------------------------------------------------------
# The rules


@dataclass(eq=False)
class Report:
    """Report of a child. The picker is None if it is not the child's own."""

    state: State
    picker: Picker | None = None


@dataclass
class RuledChild:
    """State of a child in A56."""

    # "Until its first report a child counts as CONNECTING with a queue picker" - A56-25
    report: Report = field(default_factory=lambda: Report(CONNECTING, QUEUE_PICKER))
    # READY or IDLE is more recent than TRANSIENT_FAILURE: A56-45, A56-46.
    was_up: bool = False
    # Pending timers: the time, and a number that orders timers of the same time by their start.
    deadlines: dict[Timer, tuple[float, int]] = field(default_factory=dict)


class Rules:
    """A56 without policies, pickers or clocks."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.priorities: Sequence[str] = ()
        self.children: dict[str, RuledChild] = {}
        # Expected reports, in order.
        self.reports: list[Report] = []
        self._empty = Report(FAILURE)
        self._timers_started = 0

    # Events

    def on_config(self, priorities: Sequence[str]) -> None:
        self.priorities = priorities
        for name in sorted(self.children.keys() - set(priorities)):
            self._deactivate(name)  # A56-31, A56-57
        self._choose()

    def on_report(self, name: str, report: Report) -> None:
        child = self.children[name]
        was_connecting = child.report.state is CONNECTING
        child.report = report
        if report.state is not CONNECTING:
            child.deadlines.pop("failover", None)  # A56-42
            child.was_up = report.state is not FAILURE
        elif child.was_up and not was_connecting:
            self._start(child, "failover", FAILOVER_S)  # A56-43, A56-45
        self._choose()

    def on_time(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while (pending := self._pending()) and pending[0][0] <= until_s:
            self.now_s, _, name, timer = pending[0]
            self._on_timer(name, timer)
        self.now_s = until_s

    @property
    def next_timer_s(self) -> float | None:
        """Time until the next timer fires."""
        pending = self._pending()
        return pending[0][0] - self.now_s if pending else None

    def _pending(self) -> list[tuple[float, int, str, Timer]]:
        """Timers in the order in which they fire."""
        return sorted(
            (*deadline, name, timer)
            for name, child in self.children.items()
            for timer, deadline in child.deadlines.items()
        )

    def _start(self, child: RuledChild, timer: Timer, seconds: float) -> None:
        self._timers_started += 1
        child.deadlines[timer] = (self.now_s + seconds, self._timers_started)

    def _on_timer(self, name: str, timer: Timer) -> None:
        if timer == "retention":
            del self.children[name]  # A56-27
            return
        child = self.children[name]
        del child.deadlines["failover"]
        child.report, child.was_up = Report(FAILURE), False  # A56-44, A56-47
        self._choose()

    # Choice

    def _choose(self) -> None:
        chosen = self._first_pass() or self._second_pass()
        report = self.children[chosen].report if chosen else self._empty
        # A56-64: every report of the child in use, and no report twice.
        if not self.reports or self.reports[-1] is not report:
            self.reports.append(report)

    def _first_pass(self) -> str | None:
        """A56-58, A56-59; creates and reactivates the children that it visits (A56-33)."""
        for priority, name in enumerate(self.priorities):
            if name not in self.children:
                self.children[name] = RuledChild()  # A56-20
                self._start(self.children[name], "failover", FAILOVER_S)  # A56-40
            child = self.children[name]
            child.deadlines.pop("retention", None)
            if child.report.state in {READY, IDLE}:
                for lower in self.priorities[priority + 1 :]:
                    self._deactivate(lower)  # A56-26
                return name
            if "failover" in child.deadlines:
                return name  # A56-30: lower priorities are not deactivated.
        return None

    def _second_pass(self) -> str | None:
        """A56-60, A56-61; None if there are no priorities, A56-57."""
        for name in self.priorities:
            if self.children[name].report.state is CONNECTING:
                return name
        return self.priorities[-1] if self.priorities else None

    def _deactivate(self, name: str) -> None:
        child = self.children.get(name)
        if child is not None and "retention" not in child.deadlines:  # A56-29
            self._start(child, "retention", RETENTION_S)

    def fingerprint(self) -> Hashable:
        """Everything that later events depend on, with times relative to now."""
        children = (
            (name, child.report.state, child.report.picker is None, child.was_up)
            for name, child in sorted(self.children.items())
        )
        left = ((at_s - self.now_s, name, timer) for at_s, _, name, timer in self._pending())
        shown = [name for name, child in self.children.items() if child.report is self.reports[-1]]
        return (tuple(self.priorities), tuple(children), tuple(left), tuple(shown))


# ---------------------------------------------------------------------------------------------
# The policy and the rules


class PriorityOrders(ParentPolicyWorld):
    """A priority policy, and the rules for it."""

    def __init__(self) -> None:
        super().__init__(PriorityFactory())
        self.rules = Rules()
        self.shown: list[tuple[State, Picker]] = []
        self.helper.react = lambda state: self.shown.append((state, self.picker))

    def steps(self) -> list[str]:
        """Possible next events, for `take`."""
        alive = sorted(self.rules.children)
        reports = [f"{name} {state.name}" for name in alive for state in STATES]
        configs = [
            "config " + " ".join(config) for config in CONFIGS if config != self.rules.priorities
        ]
        times = [f"after {HALF_S:g}", f"after {ALMOST_S:g}"]
        if (left_s := self.rules.next_timer_s) is not None:
            times.append(f"after {left_s:g}")
        return [*reports, *configs, *dict.fromkeys(times)]

    def take(self, step: str) -> None:
        match step.split():
            case ["config", *names]:
                self._configure(names)
            case ["after", seconds]:
                self.advance(float(seconds))
                self.rules.on_time(float(seconds))
            case [name, state]:
                self._report(name, state)
            case _:
                raise AssertionError(f"no step is called {step!r}")
        self.check()

    def _configure(self, names: Sequence[str]) -> None:
        children = {name: {"config": stub_config(name)} for name in names}
        status = self.update(config={"children": children, "priorities": names})
        assert status.is_ok, status
        self.rules.on_config(tuple(names))

    def _report(self, name: str, state: str) -> None:
        child = self.child(name)
        next_state = next(each for each in STATES if each.name == state)
        child.report(next_state)
        self.rules.on_report(name, Report(next_state, child.picker))

    def check(self) -> None:
        """Check that the policy has the children and made the reports of the rules."""
        alive, needed = (
            sorted(each.name for each in self.open_children),
            sorted(self.rules.children),
        )
        assert alive == needed, f"alive are {alive}, wanted {needed}"
        shown = [state.name for state, _ in self.shown]
        expected = [report.state.name for report in self.rules.reports]
        assert shown == expected, f"reported {shown}, wanted {expected}"
        for (state, picker), report in zip(self.shown, self.rules.reports, strict=True):
            if report.picker is not None:
                assert picker is report.picker, f"another child's picker was shown as {state}"
        text = self.shown[-1][1].status.details
        assert (text == EMPTY_PRIORITY_LIST) == (not self.rules.priorities), f"fails with {text!r}"

    def fingerprint(self) -> Hashable:
        """State of the rules, and hidden state of the policy."""
        children = self.policy._children  # type: ignore[attr-defined]  # noqa: SLF001
        hidden = (
            (name, child.view, child._ready_or_idle_since_failure, child._retention_timer.pending)  # noqa: SLF001
            for name, child in sorted(children.items())
        )
        return (self.rules.fingerprint(), tuple(hidden), self.clock.timers_pending)


def run_story(chooser: Chooser) -> None:
    """Run three priorities with the events of the chooser."""
    world = PriorityOrders()
    world.take(f"config {' '.join(NAMES)}")
    while (step := chooser.choose(world.steps(), world.fingerprint)) is not None:
        world.take(step)
    world.policy.close()
    world.expect_closed()
