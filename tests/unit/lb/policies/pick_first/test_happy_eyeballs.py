"""Unit tests of proxyless.lb.policies.pick_first.happy_eyeballs."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from itertools import combinations, product

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, Key, State
from proxyless.lb.policies.pick_first.happy_eyeballs import (
    Connect,
    Pass,
    Select,
    Signal,
    order_addresses,
)
from proxyless.testing.fakes import CHANGES
from tests.worlds.policies import CONNECTING, FAILURE, IDLE, READY, address, endpoint


class Model:
    """A pass, and the state that follows from its inputs and actions."""

    def __init__(self, states: tuple[State, ...], in_progress: tuple[int, ...] = ()) -> None:
        self.states = list(states)
        self.requested: set[int] = set()
        self.is_delay_running = False
        self.all_failed = False
        self.selected: int | None = None
        self._pass = Pass(states, in_progress)
        self._take(self._pass.begin())

    @property
    def key(self) -> object:
        """Equal for two models that behave in the same way from now on."""
        inside = [getattr(self._pass, name) for name in Pass.__slots__]
        inside[0] %= len(self.states)  # Failures after the pass count modulo the size.
        return repr((inside, sorted(self.requested), self.is_delay_running))

    def next_models(self) -> Iterator["Model"]:
        """All possible next events."""
        if self.is_delay_running:
            after = deepcopy(self)
            after.is_delay_running = False
            after._take(after._pass.on_delay_over())
            yield after
        for index, state in enumerate(self.states):
            for changed in CHANGES[state]:
                after = deepcopy(self)
                after.states[index] = changed
                after.requested.discard(index)
                after._take(after._pass.on_state(index, changed))
                yield after

    def _take(self, actions: list[Connect | Select | Signal]) -> None:
        for action in actions:
            match action:
                case Connect(index):
                    assert self.states[index] is IDLE, "only an idle address can be connected"
                    assert index not in self.requested, "a connection is requested twice"
                    self.requested.add(index)
                case Select(index):
                    assert self.states[index] is READY, "only a ready address can be selected"
                    assert self._pass.is_eligible(index), "selected before the pass reached it"
                    self.selected = index
                case Signal.START_DELAY:
                    self.is_delay_running = True
                case Signal.STOP_DELAY:
                    self.is_delay_running = False
                case Signal.ALL_FAILED:
                    assert not self.all_failed, "all failed for the first time, twice"
                    self.all_failed = True
                case Signal.ALL_FAILED_AGAIN:
                    assert self.all_failed, "failed again before it failed"
                case Signal.STARTED:
                    assert not self.all_failed, "begun after it was over"

    def check(self) -> None:
        if self.selected is not None:
            return
        awaited = set(filter(self._pass.is_eligible, range(len(self.states))))
        ready = {index for index, state in enumerate(self.states) if state is READY}
        assert not awaited & ready, "an eligible address is ready and was not selected"
        assert self._pass.is_over == self.all_failed
        in_flight = {
            index
            for index in awaited
            if self.states[index] is CONNECTING or index in self.requested
        }
        if self.all_failed:
            idle = {index for index, state in enumerate(self.states) if state is IDLE}
            assert idle <= self.requested, "an idle address is not connected after the pass"
            assert not self.is_delay_running
        else:
            assert in_flight, "no attempt is in progress, so the pass never ends"


def subsets(indices: Iterable[int]) -> Iterator[tuple[int, ...]]:
    listed = tuple(indices)
    for size in range(len(listed) + 1):
        yield from combinations(listed, size)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_pass_always_has_an_attempt_in_progress_after_any_history(size: int) -> None:
    """Explores every input in every reachable state, from every start."""
    seen: set[object] = set()
    pending = [
        Model(states, in_progress)
        for states in product((IDLE, CONNECTING, FAILURE, READY), repeat=size)
        for in_progress in subsets(i for i, state in enumerate(states) if state is CONNECTING)
    ]
    while pending:
        model = pending.pop()
        model.check()
        if model.selected is None and model.key not in seen:
            seen.add(model.key)
            pending += model.next_models()
    assert len(seen) >= 4**size


def test_duplicate_address_has_the_attributes_of_its_first_endpoint() -> None:
    weight = Key[int]("weight")
    light, heavy = (EMPTY_ATTRIBUTES.with_(weight, each) for each in (1, 2))
    targets = order_addresses([endpoint("a", light), endpoint(("b", "a"), heavy)])
    assert targets == ((address("a"), light), (address("b"), heavy))


def test_failure_counts_only_after_the_address_was_reached() -> None:
    attempts = Pass([IDLE, IDLE])
    assert attempts.begin() == [Signal.STARTED, Connect(0), Signal.START_DELAY]
    assert attempts.on_state(1, FAILURE) == []
    assert attempts.on_state(1, IDLE) == []
    assert attempts.on_state(0, FAILURE) == [Connect(1), Signal.STOP_DELAY]
    assert not attempts.is_over
    assert attempts.on_state(1, FAILURE) == [Signal.STOP_DELAY, Signal.ALL_FAILED]
    assert attempts.is_over


def test_only_address_has_no_delay() -> None:
    assert Pass([IDLE]).begin() == [Signal.STARTED, Connect(0)]
    # Another policy shares its connection.
    assert Pass([CONNECTING]).begin() == [Signal.STARTED]


def test_ready_address_is_selected_when_the_pass_reaches_it() -> None:
    attempts = Pass([IDLE, IDLE, READY])
    assert attempts.begin() == [Signal.STARTED, Connect(0), Signal.START_DELAY]
    assert attempts.on_state(1, READY) == []
    assert attempts.on_delay_over() == [Select(1)]


def test_attempt_of_the_previous_pass_counts_until_it_fails() -> None:
    attempts = Pass([IDLE, CONNECTING, CONNECTING, CONNECTING], in_progress=(1, 2))
    attempts.begin()
    assert attempts.in_progress == (1, 2)
    assert attempts.on_state(1, FAILURE) == []
    assert attempts.on_state(1, READY) == []
    assert attempts.on_state(3, READY) == []
    assert attempts.on_state(2, READY) == [Select(2)]


def test_attempt_of_the_previous_pass_counts_until_it_is_given_up() -> None:
    attempts = Pass([IDLE, CONNECTING], in_progress=(1,))
    attempts.begin()
    assert attempts.on_state(1, IDLE) == []
    assert attempts.on_state(1, READY) == []


def test_all_failed_again_is_signalled_once_per_round_of_failures() -> None:
    attempts = Pass([FAILURE] * 3)
    assert attempts.begin() == [Signal.STOP_DELAY, Signal.ALL_FAILED]
    again = [bool(attempts.on_state(0, FAILURE)) for _ in range(9)]
    assert again == [False, False, True] * 3


def test_pass_raises_without_addresses() -> None:
    with pytest.raises(AssertionError, match="nothing to try"):
        Pass([])
