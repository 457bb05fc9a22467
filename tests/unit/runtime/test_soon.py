"""Actions that run in the next turn of the loop."""

import pytest

from proxyless.runtime import Soon, SoonQueue, VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def test_soon_runs_its_action_once_after_the_current_call(clock: VirtualClock) -> None:
    runs: list[float] = []
    soon = Soon(clock, lambda: runs.append(clock.now_s()))
    soon.request()
    soon.request()
    assert runs == []
    clock.advance(0)
    assert runs == [0.0]
    soon.request()
    clock.advance(0)
    assert runs == [0.0, 0.0]


def test_soon_runs_again_when_its_action_requests_it(clock: VirtualClock) -> None:
    runs: list[int] = []

    def act() -> None:
        runs.append(len(runs))
        if len(runs) < 3:
            soon.request()

    soon = Soon(clock, act)
    soon.request()
    clock.advance(0)
    assert runs == [0, 1, 2]


def test_soon_does_not_run_when_it_is_cancelled(clock: VirtualClock) -> None:
    soon = Soon(clock, lambda: pytest.fail("cancelled"))
    soon.request()
    soon.cancel()
    clock.advance(0)


def test_queue_gives_each_item_once_in_order(clock: VirtualClock) -> None:
    given: list[list[str]] = []
    queue = SoonQueue[str](clock, given.append)
    for item in ("b", "a", "b"):
        queue.add(item)
    assert (list(queue), given) == (["b", "a"], [])
    clock.advance(0)
    assert (list(queue), given) == ([], [["b", "a"]])


def test_queue_keeps_items_that_are_added_while_its_action_runs(clock: VirtualClock) -> None:
    given: list[list[int]] = []

    def act(items: list[int]) -> None:
        given.append(items)
        if items[-1] < 3:
            queue.add(items[-1] + 1)

    queue = SoonQueue[int](clock, act)
    queue.add(1)
    clock.advance(0)
    assert given == [[1], [2], [3]]


def test_queue_runs_without_items_when_it_is_requested(clock: VirtualClock) -> None:
    given: list[list[str]] = []
    queue = SoonQueue[str](clock, given.append)
    queue.request()
    clock.advance(0)
    assert given == [[]]


def test_queue_does_not_run_when_it_is_cancelled(clock: VirtualClock) -> None:
    queue = SoonQueue[str](clock, lambda _: pytest.fail("cancelled"))
    queue.add("a")
    queue.cancel()
    clock.advance(0)
