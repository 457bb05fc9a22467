"""The process of one xDS client in the scale benchmark.

    python -m bench.scale_child CLIENT CONTROL_PLANE

One JSON line per order on stdin, one JSON line per answer on stdout; the end of stdin ends the
process. Times are monotonic seconds, which all processes of a machine share.
"""

import asyncio
import cProfile
import io
import json
import os
import pstats
import resource
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import grpc

from bench.child import new_loop
from bench.clients import CLIENTS, METHOD, TARGET, ClientUnavailableError
from bench.clients.grpc_aio_xds import make_bootstrap, set_bootstrap
from bench.pacing import run_paced

ORDER_LIMIT_BYTES = 1 << 20
# A backend answers it with its own address.
WHO = b"\xffWHO"
ERRORS_SHOWN = 3
PROFILE_LINES = 45
FOREVER_S = 3600.0
MILLI = 1000.0
# Capacity of the cache of TLS sessions; one server name needs one.
SESSIONS = 16

# Modules of our client, and of grpcio's.
LIBRARIES = (
    (
        "proxyless.aio",
        "proxyless.xds.stack",
        "proxyless.xds.lb.cds",
        "proxyless.xds.lb.cluster_manager",
    ),
    ("grpc.aio",),
)

# grpcio's objects have no types.
Untyped = Any


def open_channel(client: str, control_plane: str) -> Untyped:
    """A channel to the target of all meshes; imports only the library of this client."""
    if client == "grpc_aio_xds":
        set_bootstrap(control_plane)
        import grpc.aio  # noqa: PLC0415

        return grpc.aio.insecure_channel(TARGET)
    import proxyless  # noqa: PLC0415

    return proxyless.aio.insecure_channel(TARGET, bootstrap=make_bootstrap(control_plane))


def open_tls_channel(client: str, addresses: Sequence[str], directory: Path) -> Untyped:
    """A channel with TLS to each of the addresses, whose connections resume sessions."""
    from grpc.experimental import session_cache  # noqa: PLC0415

    from bench.certificates import channel_credentials, channel_options  # noqa: PLC0415
    from bench.clients.grpc_aio_rr import ROUND_ROBIN  # noqa: PLC0415

    cache = session_cache.ssl_session_cache_lru(SESSIONS)
    options = (*ROUND_ROBIN, *channel_options(), ("grpc.ssl_session_cache", cache))
    arguments = (f"ipv4:{','.join(addresses)}", channel_credentials(directory))
    if client == "grpc_aio_xds":
        import grpc.aio  # noqa: PLC0415

        return grpc.aio.secure_channel(*arguments, options=options)
    import proxyless  # noqa: PLC0415

    return proxyless.aio.secure_channel(*arguments, options=options)


class Load:
    """RPCs in the background, in a closed or an open loop, and their results."""

    def __init__(self, call: Callable[[bytes], Untyped], order: Mapping[str, Any]) -> None:
        self._call = call
        self.rpcs = 0
        self.errors: list[str] = []
        self.max_s = 0.0
        # The time of each backend's first answer.
        self.first_seen: dict[str, float] = {}
        self._awaited: dict[str, asyncio.Future[None]] = {}
        self._is_over = False
        self._tasks = [
            asyncio.create_task(self._repeat()) for _ in range(order.get("concurrency", 0))
        ]
        self._is_paced = "rate_per_s" in order
        if self._is_paced:
            self._tasks.append(asyncio.create_task(self._pace(order["rate_per_s"])))

    async def stop(self) -> dict[str, object]:
        self._is_over = True
        if self._is_paced:
            # It does not end by itself.
            self._tasks[-1].cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return {
            "rpcs": self.rpcs,
            "failed": len(self.errors),
            "errors": self.errors[:ERRORS_SHOWN],
            "max_ms": self.max_s * MILLI,
        }

    async def wait_for(self, backend: str) -> float:
        """Wait until this backend has answered; returns the time of its first answer."""
        if backend not in self.first_seen:
            self._awaited[backend] = asyncio.get_running_loop().create_future()
            await self._awaited[backend]
        return self.first_seen[backend]

    async def _repeat(self) -> None:
        while not self._is_over:
            await self._once()

    async def _pace(self, rate_per_s: float) -> None:
        await run_paced(self._once, rate_per_s, FOREVER_S)

    async def _once(self) -> None:
        begin_s = time.monotonic()
        self.rpcs += 1
        try:
            backend = bytes(await self._call(WHO)).decode()
        except grpc.RpcError as error:
            self.errors.append(str(error))
            return
        end_s = time.monotonic()
        self.max_s = max(self.max_s, end_s - begin_s)
        if backend not in self.first_seen:
            self.first_seen[backend] = end_s
            if backend in self._awaited:
                self._awaited[backend].set_result(None)


