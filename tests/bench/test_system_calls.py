"""Number of system calls, turns of the loop and function calls per RPC, with one in flight.

Counted on asyncio's loop, whose calls of the C library are visible to a profile function. Every
RPC pays for one more of them with a microsecond or more, and a wake-up costs ten.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

import proxyless
import proxyless.sync
from proxyless.front.sync import background
from proxyless.runtime.forks import UnsharedSocket
from tests.worlds.raw_peers import ResettablePeer

METHOD = "/echo.Echo/Echo"
# Enough that a timer, or another rare wake-up, is a fraction of a call per RPC.
RPCS = 200
RARE = 0.1

# Functions of this package that run for a blocking RPC, in both threads: 67, with a margin.
BLOCKING_CALLS_MAX = 68

SYSTEM_CALLS = (
    "epoll.poll",
    "eventfd_read",
    "socket.recv",
    "socket.recv_into",
    "socket.send",
    "write",
)


class SystemCallCounter:
    """Counts calls in the threads that have it as their profile function: builtins, and ours."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.ours: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, function: Callable[..., object]) -> None:
        if event == "c_call":
            # The name has the class of the object, which may be a subclass of the socket.
            name = function.__qualname__.replace(UnsharedSocket.__name__, "socket")
            self.calls[name] += 1
        elif event == "call" and frame.f_globals.get("__name__", "").startswith("proxyless."):
            self.ours[frame.f_code.co_qualname] += 1

    def per_rpc(self) -> dict[str, float]:
        return {name: self.calls[name] / RPCS for name in SYSTEM_CALLS}


@pytest.fixture
def target() -> Iterator[str]:
    peer = ResettablePeer(b"reply")
    yield f"ipv4:{peer.address}"
    peer.reset()


async def test_asyncio_rpc_takes_one_write_one_read_and_two_turns(target: str) -> None:
    counter = SystemCallCounter()
    async with proxyless.aio.insecure_channel(target) as channel:
        unary = channel.unary_unary(METHOD)
        await unary(b"", wait_for_ready=True)
        sys.setprofile(counter)
        try:
            for _ in range(RPCS):
                await unary(b"", timeout=5.0)
        finally:
            sys.setprofile(None)
    # The second turn, which does not wait, is asyncio's way from a future to its task.
    expected = {"epoll.poll": 2, "socket.recv_into": 1, "write": 1}
    assert counter.per_rpc() == pytest.approx(dict.fromkeys(SYSTEM_CALLS, 0) | expected, abs=RARE)


@pytest.fixture
def asyncio_background(monkeypatch: pytest.MonkeyPatch) -> Iterator[background.Background]:
    """A background loop of asyncio, used by the channels of the test."""
    monkeypatch.setattr(background, "_new_loop", asyncio.new_event_loop)
    own = background.Background()
    monkeypatch.setattr(background, "_current", own)
    yield own
    own.stop()


def count_blocking_rpcs(
    target: str, own: background.Background, *, counts_caller: bool
) -> SystemCallCounter:
    counter = SystemCallCounter()
    with proxyless.sync.insecure_channel(target) as channel:
        unary = channel.unary_unary(METHOD)
        unary(b"", wait_for_ready=True)
        own.call(lambda: sys.setprofile(counter))
        sys.setprofile(counter if counts_caller else None)
        try:
            for _ in range(RPCS):
                unary(b"")
        finally:
            sys.setprofile(None)
        own.call(lambda: sys.setprofile(None))
    return counter


def test_blocking_rpc_wakes_the_loop_twice(
    target: str, asyncio_background: background.Background
) -> None:
    counter = count_blocking_rpcs(target, asyncio_background, counts_caller=False)
    # One turn sends the request and one receives the response.
    expected = {"epoll.poll": 2, "eventfd_read": 1, "socket.recv_into": 1, "write": 1}
    assert counter.per_rpc() == pytest.approx(dict.fromkeys(SYSTEM_CALLS, 0) | expected, abs=RARE)


def test_blocking_rpc_makes_few_function_calls(
    target: str, asyncio_background: background.Background
) -> None:
    counter = count_blocking_rpcs(target, asyncio_background, counts_caller=True)
    calls = counter.ours.total() / RPCS
    assert calls <= BLOCKING_CALLS_MAX, counter.ours.most_common(100)
