"""Counters of RPCs: one per loop, summed for the process, removed when unused."""

import asyncio
import os

from hypothesis import given
from hypothesis import strategies as st

from proxyless.xds.lb.cluster_impl.call_counters import PROCESS_COUNTERS, CallCounter, CallCounters

KEY = ("cluster", "service")


def test_policies_of_one_loop_share_a_counter() -> None:
    counters = CallCounters()
    one, two = counters.acquire(KEY), counters.acquire(KEY)
    assert one is two
    one.active += 3
    assert two.total() == 3
    assert counters.acquire(("cluster", "")).total() == 0


def test_counters_of_all_loops_are_summed() -> None:
    counters = CallCounters()

    async def acquire() -> CallCounter:
        return counters.acquire(KEY)

    loops = [asyncio.new_event_loop() for _ in range(3)]
    try:
        found = [loop.run_until_complete(acquire()) for loop in loops]
    finally:
        for loop in loops:
            loop.close()
    assert len({id(each) for each in found}) == 3
    for number, counter in enumerate(found, 1):
        counter.active += number
    assert [each.total() for each in found] == [6, 6, 6]
    for counter in found:
        counter.release()
    assert found[0].total() == 6, "RPCs in flight are still counted"
    for counter in found:
        while counter.active:
            counter.end_call()
    assert len(counters._by_key) == 0


@given(st.lists(st.sampled_from(["acquire", "release", "start", "end"]), max_size=30))
def test_counter_is_removed_when_it_has_no_policies_and_no_rpcs(steps: list[str]) -> None:
    counters = CallCounters()
    held: list[CallCounter] = []
    running: list[CallCounter] = []
    for step in steps:
        if step == "acquire":
            held.append(counters.acquire(KEY))
        elif step == "release" and held:
            held.pop().release()
        elif step == "start" and held:
            held[-1].active += 1
            running.append(held[-1])
        elif step == "end" and running:
            running.pop().end_call()
        assert len(counters._by_key) == bool(held or running)
        if held:
            assert held[-1].total() == len(running)


def test_rpcs_of_a_closed_loop_are_not_counted() -> None:
    counters = CallCounters()

    async def start_call() -> CallCounter:
        counter = counters.acquire(KEY)
        counter.active += 1
        return counter

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        left_behind = first.run_until_complete(start_call())
        first.close()
        assert second.run_until_complete(start_call()).total() == 1
        left_behind.end_call()
        assert len(counters._by_key) == 1
    finally:
        first.close()
        second.close()


def test_forked_process_has_no_rpcs_in_flight() -> None:
    counter = PROCESS_COUNTERS.acquire(KEY)
    counter.active += 1
    try:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = PROCESS_COUNTERS.acquire(KEY).total()
            finally:  # A child process that raises would continue as a second pytest.
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert counter.total() == 1
    finally:
        counter.release()
        counter.end_call()