class Session:
    """One client and its channel. Each `do_` method carries out one kind of order."""

    def __init__(self, client: str, control_plane: str) -> None:
        self._client = client
        self._control_plane = control_plane
        # None until it is open.
        self._channel: Untyped = None
        self._unary: Untyped = None
        self._load: Load | None = None
        self._profiler: cProfile.Profile | None = None

    async def execute_order(self, order: Mapping[str, Any]) -> Mapping[str, object]:
        """Carry out one order: the method with its name."""
        method = getattr(self, f"do_{order['do']}", None)
        if method is None:
            raise ValueError(f"unknown order {order!r}")
        answered: Mapping[str, object] = await method(order)
        return answered

    async def do_open(self, _order: Mapping[str, Any]) -> dict[str, object]:
        """Open the channel and start connecting, without waiting."""
        at_s, cpu_s = time.monotonic(), time.process_time()
        self._connect(open_channel(self._client, self._control_plane))
        return {"at_s": at_s, "cpu_s": cpu_s}

    async def do_open_tls(self, order: Mapping[str, Any]) -> dict[str, object]:
        """The same without a control plane, with TLS."""
        at_s, cpu_s = time.monotonic(), time.process_time()
        directory = Path(order["certificates"])
        self._connect(open_tls_channel(self._client, order["addresses"], directory))
        return {"at_s": at_s, "cpu_s": cpu_s}

    def _connect(self, channel: Untyped) -> None:
        self._channel = channel
        self._unary = channel.unary_unary(METHOD)
        channel.get_state(try_to_connect=True)

    async def do_rpc(self, order: Mapping[str, Any]) -> dict[str, object]:
        """Make one wait-for-ready RPC; returns the backend and the time."""
        metadata = tuple(map(tuple, order.get("metadata", ())))
        backend = await self._unary(WHO, metadata=metadata, wait_for_ready=True, timeout=60.0)
        return {
            "backend": bytes(backend).decode(),
            "at_s": time.monotonic(),
            "cpu_s": time.process_time(),
        }

    async def do_usage(self, _order: Mapping[str, Any]) -> dict[str, object]:
        """The CPU that the process has used, and its memory now."""
        with open("/proc/self/statm") as statm:  # noqa: ASYNC230 - /proc is not on a disk
            pages = int(statm.read().split()[1])
        rss_kb = pages * resource.getpagesize() / 1000
        return {"cpu_s": time.process_time(), "at_s": time.monotonic(), "rss_kb": rss_kb}

    async def do_repeat(self, order: Mapping[str, Any]) -> dict[str, object]:
        """Make RPCs one after the other for a while; returns their number and CPU."""
        metadata = tuple(map(tuple, order.get("metadata", ())))
        unary, message, count = self._unary, b"x" * 16, 0
        cpu_s, until_s = time.process_time(), time.monotonic() + order["duration_s"]
        while time.monotonic() < until_s:
            await unary(message, metadata=metadata)
            count += 1
        return {"rpcs": count, "cpu_s": time.process_time() - cpu_s}

    async def do_start_load(self, order: Mapping[str, Any]) -> dict[str, object]:
        self._load = Load(self._unary, order)
        return {}

    async def do_stop_load(self, _order: Mapping[str, Any]) -> Mapping[str, object]:
        assert self._load is not None, "load is stopped after it was started"
        return await self._load.stop()

    async def do_wait_for(self, order: Mapping[str, Any]) -> Mapping[str, object]:
        assert self._load is not None, "an answer is awaited after load was started"
        return {"at_s": await self._load.wait_for(order["backend"])}

    async def do_start_profile(self, _order: Mapping[str, Any]) -> dict[str, object]:
        self._profiler = cProfile.Profile()
        self._profiler.enable()
        return {}

    async def do_stop_profile(self, _order: Mapping[str, Any]) -> dict[str, object]:
        assert self._profiler is not None, "a profile is stopped after it was started"
        self._profiler.disable()
        text = io.StringIO()
        stats = pstats.Stats(self._profiler, stream=text).strip_dirs()
        stats.sort_stats("tottime").print_stats(PROFILE_LINES)
        stats.sort_stats("cumtime").print_stats(PROFILE_LINES)
        return {"profile": text.getvalue()}

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()


@asynccontextmanager
async def open_session(client: str, control_plane: str) -> AsyncIterator[Session]:
    session = Session(client, control_plane)
    try:
        yield session
    finally:
        await session.close()


async def serve(client: str, control_plane: str, answers: TextIO) -> None:
    """Answer orders until stdin ends."""
    # The import is measured in a row of its own, not with the first channel. The first `xds:`
    # target would import xDS, and the policies of every config.
    for module in LIBRARIES[client == "grpc_aio_xds"]:
        import_module(module)
    orders = asyncio.StreamReader(limit=ORDER_LIMIT_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    async with open_session(client, control_plane) as session:
        write_answer(answers, {"ready": True})
        while line := await orders.readline():
            try:
                write_answer(answers, await session.execute_order(json.loads(line)))
            except Exception as error:  # Reported to the parent.
                write_answer(answers, {"error": "".join(traceback.format_exception(error))})


def write_answer(answers: TextIO, value: Mapping[str, object]) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def raise_file_limit() -> None:
    """Raise the limit of open files to its maximum: each connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    client, control_plane = sys.argv[1:]
    # Ctrl-C reaches the whole process group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise_file_limit()
    # Output of libraries must not be parsed as an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        with asyncio.Runner(loop_factory=lambda: new_loop(CLIENTS[client].loop)) as runner:
            runner.run(serve(client, control_plane, answers))
    except ClientUnavailableError as error:
        write_answer(answers, {"unavailable": str(error)})


if __name__ == "__main__":
    main()
