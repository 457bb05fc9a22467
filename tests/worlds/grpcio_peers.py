"""grpcio's servers and clients in a mesh of our control plane.

grpcio reads its bootstrap once, and has one xDS client per process. So each client is a process of
its own, which reads commands as lines of JSON, and writes the results.
"""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from tests.interop.drop_in import Untyped, stop_server
from tests.worlds.transports import PATIENCE_S

ROOT: Final = Path(__file__).parent.parent.parent
WHERE: Final = "/test.Mesh/Where"
# The number of concurrent RPCs of the load.
WORKERS: Final = 5


class NamedBackend:
    """grpcio server whose unary methods return its name. Can be started again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = 0
        self._server: Untyped = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    def service(self, _details: Untyped) -> Untyped:
        """Called by grpcio: the handler of a method."""
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, _request: bytes, _context: Untyped) -> bytes:
        return self.name.encode()

    async def leave(self) -> None:
        """Stop without waiting for the handlers of other servers."""
        await self._server.stop(None)

    async def stop(self) -> None:
        await stop_server(self._server)


@asynccontextmanager
async def backends(*names: str) -> AsyncIterator[list[NamedBackend]]:
    started = [NamedBackend(name) for name in names]
    for backend in started:
        await backend.start()
    try:
        yield started
    finally:
        for backend in started:
            await backend.stop()


class Exchange(NamedTuple):
    """RPC: the response or the error, and its set-cookie values."""

    answer: str
    # From the initial metadata and from the trailers.
    initial: list[str]
    trailing: list[str]


class GrpcioClient:
    """Process with one channel of grpcio."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def call(
        self, path: str = WHERE, *, count: int = 1, metadata: Mapping[str, str] | None = None
    ) -> Counter[str]:
        """Send RPCs one after the other; count the responses and errors."""
        command = {"do": "call", "path": path, "count": count, "metadata": metadata or {}}
        return Counter(await self._run(command))

    async def exchange(
        self, path: str = WHERE, metadata: Sequence[tuple[str, str]] = ()
    ) -> Exchange:
        """Send an RPC with this metadata."""
        answer = await self._run({"do": "exchange", "path": path, "metadata": list(metadata)})
        return Exchange(answer["answer"], answer["initial"], answer["trailing"])

    async def call_until(self, answer: str) -> None:
        """Call until this is the response: a client ACKs before it uses a resource."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.call() != {answer: 1}:
                pass

    async def start_load(self) -> None:
        await self._run({"do": "start_load"})

    async def stop_load(self) -> Counter[str]:
        """Stop, and count the responses since the start."""
        return Counter(await self._run({"do": "stop_load"}))

    async def _run(self, command: Mapping[str, object]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(command)}\n".encode())
        async with asyncio.timeout(PATIENCE_S * 2):
            answer = await self._process.stdout.readline()
        assert answer, f"client ended during {command}"
        result: dict[str, Any] = json.loads(answer)
        return result


@asynccontextmanager
async def grpcio_client(
    bootstrap: Mapping[str, Any], target: str, *, credentials: str = "insecure", **environ: str
) -> AsyncIterator[GrpcioClient]:
    """Run a client with the credentials "insecure", "xds", or "ssl:" and a file of roots."""
    environment = {**os.environ, "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(bootstrap), **environ}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        target,
        credentials,
        cwd=ROOT,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield GrpcioClient(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


# Inside the process


class _Calls:
    """Runs the commands."""

    def __init__(self, channel: Untyped) -> None:
        self._channel = channel
        self._counts: Counter[str] = Counter()
        self._load: list[asyncio.Task[None]] = []
        self._is_loaded = False

    async def run(self, command: Mapping[str, Any]) -> dict[str, Any]:
        match command["do"]:
            case "exchange":
                metadata = tuple((key, value) for key, value in command["metadata"])
                found = await exchange(self._channel, command["path"], metadata)
                return found._asdict()
            case "call":
                counts: Counter[str] = Counter()
                for _ in range(command["count"]):
                    counts[
                        await call_unary(self._channel, command["path"], **command["metadata"])
                    ] += 1
                return counts
            case "start_load":
                self._counts, self._is_loaded = Counter(), True
                self._load = [asyncio.create_task(self._work()) for _ in range(WORKERS)]
                return Counter()
            case _:
                self._is_loaded = False
                await asyncio.gather(*self._load)
                return self._counts

    async def _work(self) -> None:
        while self._is_loaded:
            self._counts[await call_unary(self._channel)] += 1


async def call_unary(channel: Untyped, path: str = WHERE, **metadata: str) -> str:
    """Return the response of an RPC, or its code and details."""
    call = channel.unary_unary(path)(b"", metadata=tuple(metadata.items()), timeout=PATIENCE_S)
    return await _result_of(call)


async def _result_of(call: Untyped) -> str:
    try:
        return bytes(await call).decode()
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}"


async def exchange(
    channel: Untyped, path: str, metadata: Sequence[tuple[str, str]] = ()
) -> Exchange:
    """Send an RPC on a channel with the API of grpc.aio."""
    call = channel.unary_unary(path)(b"", metadata=tuple(metadata), timeout=PATIENCE_S)
    answer = await _result_of(call)
    initial, trailing = await call.initial_metadata(), await call.trailing_metadata()
    return Exchange(answer, _cookies(initial), _cookies(trailing))


def _cookies(metadata: Untyped) -> list[str]:
    return [str(value) for key, value in metadata if key == "set-cookie"]


def _open(target: str, credentials: str) -> Untyped:
    if credentials == "insecure":
        return grpc.aio.insecure_channel(target)
    if credentials.startswith("ssl:"):
        roots = Path(credentials.removeprefix("ssl:")).read_bytes()
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(roots))
    fallback = grpc.local_channel_credentials()
    return grpc.aio.secure_channel(target, grpc.xds_channel_credentials(fallback))


async def _run_client(target: str, credentials: str) -> None:
    async with _open(target, credentials) as channel:
        calls = _Calls(channel)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await calls.run(json.loads(line))), flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(_run_client(*sys.argv[1:]))
