"""Unit tests of the notification queue."""

from collections.abc import Callable
from functools import partial

import pytest

from proxyless.runtime import VirtualClock
from proxyless.xds.client.notifications import (
    ITEMS_PER_TURN,
    NotificationQueue,
    ResourceNotification,
    Watch,
)
from tests.worlds.xds_clients import WatchRecorder


def test_queue_runs_notifications_and_callbacks_in_their_order_in_the_next_turn() -> None:
    clock, order = VirtualClock(), list[str]()
    queue = NotificationQueue(clock)
    recorder = WatchRecorder(lambda: order.append("watcher"))
    queue.call(lambda: order.append("first"))
    queue.notify((Watch(recorder), Watch(recorder)), ResourceNotification("v1"))
    queue.call(lambda: order.append("last"))
    assert (order, clock.timers_pending) == ([], 1)
    clock.advance(0)
    assert order == ["first", "watcher", "watcher", "last"]
    assert clock.timers_pending == 0


def test_queue_runs_what_is_added_during_a_turn_in_the_turn_after() -> None:
    clock = VirtualClock()
    queue = NotificationQueue(clock)
    order: list[str] = []

    def add() -> None:
        queue.call(lambda: order.append("added"))
        # Runs behind the queue's own timer of this turn, and before that of the next one.
        clock.call_later(0, lambda: order.append("turn ends"))

    clock.call_later(0, lambda: order.append("turn starts"))
    queue.call(add)
    queue.call(lambda: order.append("queued"))
    clock.advance(0)
    assert order == ["turn starts", "queued", "added", "turn ends"]


def test_queue_calls_no_watcher_when_its_watch_is_cancelled() -> None:
    clock, recorder = VirtualClock(), WatchRecorder()
    queue, watch = NotificationQueue(clock), Watch(recorder)
    queue.notify((watch,), ResourceNotification("v1"))
    watch.is_cancelled = True
    clock.advance(0)
    assert recorder.take() == []


@pytest.mark.parametrize("is_during_run", [False, True])
def test_queue_calls_nothing_when_it_is_closed(is_during_run: bool) -> None:
    clock, recorder = VirtualClock(), WatchRecorder()
    queue = NotificationQueue(clock)
    if is_during_run:
        queue.call(queue.close)
    queue.notify((Watch(recorder),), ResourceNotification("v1"))
    if not is_during_run:
        queue.close()
    clock.advance(0)
    queue.call(lambda: recorder.on_resource("v2"))
    clock.advance(0)
    assert (recorder.take(), clock.timers_pending) == ([], 0)


def test_queue_calls_the_others_when_a_callback_raises() -> None:
    clock, recorder = VirtualClock(), WatchRecorder()
    queue = NotificationQueue(clock)
    queue.call(_fail)
    queue.notify((Watch(recorder),), ResourceNotification("v1"))
    _expect_failure(lambda: clock.advance(0))
    clock.advance(0)
    assert recorder.take() == ["v1"]


def _fail() -> None:
    raise RuntimeError("bug")


def _expect_failure(run: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match="bug"):
        run()


def test_queue_runs_many_items_in_several_turns_in_their_order() -> None:
    clock, order = VirtualClock(), list[int]()
    queue = NotificationQueue(clock)
    count = 2 * ITEMS_PER_TURN + 1
    per_turn: list[int] = []
    for number in range(count):
        queue.call(partial(order.append, number))
    while clock.timers_pending:
        before = len(order)
        queue._run()
        per_turn.append(len(order) - before)
        if len(order) == count:
            break
    assert per_turn == [ITEMS_PER_TURN, ITEMS_PER_TURN, 1]
    assert order == list(range(count))
