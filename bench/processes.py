"""Processes of the backend, the control plane and the clients.

Every process is owned by an `async with` block: leaving it, by success, error or Ctrl-C, ends the
process. A process that does not answer in time raises an error.
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.backend import BUILD_DIR, BackendUnavailableError, backend_command
from bench.certificates import certificate_directory
from bench.clients import CLIENTS, ClientUnavailableError

ROOT = Path(__file__).resolve().parents[1]
START_TIMEOUT_S = 30.0
END_TIMEOUT_S = 3.0
# A turn is warm-up, measurement and latencies; streams also finish the call they are in.
TURN_TIMEOUT_FACTOR = 4.0
TURN_TIMEOUT_GRACE_S = 20.0
# A profile is one line of JSON.
ANSWER_LIMIT_BYTES = 1 << 24


class TurnFailedError(Exception):
    """The client reported an error; its process still runs and takes further orders."""


class ClientLostError(Exception):
    """The client's process has ended or does not answer; it takes no further orders."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A running backend."""

    name: str
    pid: int
    address: str
    raw_address: str | None
    # Three of its gRPC ports, separated by commas.
    three_addresses: str | None
    # Address of a control plane with these three as endpoints, if there is one.
    control_plane: str | None = None
    # Ports with TLS, each with the directory of the certificates.
    tls_address: str | None = None
    mtls_address: str | None = None

    def address_for(self, client: str) -> str | None:
        """The address for this client; None if there is no such port."""
        match CLIENTS[client].backend:
            case "grpc":
                return self.address
            case "raw":
                return self.raw_address
            case "three":
                return self.three_addresses
            case "xds":
                return self.control_plane
            case "tls":
                return self.tls_address
            case "mtls":
                return self.mtls_address

    def cpu_s(self) -> float | None:
        """CPU time used so far, if there is /proc."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return None
        # Fields utime and stime, counted from the end of the name, which may contain spaces.
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class OrderedProcess:
    """A process that takes one order at a time: a line of JSON to it, a line of JSON back."""

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, order: Mapping[str, object], timeout_s: float) -> Mapping[str, Any]:
        """Send an order and return the answer."""
        stdin = self._process.stdin
        assert stdin is not None, "a process that takes orders is started with a pipe as stdin"
        with suppress(ConnectionError):  # `_answer` raises if the process has ended.
            stdin.write(json.dumps(order).encode() + b"\n")
            await stdin.drain()
        answer = await self._answer(timeout_s)
        if "error" in answer:
            raise TurnFailedError(f"{self.name}: {answer['error']}")
        return answer

    async def _answer(self, timeout_s: float) -> Mapping[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None, "a process that takes orders is started with a pipe as stdout"
        try:
            async with asyncio.timeout(timeout_s):
                line = await stdout.readline()
        except TimeoutError:
            self._process.kill()
            raise ClientLostError(f"no answer in {timeout_s:.0f} s") from None
        if not line:
            code = await self._process.wait()
            raise ClientLostError(f"process ended with exit code {code}")
        answer = json.loads(line)
        assert isinstance(answer, dict), "an answer is a JSON object"
        return answer


class ClientProcess(OrderedProcess):
    """One warm client."""

    async def wait_ready(self) -> None:
        """Wait until it is connected; raises ClientUnavailableError if it cannot run here."""
        answer = await self._answer(START_TIMEOUT_S)
        if "unavailable" in answer:
            raise ClientUnavailableError(str(answer["unavailable"]))

    async def order(
        self, workload: str, duration_s: float, warm_up_s: float, *, is_profile: bool = False
    ) -> Mapping[str, object]:
        """Run one workload; returns the answer."""
        order = {
            "workload": workload,
            "duration_s": duration_s,
            "warm_up_s": warm_up_s,
            "is_profile": is_profile,
        }
        timeout_s = TURN_TIMEOUT_FACTOR * (duration_s + warm_up_s) + TURN_TIMEOUT_GRACE_S
        return await self.send(order, timeout_s)


class MeshProcess(OrderedProcess):
    """A control plane that listens at `address`."""

    address = ""

    async def wait_ready(self) -> None:
        """Wait until it listens."""
        answer = await self._answer(START_TIMEOUT_S)
        self.address = str(answer["address"])

    async def serve(self, mesh: str, **arguments: object) -> float:
        """Serve this mesh of `bench.meshes`; returns the monotonic time when it started."""
        answer = await self.send({"serve": mesh, "arguments": arguments}, START_TIMEOUT_S)
        return float(answer["at_s"])


@asynccontextmanager
async def run_backend(*, has_tls: bool = False) -> AsyncIterator[Backend]:
    """A backend; it has TLS only if that is wanted, and can be built."""
    async with AsyncExitStack() as stack:
        certificates = stack.enter_context(certificate_directory()) if has_tls else None
        command = await asyncio.to_thread(backend_command, certificates)
        process = await stack.enter_async_context(running(command.argv, leaves_at_eof=False))
        assert process.stdout is not None, "the backend is started with a pipe as stdout"
        async with asyncio.timeout(START_TIMEOUT_S):
            words = (await process.stdout.readline()).decode().split()
        if words[:1] != ["up"]:
            text = f"backend {command.name}: got {words!r}, wanted 'up' and its ports"
            raise BackendUnavailableError(text)
        addresses = [f"127.0.0.1:{port}" for port in words[1:]]
        mtls = f"{addresses.pop()}@{certificates}" if command.has_tls else None
        tls = f"{addresses.pop()}@{certificates}" if command.has_tls else None
        raw_address = addresses.pop(1) if command.has_raw else None
        three = ",".join(addresses) if command.has_three else None
        plain = Backend(command.name, process.pid, addresses[0], raw_address, three)
        yield replace(plain, tls_address=tls, mtls_address=mtls)


@asynccontextmanager
async def run_mesh(*options: str) -> AsyncIterator[MeshProcess]:
    """A control plane that listens, and serves nothing yet."""
    argv = (sys.executable, "-m", "bench.mesh", *options)
    async with running(argv, leaves_at_eof=True) as process:
        mesh = MeshProcess("mesh", process)
        await mesh.wait_ready()
        yield mesh


@asynccontextmanager
async def run_client(name: str, backend: Backend) -> AsyncIterator[ClientProcess]:
    """A client that is connected and ready; raises ClientUnavailableError or ClientLostError."""
    address = backend.address_for(name)
    if address is None:
        raise ClientUnavailableError(f"backend {backend.name} has no port for it")
    argv = (sys.executable, "-m", "bench.child", name, address)
    async with running(argv, leaves_at_eof=True) as process:
        client = ClientProcess(name, process)
        await client.wait_ready()
        yield client


@asynccontextmanager
async def running(argv: tuple[str, ...], *, leaves_at_eof: bool) -> AsyncIterator[Process]:
    """A process with pipes to it, ended when the block is left."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=ROOT,
        env=_environment(),
        stdin=PIPE,
        stdout=PIPE,
        limit=ANSWER_LIMIT_BYTES,
    )
    assert process.stdin is not None, "the process is started with a pipe as stdin"
    try:
        yield process
        process.stdin.close()
        if leaves_at_eof:
            with suppress(TimeoutError):
                async with asyncio.timeout(END_TIMEOUT_S):
                    await process.wait()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _environment() -> dict[str, str]:
    """Our environment, with this checkout on the path and with cached bytecode."""
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(BUILD_DIR / "bytecode")}
