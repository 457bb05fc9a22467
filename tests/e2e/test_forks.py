"""Forks of processes with asyncio channels: the child has connections of its own.

If connections were inherited, a child that closes its copy of a channel, or that ends in a way that
closes its loop, would break those of its parent: the parent's RPCs would end at their deadlines.
"""

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import pytest

from tests.certificates import CertificateAuthority

TIMEOUT_S = 50

START = """
import asyncio, gc, os, socket, sys, time
import grpc
import proxyless.aio

loop_name, target, kind, roots = sys.argv[1:5]
if loop_name == "uvloop":
    import uvloop
    loop = uvloop.new_event_loop()
else:
    loop = asyncio.new_event_loop()
path = "/test/Peer"

def open_channel():
    if kind == "tls":
        with open(roots, "rb") as file:
            credentials = grpc.ssl_channel_credentials(file.read())
        return proxyless.aio.secure_channel(target, credentials)
    return proxyless.aio.insecure_channel(target)

async def call(channel):
    return await channel.unary_unary(path)(b"", timeout=20)

def check_exit(child):
    assert os.waitpid(child, 0)[1] == 0
"""

STORIES = {
    "child uses and closes the channel on the same loop": """
        async def start():
            channel = open_channel()
            return channel, await call(channel)

        channel, mine = loop.run_until_complete(start())
        child = os.fork()
        if not child:
            theirs = {loop.run_until_complete(call(channel)) for _ in range(3)}
            assert len(theirs) == 1 and mine not in theirs, (mine, theirs)
            loop.run_until_complete(channel.close())
            sys.exit(0)
        check_exit(child)
        assert loop.run_until_complete(call(channel)) == mine
        loop.run_until_complete(channel.close())
    """,
    "child uses and closes the channel on another loop": """
        async def start():
            channel = open_channel()
            mine = await call(channel)
            child = os.fork()
            if not child:
                async def use():
                    theirs = await call(channel)
                    assert theirs not in (b"", mine)
                    await channel.close()
                asyncio.run(use())
                os._exit(0)
            check_exit(child)
            assert await call(channel) == mine
            await channel.close()

        loop.run_until_complete(start())
    """,
    "child that was forked by a coroutine exits": """
        async def start():
            channel = open_channel()
            mine = await call(channel)
            child = os.fork()
            if not child:
                sys.exit(0)
            check_exit(child)
            assert await call(channel) == mine
            await channel.close()

        def run():
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(start())

        run()
    """,
    "child drops the channel and a call under way": """
        async def start():
            channel = open_channel()
            stream = channel.unary_stream("/test/Endless")(b"")
            mine = await stream.read()
            child = os.fork()
            if not child:
                del channel, stream
                gc.collect()
                os._exit(0)
            check_exit(child)
            for _ in range(20):
                assert await stream.read() == mine
            stream.cancel()
            await channel.close()

        loop.run_until_complete(start())
    """,
}

# The child outlives the channel of its parent, and ends when its standard input is closed.
RELEASED = """
    def fork():
        if not os.fork():
            sys.stdin.read()
            os._exit(0)

    async def start():
        channel = open_channel()
        channel.get_state(try_to_connect=True)
        await asyncio.to_thread(sys.stdin.readline)
        fork()
        await channel.close()

    if kind == "blocking":
        import proxyless
        channel = proxyless.insecure_channel(target)
        channel.subscribe(lambda state: None, try_to_connect=True)
        sys.stdin.readline()
        fork()
        channel.close()
    else:
        loop.run_until_complete(start())
"""

# The channel is not connected yet, and its sockets are the only ones with IP addresses.
CONNECTING = """
    def find_sockets():
        found = []
        for name in os.listdir("/proc/self/fd"):
            path = "/proc/self/fd/" + name
            if os.path.lexists(path) and os.readlink(path).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as sock:
                    if sock.family == socket.AF_INET:
                        found.append(name)
        return found

    async def start():
        channel = open_channel()
        channel.get_state(try_to_connect=True)
        while not find_sockets():
            await asyncio.sleep(0.01)
        child = os.fork()
        if not child:
            os._exit(len(find_sockets()))
        check_exit(child)
        assert find_sockets()
        await channel.close()

    loop.run_until_complete(start())
"""


def answer(_request: bytes, context: grpc.ServicerContext) -> bytes:
    return str(context.peer()).encode()


def answer_for_ever(_request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    while context.is_active():
        yield answer(b"", context)


class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        if details.method.endswith("Endless"):
            return grpc.unary_stream_rpc_method_handler(answer_for_ever)
        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[str, str]]]:
    """By kind of connection: the target of a server, and a file with its root certificate."""
    authority = CertificateAuthority()
    chain, key = authority.issue(["127.0.0.1"])
    roots = tmp_path_factory.mktemp("certificates") / "roots.pem"
    roots.write_bytes(authority.certificate_pem)
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Handler(),))
    plain = server.add_insecure_port("127.0.0.1:0")
    tls = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    server.start()
    yield {"plain": (f"127.0.0.1:{plain}", ""), "tls": (f"127.0.0.1:{tls}", str(roots))}
    server.stop(None).wait()


def make_script(story: str) -> str:
    return START + textwrap.dedent(story)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("kind", ["plain", "tls"])
@pytest.mark.parametrize("story", STORIES)
def test_connections_of_the_parent_are_not_affected_when(
    story: str, kind: str, loop: str, targets: dict[str, tuple[str, str]]
) -> None:
    run_story(STORIES[story], loop, kind, *targets[kind])


def run_story(story: str, loop: str, kind: str, target: str, roots: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", make_script(story), loop, target, kind, roots],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="/proc, and how a full backlog is handled")
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("step", ["connect", "TLS handshake"])
def test_child_does_not_keep_sockets_of_attempts_open(
    step: str, loop: str, targets: dict[str, tuple[str, str]]
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as others:
        if step == "connect":
            # The backlog is full, so the next attempts are not answered.
            for _ in range(4):
                other = others.enter_context(socket.socket())
                other.setblocking(False)
                other.connect_ex(listener.getsockname())
        kind = "plain" if step == "connect" else "tls"
        target = f"127.0.0.1:{listener.getsockname()[1]}"
        run_story(CONNECTING, loop, kind, target, targets["tls"][1])


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("kind", ["plain", "blocking"])
def test_child_does_not_keep_connections_of_its_parent_open(kind: str, loop: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = f"127.0.0.1:{listener.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-c", make_script(RELEASED), loop, target, kind, ""],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdin is not None
        listener.settimeout(TIMEOUT_S)
        connection, _ = listener.accept()
        with connection, process.stdin:
            connection.settimeout(TIMEOUT_S)
            assert connection.recv(4), "the connection is open"
            process.stdin.write(b"fork\n")
            process.stdin.flush()
            while connection.recv(4096):
                pass  # Until the connection is closed, while the child is alive.
        assert process.wait(TIMEOUT_S) == 0
