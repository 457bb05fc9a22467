"""Who takes part in a mesh that our control plane runs: named backends, and grpcio's own client.

grpcio reads its bootstrap config once, and has one xDS client per process: so each client is a
process of its own, which is told line by line what to call and answers with what it got.
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
from tests.transport_world import PATIENCE_S

ROOT: Final = Path(__file__).parent.parent.parent
WHO: Final = "/test.Mesh/Who"
# How many RPCs the load has under way at a time.
WORKERS: Final = 5


class NamedBackend:
    """A grpcio server that answers every unary method with its name. Can be started again."""

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
        """What grpcio asks a generic handler for."""
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, _request: bytes, _context: Untyped) -> bytes:
        return self.name.encode()

    async def leave(self) -> None:
        """Stop serving at once; other servers of this process go on."""
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
    """An RPC: the answer or the error, and the cookies that were to be set."""

    answer: str
    # Of the head and of the trailers.
    initial: list[str]
    trailing: list[str]


class GrpcioClient:
    """A process with one `xds:///` channel of grpcio's."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def call(
        self, path: str = WHO, *, count: int = 1, metadata: Mapping[str, str] | None = None
    ) -> Counter[str]:
        """How often each answer came, errors included, of so many RPCs one after the other."""
        command = {"do": "call", "path": path, "count": count, "metadata": metadata or {}}
        return Counter(await self._ask(command))

    async def exchange(self, path: str = WHO, metadata: Sequence[tuple[str, str]] = ()) -> Exchange:
        """One RPC with this metadata, and what its response said of itself."""
        answer = await self._ask({"do": "exchange", "path": path, "metadata": list(metadata)})
        return Exchange(answer["answer"], answer["initial"], answer["trailing"])

    async def call_until(self, answer: str) -> None:
        """Call until this is the answer: an ACK comes a moment before the client acts on it."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.call() != {answer: 1}:
                pass

    async def start_load(self) -> None:
        await self._ask({"do": "start_load"})

    async def stop_load(self) -> Counter[str]:
        """The answers since the load started."""
        return Counter(await self._ask({"do": "stop_load"}))

    async def _ask(self, command: Mapping[str, object]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(command)}\n".encode())
        async with asyncio.timeout(PATIENCE_S * 2):
            answer = await self._process.stdout.readline()
        assert answer, f"client ended while it was to {command}"
        result: dict[str, Any] = json.loads(answer)
        return result


@asynccontextmanager
async def grpcio_client(
    bootstrap: Mapping[str, Any], target: str, *, credentials: str = "insecure", **environ: str
) -> AsyncIterator[GrpcioClient]:
    """Insecure, or with the credentials "xds", or "ssl:" and the file of its roots."""
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
    """Makes RPCs and counts what comes back."""

    def __init__(self, channel: Untyped) -> None:
        self._channel = channel
        self._counts: Counter[str] = Counter()
        self._load: list[asyncio.Task[None]] = []
        self._is_loaded = False

    async def obey(self, command: Mapping[str, Any]) -> dict[str, Any]:
        match command["do"]:
            case "exchange":
                metadata = tuple((key, value) for key, value in command["metadata"])
                found = await exchange(self._channel, command["path"], metadata)
                return found._asdict()
            case "call":
                counts: Counter[str] = Counter()
                for _ in range(command["count"]):
                    counts[await self._call(command["path"], command["metadata"])] += 1
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
            self._counts[await self._call(WHO, {})] += 1

    async def _call(self, path: str, metadata: Mapping[str, str]) -> str:
        method = self._channel.unary_unary(path)
        try:
            answer: bytes = await method(b"", metadata=tuple(metadata.items()), timeout=PATIENCE_S)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        return answer.decode()


async def exchange(
    channel: Untyped, path: str, metadata: Sequence[tuple[str, str]] = ()
) -> Exchange:
    """One RPC of any channel like grpc.aio's."""
    call = channel.unary_unary(path)(b"", metadata=tuple(metadata), timeout=PATIENCE_S)
    try:
        answer = bytes(await call).decode()
    except grpc.aio.AioRpcError as error:
        answer = f"{error.code().name}: {error.details()}"
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
            print(json.dumps(await calls.obey(json.loads(line))), flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(_run_client(*sys.argv[1:]))
