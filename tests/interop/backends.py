"""grpcio servers with a test service, as peers of our client.

The same test service twice, on `grpc.aio.server` and on the threads of `grpc.server`: two stacks
of handlers over grpcio's HTTP/2. Messages are bytes; metadata controls the methods.
"""

import asyncio
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc

from proxyless.base import Address, IpAddress, Metadata, UnixAddress, parse_address
from tests.worlds.transports import PATIENCE_S, SERVICE, until

LOOPBACK: Final = IpAddress("127.0.0.1", 0)
_THREADS: Final = 16
# By kind of call, with grpcio's names of handler constructors.
METHODS: Final = {
    "Echo": "unary_unary",
    "Fail": "unary_unary",
    "TimeLeft": "unary_unary",
    "Grow": "unary_unary",
    "Wait": "unary_unary",
    "Hang": "unary_unary",
    "Collect": "stream_unary",
    "Refuse": "stream_unary",
    "Repeat": "unary_stream",
    "PingPong": "stream_stream",
    "Listen": "stream_stream",
}


@dataclass
class Run:
    """One run of a handler."""

    is_complete: bool = False


@dataclass
class Seen:
    """Records of the handlers, which may run on threads of their own."""

    metadata: list[Metadata] = field(default_factory=list)
    started: int = 0
    cancelled: int = 0
    running_max: int = 0
    _running: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note_start(self, context: Any) -> Run:  # noqa: ANN401 - grpc has no types
        with self._lock:
            self.started += 1
            self.metadata.append(
                tuple((str(key), value) for key, value in context.invocation_metadata())
            )
        run = Run()
        # By this name on asyncio, and by the other on threads.
        call_at_end = getattr(context, "add_done_callback", None) or context.add_callback
        call_at_end(lambda *_: self._note_end(run))
        return run

    def _note_end(self, run: Run) -> None:
        with self._lock:
            self.cancelled += not run.is_complete

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count how many handlers are here at a time."""
        with self._lock:
            self._running += 1
            self.running_max = max(self.running_max, self._running)
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1


def reflect(seen: Seen, prefix: str) -> Metadata:
    """The pairs of the newest call whose key has this prefix."""
    return tuple(pair for pair in seen.metadata[-1] if pair[0].startswith(prefix))


def read_code(seen: Seen) -> grpc.StatusCode:
    """The status that the newest call requests."""
    number = int(dict(seen.metadata[-1])["code"])
    return next(code for code in grpc.StatusCode if code.value[0] == number)


def number_messages(request: bytes) -> Iterator[bytes]:
    """For a request "count size": that many messages, each beginning with its number."""
    count, size = map(int, request.split())
    for number in range(count):
        yield number.to_bytes(4, "big").ljust(size, b"r")


class AioMethods:
    """The methods on asyncio."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self.gate = asyncio.Event()

    async def echo(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401
        self._seen.note_start(context)
        await context.send_initial_metadata(reflect(self._seen, "x-"))
        context.set_trailing_metadata(reflect(self._seen, "t-"))
        return request

    async def fail(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401
        self._seen.note_start(context)
        context.set_trailing_metadata(reflect(self._seen, "t-"))
        await context.abort(read_code(self._seen), request.decode())
        raise AssertionError("abort raises")

    async def timeleft(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401
        return str(context.time_remaining()).encode()

    async def grow(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401
        return b"g" * int(request)

    async def wait(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401
        """Until the test opens the gate."""
        self._seen.note_start(context)
        with self._seen.running():
            await self.gate.wait()
        return request

    async def hang(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401
        """Until the client goes away."""
        self._seen.note_start(context)
        await asyncio.Event().wait()
        return b""

    async def collect(self, requests: AsyncIterator[bytes], context: Any) -> bytes:  # noqa: ANN401
        sizes = [len(request) async for request in requests]
        return f"{len(sizes)} {sum(sizes)}".encode()

    async def refuse(self, requests: AsyncIterator[bytes], context: Any) -> bytes:  # noqa: ANN401
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not for you")
        raise AssertionError("abort raises")

    async def repeat(self, request: bytes, context: Any) -> AsyncIterator[bytes]:  # noqa: ANN401
        run = self._seen.note_start(context)
        for message in number_messages(request):
            yield message
        run.is_complete = True

    async def pingpong(
        self,
        requests: AsyncIterator[bytes],
        context: Any,  # noqa: ANN401
    ) -> AsyncIterator[bytes]:
        run = self._seen.note_start(context)
        await context.send_initial_metadata(reflect(self._seen, "x-"))
        async for request in requests:
            yield request
        context.set_trailing_metadata(reflect(self._seen, "t-"))
        run.is_complete = True

    async def listen(
        self,
        requests: AsyncIterator[bytes],
        context: Any,  # noqa: ANN401
    ) -> AsyncIterator[bytes]:
        """Answer the first message, and then wait until the client goes away."""
        self._seen.note_start(context)
        yield await anext(requests)
        await asyncio.Event().wait()


def wait_for_end(context: Any) -> None:  # noqa: ANN401
    ended = threading.Event()
    if context.add_callback(ended.set):  # Not if the end has come already.
        assert ended.wait(PATIENCE_S)


class SyncMethods:
    """The methods on threads."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self.gate = threading.Event()

    def echo(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401
        self._seen.note_start(context)
        context.send_initial_metadata(reflect(self._seen, "x-"))
        context.set_trailing_metadata(reflect(self._seen, "t-"))
        return request

    def fail(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401
        self._seen.note_start(context)
        context.set_trailing_metadata(reflect(self._seen, "t-"))
        context.abort(read_code(self._seen), request.decode())
        raise AssertionError("abort raises")

    def timeleft(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401
        return str(context.time_remaining()).encode()

    def grow(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401
        return b"g" * int(request)

    def wait(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401
        self._seen.note_start(context)
        with self._seen.running():
            assert self.gate.wait(PATIENCE_S)
        return request

    def hang(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401
        self._seen.note_start(context)
        wait_for_end(context)
        return b""

    def collect(self, requests: Iterator[bytes], context: Any) -> bytes:  # noqa: ANN401
        sizes = [len(request) for request in requests]
        return f"{len(sizes)} {sum(sizes)}".encode()

    def refuse(self, requests: Iterator[bytes], context: Any) -> bytes:  # noqa: ANN401
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "not for you")
        raise AssertionError("abort raises")

    def repeat(self, request: bytes, context: Any) -> Iterator[bytes]:  # noqa: ANN401
        run = self._seen.note_start(context)
        yield from number_messages(request)
        run.is_complete = True

    def pingpong(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:  # noqa: ANN401
        run = self._seen.note_start(context)
        context.send_initial_metadata(reflect(self._seen, "x-"))
        yield from requests
        context.set_trailing_metadata(reflect(self._seen, "t-"))
        run.is_complete = True

    def listen(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:  # noqa: ANN401
        self._seen.note_start(context)
        yield next(requests)
        wait_for_end(context)


def handler_of(methods: AioMethods | SyncMethods) -> Any:  # noqa: ANN401
    handlers = {
        name: getattr(grpc, f"{kind}_rpc_method_handler")(getattr(methods, name.lower()))
        for name, kind in METHODS.items()
    }
    return grpc.method_handlers_generic_handler(SERVICE.strip("/"), handlers)


@dataclass(frozen=True)
class ServerOptions:
    """Options of a server."""

    place: Address = LOOPBACK
    credentials: Any = None
    compression: Any = None
    options: Sequence[tuple[str, Any]] = ()


class Backend(ABC):
    """A running server of either kind."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.address: Address = LOOPBACK

    @abstractmethod
    async def start(self, options: ServerOptions) -> None: ...

    @abstractmethod
    def open_gate(self) -> None:
        """Let every `Wait` continue."""

    @abstractmethod
    async def stop(self, grace_s: float | None = None) -> None:
        """End at once, or after the running calls. Idempotent."""

    def _bind(self, add_port: Callable[..., int], options: ServerOptions) -> None:
        target = str(options.place)
        credentials = options.credentials
        port = add_port(target, credentials) if credentials else add_port(target)
        match options.place:
            case IpAddress(host, _):
                self.address = IpAddress(host, port)
            case UnixAddress():
                self.address = options.place


# Two servers must not share a port by chance: then each would get some of the calls.
_ALWAYS: Final = (("grpc.so_reuseport", 0),)


class AioBackend(Backend):
    """On `grpc.aio.server`, in the loop of the test."""

    async def start(self, options: ServerOptions) -> None:
        self._methods = AioMethods(self.seen)
        self._server = grpc.aio.server(
            options=(*_ALWAYS, *options.options), compression=options.compression
        )
        self._server.add_generic_rpc_handlers((handler_of(self._methods),))
        secure, insecure = self._server.add_secure_port, self._server.add_insecure_port
        self._bind(secure if options.credentials else insecure, options)
        await self._server.start()

    def open_gate(self) -> None:
        self._methods.gate.set()

    async def stop(self, grace_s: float | None = None) -> None:
        await self._server.stop(grace_s)
        # It does not wait for the tasks of its own handlers.
        await until(lambda: not _list_rpc_tasks(), "grpcio's tasks to end")


def _list_rpc_tasks() -> list[str]:
    names = (task.get_name() for task in asyncio.all_tasks())
    return [name for name in names if name.startswith(("rpc_task", "HandleExceptions"))]


class SyncBackend(Backend):
    """On `grpc.server`, on threads."""

    async def start(self, options: ServerOptions) -> None:
        self._methods = SyncMethods(self.seen)
        self._pool = ThreadPoolExecutor(_THREADS)
        self._server = grpc.server(
            self._pool, options=(*_ALWAYS, *options.options), compression=options.compression
        )
        self._server.add_generic_rpc_handlers((handler_of(self._methods),))
        secure, insecure = self._server.add_secure_port, self._server.add_insecure_port
        self._bind(secure if options.credentials else insecure, options)
        self._server.start()

    def open_gate(self) -> None:
        self._methods.gate.set()

    async def stop(self, grace_s: float | None = None) -> None:
        stopped = self._server.stop(grace_s)
        await asyncio.to_thread(stopped.wait)
        self.open_gate()
        await asyncio.to_thread(self._pool.shutdown)


BACKENDS: Final[dict[str, type[Backend]]] = {"aio": AioBackend, "sync": SyncBackend}


async def _serve_until_killed() -> None:
    backend = AioBackend()
    await backend.start(ServerOptions())
    print(backend.address, flush=True)  # noqa: T201 - this is how the parent learns it
    await asyncio.Event().wait()


@contextmanager
def backend_process() -> Iterator[tuple[subprocess.Popen[bytes], Address]]:
    """A server in a process of its own, which can be killed."""
    command = (sys.executable, "-m", __name__)
    root = Path(__file__).parent.parent.parent
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process, parse_address(process.stdout.readline().decode().strip())
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(_serve_until_killed())
