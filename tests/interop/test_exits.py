"""Exits of the interpreter with blocking channels in every state, many times each.

A process imports everything once and forks for each exit: the child uses a channel for the first
time and ends as a process usually does, with everything freed. It must not crash, must not print,
and must not wait for look-ups that hang. `PROXYLESS_EXITS` is the number of exits of each kind.
"""

import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

EXITS = int(os.environ.get("PROXYLESS_EXITS", "10"))
# Generous: an exit takes 0.2 s. A look-up hangs for an hour.
EXIT_TIMEOUT_S = 200.0 + EXITS

HELPER = """
import os, socket, sys, threading, time

loop, runs, targets = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
if loop == "asyncio":
    sys.modules["uvloop"] = None
import proxyless.assembly, proxyless.front.sync.channel, proxyless.sync

by_system = socket.getaddrinfo

def getaddrinfo(host, *args, **kwargs):
    if "silent" in host:
        time.sleep(3600)
    return by_system(host, *args, **kwargs)

socket.getaddrinfo = getaddrinfo

def scenario(channels):
{scenario}

def run():
    global channels
    channels = [proxyless.sync.insecure_channel(target) for target in targets]
    scenario(channels)

statuses = []
for number in range(runs):
    if number >= 2:  # Two at a time.
        statuses.append(os.wait()[1])
    if not os.fork():
        run()
        sys.exit(0)
while len(statuses) < runs:
    statuses.append(os.wait()[1])
print({{status: statuses.count(status) for status in set(statuses)}})
"""

CONNECT = "for each in channels: each.subscribe(lambda state: None, try_to_connect=True)"
CALL = "calls.extend(each.unary_unary('/a/b').future(b'') for each in channels)"
STORIES = {
    "open": CONNECT,
    "closed": f"{CONNECT}\nfor each in channels: each.close()",
    "rpc hangs": f"global calls; calls = []\n{CALL}\ntime.sleep(0.02)",
    "rpc hangs, closed": f"global calls; calls = []\n{CALL}\nfor each in channels: each.close()",
    "daemon waits": """
        for each in channels:
            call = each.unary_unary("/a/b")
            threading.Thread(target=call, args=(b"",), daemon=True).start()
        time.sleep(0.02)
    """,
    "in a thread": f"""
        def in_thread():
            {CONNECT}
        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()
    """,
}
STREAM = """
    global stream
    stream = channels[0].unary_stream("/a/b")(b"")
    next(stream)
"""


@contextmanager
def silent_server() -> Iterator[str]:
    """The address of a listener that never sends anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def streaming_server() -> Iterator[str]:
    """The address of a server that sends a message every 2 ms."""

    def stream(_request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        while context.is_active():
            yield b"x"
            time.sleep(0.002)

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, _details: object) -> grpc.RpcMethodHandler:
            return grpc.unary_stream_rpc_method_handler(stream)

    server = grpc.server(ThreadPoolExecutor(EXITS))
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def exit_many_times(scenario: str, loop: str, *targets: str) -> None:
    body = textwrap.indent(textwrap.dedent(scenario).strip("\n"), "    ")
    done = subprocess.run(
        [sys.executable, "-c", HELPER.format(scenario=body), loop, str(EXITS), *targets],
        capture_output=True,
        text=True,
        timeout=EXIT_TIMEOUT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONFAULTHANDLER": "1"},
    )
    assert (done.stdout, done.stderr, done.returncode) == (f"{{0: {EXITS}}}\n", "", 0)


pytestmark = pytest.mark.timeout(EXIT_TIMEOUT_S + 100)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("kind", STORIES)
def test_interpreter_exits_cleanly_while_a_server_is_silent(kind: str, loop: str) -> None:
    with silent_server() as target:
        exit_many_times(STORIES[kind], loop, target)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("kind", STORIES)
def test_interpreter_exits_cleanly_while_look_ups_hang(kind: str, loop: str) -> None:
    exit_many_times(STORIES[kind], loop, *(f"n{number}.silent.test:80" for number in range(6)))


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_interpreter_exits_cleanly_while_a_stream_is_received(loop: str) -> None:
    with streaming_server() as target:
        exit_many_times(STREAM, loop, target)
