"""ConnectQueue: holders take turns, and the ends of backoffs come last."""

from collections.abc import Callable

from proxyless.channel.connect_queue import UNITS_PER_STEP, ConnectQueue
from proxyless.runtime import VirtualClock, WorkQueue
from proxyless.runtime.work_queue import UNITS_PER_TURN

STEPS_PER_TURN = UNITS_PER_TURN // UNITS_PER_STEP


def recorder(log: list[str], text: str) -> Callable[[], None]:
    return lambda: log.append(text)


def test_few_attempts_start_at_once() -> None:
    log: list[str] = []
    queue = ConnectQueue(WorkQueue(VirtualClock()))
    for number in range(STEPS_PER_TURN):
        queue.add("holder", recorder(log, str(number)))
    assert log == [str(number) for number in range(STEPS_PER_TURN)]
    assert not queue.by_holder


def test_holder_with_many_attempts_does_not_delay_another() -> None:
    log: list[str] = []
    clock = VirtualClock()
    queue = ConnectQueue(WorkQueue(clock))
    for _ in range(1000):
        queue.add("large", recorder(log, "large"))
    queue.add("small", recorder(log, "small"))
    assert log == ["large"] * STEPS_PER_TURN
    clock.advance(0)
    assert log.index("small") == STEPS_PER_TURN + 1
    assert log.count("large") == 1000
    assert not queue.by_holder


def test_ends_of_backoffs_come_after_new_attempts() -> None:
    log: list[str] = []
    clock = VirtualClock()
    queue = ConnectQueue(WorkQueue(clock))
    for _ in range(2 * STEPS_PER_TURN):
        queue.add_backoff_end(recorder(log, "backoff"))
    for _ in range(STEPS_PER_TURN // 2):
        queue.add("new", recorder(log, "new"))
    del log[:STEPS_PER_TURN]
    clock.advance(0)
    # One step of the background first, so that it cannot starve.
    assert log[: 1 + STEPS_PER_TURN // 2] == ["backoff"] + ["new"] * (STEPS_PER_TURN // 2)
    assert log.count("backoff") == STEPS_PER_TURN


def test_step_that_adds_a_step_is_not_lost() -> None:
    log: list[str] = []
    queue = ConnectQueue(WorkQueue(VirtualClock()))
    queue.add("holder", lambda: queue.add("holder", recorder(log, "second")))
    assert log == ["second"]
    assert not queue.by_holder
