"""Processes of the scale benchmark: backends, control planes, and one client at a time.

Each process ends when its block is left, by success, error or Ctrl-C.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.backend import BackendUnavailableError, build_c_backend
from bench.clients import ClientUnavailableError
from bench.clients.transport import TransportClient, open_client
from bench.processes import (
    START_TIMEOUT_S,
    MeshProcess,
    OrderedProcess,
    run_mesh,
    running,
)

# Each port has its own accept queue, so that thousands of simultaneous connections fit.
PORTS: Final = 8
TIMEOUT_S: Final = 90.0
POLL_S: Final = 0.005
# A client is quiet when it takes at most this share of a core for this time.
SETTLE_S: Final = 0.25
QUIET_SHARE: Final = 0.02
STATISTICS: Final = b"\xffSTA"
DROP_TLS: Final = b"\xffDRP"


@dataclass(frozen=True, slots=True)
class Echo:
    """A running backend."""

    process: asyncio.subprocess.Process
    ports: tuple[int, ...]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    def kill(self) -> float:
        """Kill it with SIGKILL; returns the time."""
        at_s = time.monotonic()
        self.process.kill()
        return at_s


class Watch:
    """Counts the connections of a backend, without its own connection.

    A connection counts when its client has acknowledged the backend's SETTINGS. A busy client may
    need a long time for that after the kernel has accepted the connection.
    """

    def __init__(self, client: TransportClient) -> None:
        self._client = client

    async def count(self) -> tuple[int, int]:
        """The current number of connections, and the total since the start."""
        values = await self._statistics()
        return values["ready"] - 1, values["readied"] - 1

    async def count_resumed(self) -> int:
        """The number of connections since the start that resumed a TLS session."""
        return (await self._statistics())["resumed"]

    async def drop_tls(self) -> float:
        """Let the backend close all connections with TLS; returns the time before."""
        at_s = time.monotonic()
        await self._client.unary(DROP_TLS)
        return at_s

    async def _statistics(self) -> dict[str, int]:
        text = (await self._client.unary(STATISTICS)).decode()
        pairs = (part.split("=") for part in text.split())
        return {name: int(value) for name, value in pairs}

    async def wait_for_now(self, count: int) -> float:
        """Wait until `count` are connected; returns the time."""
        return await self._wait(lambda now, _ever: now == count, f"{count} connections")

    async def wait_for_ever(self, count: int) -> float:
        """Wait until `count` have connected since the start; returns the time."""
        return await self._wait(lambda _now, ever: ever >= count, f"{count} ever connected")

    async def _wait(self, is_done: Callable[[int, int], bool], what: str) -> float:
        until_s = time.monotonic() + TIMEOUT_S
        while not is_done(*(counts := await self.count())):
            if time.monotonic() > until_s:
                raise TimeoutError(f"got {counts} connections (now, ever), wanted {what}")
            await asyncio.sleep(POLL_S)
        return time.monotonic()


class ScaleClient(OrderedProcess):
    """One xDS client in a process of its own."""

    async def wait_ready(self) -> None:
        """Wait until it takes orders; raises ClientUnavailableError if it cannot run here."""
        answer = await self._answer(START_TIMEOUT_S)
        if "unavailable" in answer:
            raise ClientUnavailableError(str(answer["unavailable"]))

    async def do(self, what: str, **arguments: object) -> Any:  # noqa: ANN401 - JSON
        return await self.send({"do": what, **arguments}, TIMEOUT_S)

    async def settle(self) -> Any:  # noqa: ANN401 - JSON
        """Wait until it is quiet; returns its usage then."""
        until_s = time.monotonic() + TIMEOUT_S
        before = await self.do("usage")
        while time.monotonic() < until_s:
            await asyncio.sleep(SETTLE_S)
            after = await self.do("usage")
            if after["cpu_s"] - before["cpu_s"] <= QUIET_SHARE * (after["at_s"] - before["at_s"]):
                return before
            before = after
        raise TimeoutError(f"{self.name} is not quiet after {TIMEOUT_S:.0f} s")


@asynccontextmanager
async def watch_echo(echo: Echo) -> AsyncIterator[Watch]:
    async with open_client(echo.address) as client:
        assert isinstance(client, TransportClient), "this is what the adapter opens"
        yield Watch(client)


@asynccontextmanager
async def run_echo(
    ports: int = 1, *options: str, certificates: Path | None = None
) -> AsyncIterator[Echo]:
    """A backend on every address of this machine. With certificates it may have ports for TLS.

    `options` are arguments for ports of other kinds, which follow in `Echo.ports`.
    """
    binary = await asyncio.to_thread(build_c_backend, has_tls=certificates is not None)
    if binary is None:
        raise BackendUnavailableError("no C compiler found, wanted one for backend/be.c")
    place = ("--die-with-parent", "--bind", "0.0.0.0", "--certificates", str(certificates))
    argv = (str(binary), *place, *["0"] * ports, *options)
    async with running(argv, leaves_at_eof=False) as process:
        assert process.stdout is not None, "a backend is started with a pipe as stdout"
        async with asyncio.timeout(START_TIMEOUT_S):
            words = (await process.stdout.readline()).decode().split()
        yield Echo(process, tuple(map(int, words[1:])))


@dataclass(frozen=True, slots=True)
class World:
    """Processes that all rows of a run share."""

    mesh: MeshProcess
    # An unpaced one, which sends all parts of a change at once.
    unpaced: MeshProcess
    echo: Echo
    watch: Watch
    # The client's process is profiled, and nothing is measured.
    is_profile: bool = False

    @property
    def ports(self) -> Sequence[int]:
        return self.echo.ports

    @asynccontextmanager
    async def run_client(
        self, name: str, mesh: MeshProcess | None = None
    ) -> AsyncIterator[ScaleClient]:
        """A client that has imported its library, without a channel yet."""
        address = (mesh or self.mesh).address
        argv = (sys.executable, "-m", "bench.scale_child", name, address)
        async with running(argv, leaves_at_eof=True) as process:
            client = ScaleClient(name, process)
            await client.wait_ready()
            if self.is_profile:
                await client.do("start_profile")
            yield client
            if self.is_profile:
                sys.stdout.write((await client.do("stop_profile"))["profile"])
        await self.watch.wait_for_now(0)


@asynccontextmanager
async def run_world(*, is_profile: bool = False) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        echo = await stack.enter_async_context(run_echo(PORTS))
        watch = await stack.enter_async_context(watch_echo(echo))
        mesh = await stack.enter_async_context(run_mesh())
        unpaced = await stack.enter_async_context(run_mesh("--unpaced"))
        yield World(mesh, unpaced, echo, watch, is_profile)
