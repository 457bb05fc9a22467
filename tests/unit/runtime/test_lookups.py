"""Unit tests of proxyless.runtime.lookups, with real threads."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from queue import SimpleQueue
from threading import Event, Thread, current_thread

import pytest

from proxyless.runtime import lookups as module
from proxyless.runtime.lookups import (
    ADDRESSES_PER_NAME_MAX,
    BUSY_MAX,
    LOOKUP_THREADS_MAX,
    SLOW_LOOKUP_S,
    Answer,
    LookupThreads,
    NameKind,
    resolve_by_system,
)
from tests.worlds.transports import PATIENCE_S


class System:
    """A resolver whose look-ups of names in `silent` hang until they are released."""

    def __init__(self, *silent: str) -> None:
        self.silent = {name: Event() for name in silent}
        self.began: list[str] = []
        self.begins: SimpleQueue[str] = SimpleQueue()
        self.now = 0.0
        self.threads: set[Thread] = set()

    def resolve(self, name: str) -> Answer:
        self.began.append(name)
        self.begins.put(name)
        self.threads.add(current_thread())
        if name in self.silent:
            assert self.silent[name].wait(PATIENCE_S)
        return [f"addr of {name}"]

    def now_s(self) -> float:
        return self.now


class Caller:
    """A request and its answer."""

    def __init__(self, lookups: LookupThreads, name: str) -> None:
        self.answers: list[Answer] = []
        self._came = Event()
        self.cancel = lookups.look_up(name, self._on_answer)

    def _on_answer(self, answer: Answer) -> None:
        self.answers.append(answer)
        self._came.set()

    def wait(self) -> Answer:
        assert self._came.wait(PATIENCE_S)
        [answer] = self.answers
        return answer


SMALL = {NameKind.LOCAL: 5, NameKind.ANSWERED: 4, NameKind.NEW: 3, NameKind.SLOW: 2}


@pytest.fixture
def system() -> Iterator[System]:
    system = System(*(f"silent-{number}" for number in range(9)))
    yield system
    for event in system.silent.values():
        event.set()


def make(system: System) -> LookupThreads:
    return LookupThreads(system.resolve, busy_max=SMALL, now_s=system.now_s)


def test_answer_comes_from_a_daemon_thread(system: System) -> None:
    assert Caller(make(system), "a").wait() == ["addr of a"]
    [thread] = system.threads
    assert thread is not current_thread()
    assert thread.daemon


def test_callers_of_one_name_share_a_look_up(system: System) -> None:
    lookups = make(system)
    callers = [Caller(lookups, "silent-0") for _ in range(10)]
    assert lookups.busy == 1
    system.silent["silent-0"].set()
    assert [each.wait() for each in callers] == [["addr of silent-0"]] * 10
    assert system.began == ["silent-0"]
    again = Caller(lookups, "silent-0")
    again.wait()
    assert system.began == ["silent-0"] * 2, "an answer is not kept"


def test_new_names_that_hang_leave_threads_for_names_that_answered(system: System) -> None:
    lookups = make(system)
    Caller(lookups, "fast").wait()
    silent = [Caller(lookups, f"silent-{number}") for number in range(9)]
    assert (lookups.busy, lookups.waiting) == (3, 6)
    assert Caller(lookups, "fast").wait() == ["addr of fast"]
    assert Caller(lookups, "localhost").wait() == ["addr of localhost"]
    new = Caller(lookups, "new")
    assert not new.answers, "three threads are busy with new names"
    for event in system.silent.values():
        event.set()
    for each in (*silent, new):
        each.wait()
    # In the order of the requests.
    assert [each for each in system.began if each.startswith(("silent", "new"))] == [
        *(f"silent-{number}" for number in range(9)),
        "new",
    ]


def make_slow(system: System, lookups: LookupThreads, *names: str) -> None:
    for name in names:
        system.silent[name].clear()
        caller = Caller(lookups, name)
        while system.begins.get(timeout=PATIENCE_S) != name:
            pass
        system.now += SLOW_LOOKUP_S
        system.silent[name].set()
        caller.wait()
        system.silent[name].clear()


def test_slow_names_that_hang_leave_threads_for_new_names(system: System) -> None:
    lookups = make(system)
    make_slow(system, lookups, "silent-0", "silent-1", "silent-2", "silent-3")
    silent = [Caller(lookups, f"silent-{number}") for number in range(4)]
    assert (lookups.busy, lookups.waiting) == (2, 2)
    assert Caller(lookups, "new").wait() == ["addr of new"]
    for event in system.silent.values():
        event.set()
    for each in silent:
        each.wait()


def test_a_slow_name_that_answers_in_time_is_slow_no_more(system: System) -> None:
    lookups = make(system)
    make_slow(system, lookups, "silent-0")
    assert lookups._kind_of("silent-0") is NameKind.SLOW
    system.silent["silent-0"].set()
    Caller(lookups, "silent-0").wait()
    assert lookups._kind_of("silent-0") is NameKind.ANSWERED


def test_localhost_has_a_thread_when_all_others_are_busy(system: System) -> None:
    lookups = make(system)
    for number in range(4):
        system.silent[f"silent-{number}"].set()
        Caller(lookups, f"silent-{number}").wait()
        system.silent[f"silent-{number}"].clear()
    callers = [Caller(lookups, f"silent-{number}") for number in range(4)]
    assert lookups.busy == SMALL[NameKind.ANSWERED]
    for name in ("localhost", "LocalHost", "localhost."):
        assert Caller(lookups, name).wait() == [f"addr of {name}"]
    for event in system.silent.values():
        event.set()
    for each in callers:
        each.wait()


def test_a_cancelled_request_gets_no_answer_and_a_waiting_look_up_is_dropped(
    system: System,
) -> None:
    lookups = make(system)
    running = [Caller(lookups, f"silent-{number}") for number in range(3)]
    waiting, other = Caller(lookups, "silent-3"), Caller(lookups, "silent-3")
    waiting.cancel()
    assert lookups.waiting == 1, "another caller still waits for it"
    other.cancel()
    other.cancel()
    assert lookups.waiting == 0
    running[0].cancel()
    assert lookups.busy == 3, "the system's call cannot be cancelled"
    joined = Caller(lookups, "silent-0")
    for event in system.silent.values():
        event.set()
    joined.wait()
    assert not any((running[0].answers, waiting.answers, other.answers))
    assert system.began.count("silent-0") == 1
    assert "silent-3" not in system.began


def test_threads_in_total_are_bounded() -> None:
    system = System(*(f"name-{number}" for number in range(200)))
    lookups = LookupThreads(system.resolve)
    callers = [Caller(lookups, name) for name in system.silent]
    assert lookups.busy == BUSY_MAX[NameKind.NEW]
    assert lookups._threads.threads == BUSY_MAX[NameKind.NEW] < LOOKUP_THREADS_MAX
    for event in system.silent.values():
        event.set()
    for caller in callers:
        caller.wait()
    assert len(system.threads) <= BUSY_MAX[NameKind.NEW]


def test_look_ups_fail_while_no_thread_can_be_started(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups = make(system)

    def refuse(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", refuse)
        answer = Caller(lookups, "a").wait()
    assert isinstance(answer, OSError)
    assert "no thread could be started" in str(answer)
    assert (lookups.busy, lookups.waiting) == (0, 0)
    assert Caller(lookups, "a").wait() == ["addr of a"]


def test_a_resolver_that_raises_is_an_error_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_: str) -> Answer:
        raise ZeroDivisionError("broken resolver")

    lookups = LookupThreads(broken)
    answer = Caller(lookups, "a").wait()
    assert isinstance(answer, OSError)
    assert "broken resolver" in str(answer)
    assert "broken resolver" in caplog.text
    assert lookups.busy == 0


def test_addresses_beyond_the_limit_are_dropped_and_logged_once_per_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    many = [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(100_000)]
    lookups = LookupThreads(lambda _: many)
    for _ in range(3):
        assert Caller(lookups, "many.test").wait() == many[:ADDRESSES_PER_NAME_MAX]
    [record] = caplog.records
    assert record.getMessage() == (
        "name 'many.test' has more than 4096 addresses: the others are not used"
    )


def test_number_of_remembered_names_is_bounded(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REMEMBERED_NAMES_MAX", 2)
    lookups = make(system)
    for name in ("a", "b", "a", "c"):
        Caller(lookups, name).wait()
    assert lookups._kind_of("b") is NameKind.NEW
    assert lookups._kind_of("a") is lookups._kind_of("c") is NameKind.ANSWERED


# The system's resolver


def test_repeated_addresses_are_dropped_in_the_systems_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def getaddrinfo(host: str, port: None, *, type: int) -> list[tuple[object, ...]]:  # noqa: A002
        assert type == socket.SOCK_STREAM, "other types only repeat the addresses"
        sockaddrs = [("2001:db8::1", 0, 0, 0), ("192.0.2.1", 0), ("2001:db8::1", 0, 0, 0)]
        return [(None, type, 6, "", sockaddr) for sockaddr in sockaddrs]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert resolve_by_system("x.test") == ["2001:db8::1", "192.0.2.1"]


@pytest.mark.parametrize("name", ["a..b", "x" * 64, "\udc80", "a\0b"])
def test_invalid_name_does_not_exist(name: str) -> None:
    error = resolve_by_system(name)
    assert isinstance(error, socket.gaierror)
    assert error.errno == socket.EAI_NONAME
    assert "is not a valid name" in str(error)


# In a process of its own: a forked child of pytest that fails would be a second pytest.
FORK = """
import os, socket, threading
from proxyless.runtime.lookups import lookup_threads

may_end, began = threading.Event(), threading.Event()
def getaddrinfo(*args, **kwargs):
    began.set()
    may_end.wait(20)
    return []
real, socket.getaddrinfo = socket.getaddrinfo, getaddrinfo
lookup_threads().look_up("x.test", print)
assert began.wait(20)
with lookup_threads()._lock:  # As another thread may hold it when the process is forked.
    child = os.fork()
    if child == 0:
        socket.getaddrinfo, came = real, threading.Event()
        lookup_threads().look_up("localhost", lambda answer: came.set())
        os._exit(0 if came.wait(20) and lookup_threads().busy <= 1 else 1)
may_end.set()
assert os.waitpid(child, 0)[1] == 0
"""


def test_the_child_of_a_fork_has_look_ups_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=50)
