"""Our client with go-control-plane: examples/go-control-plane as a process.

It needs Go, and at first the network for its modules; without them these tests are skipped.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import pytest

import proxyless
from tests.worlds.go_programs import BUILD_S, build_go
from tests.worlds.grpcio_peers import ROOT, WHERE, backends
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from tests.interop.drop_in import Untyped

SOURCE = ROOT / "examples" / "go-control-plane"


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_go(SOURCE, tmp_path_factory.mktemp("go") / "control-plane")


@dataclass
class GoControlPlane:
    """The process, and where it listens."""

    process: asyncio.subprocess.Process
    address: str = ""

    async def line(self) -> str:
        assert self.process.stdout is not None, "the output is a pipe"
        async with asyncio.timeout(PATIENCE_S):
            return (await self.process.stdout.readline()).decode().strip()

    async def serve(self, backend: int) -> str:
        """Make it serve this backend, from 1; returns its output."""
        assert self.process.stdin is not None, "the input is a pipe"
        self.process.stdin.write(f"{backend}\n".encode())
        return await self.line()

    def bootstrap(self, features: Iterable[str]) -> dict[str, Any]:
        server = {"server_uri": self.address, "channel_creds": [{"type": "insecure"}]}
        return {
            "xds_servers": [{**server, "server_features": ["xds_v3", *features]}],
            "node": {"id": "laptop"},
        }


@asynccontextmanager
async def go_control_plane(
    binary: Path, *addresses: str, cache: str = "snapshot", listen: str = "127.0.0.1:0"
) -> AsyncIterator[GoControlPlane]:
    process = await asyncio.create_subprocess_exec(
        *(str(binary), "-listen", listen, "-cache", cache, *addresses),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    plane = GoControlPlane(process)
    assert await plane.line() == f"version 1: {addresses[0]}"
    plane.address = (await plane.line()).removeprefix("listening at ")
    try:
        yield plane
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.timeout(BUILD_S + 60)
@pytest.mark.parametrize("features", [(), ("delta",)], ids=["sotw", "delta"])
async def test_a_client_follows_its_snapshots(binary: Path, features: tuple[str, ...]) -> None:
    async with (
        backends("first", "second") as (first, second),
        go_control_plane(binary, first.address, second.address) as plane,
        proxyless.aio.insecure_channel(
            "xds:///greeter", bootstrap=plane.bootstrap(features)
        ) as channel,
    ):
        who = channel.unary_unary(WHERE)
        assert await who(b"", timeout=PATIENCE_S) == b"first"
        for version, (number, name) in enumerate(((2, b"second"), (1, b"first")), start=2):
            assert (await plane.serve(number)).startswith(f"version {version}: ")
            async with asyncio.timeout(PATIENCE_S):
                while await who(b"", timeout=PATIENCE_S) != name:
                    pass
        # It prints NACKs; there were none.
        plane.process.stdin.close()  # type: ignore[union-attr]
        assert await plane.line() == ""
        assert await plane.process.wait() == 0
        # The last config stays in use.
        assert await who(b"", timeout=PATIENCE_S) == b"first"


async def call_until(channel: Untyped, wanted: bytes | grpc.StatusCode) -> None:
    """Call until this is the response or the code; RPCs before may have any other."""
    who = channel.unary_unary(WHERE)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                found: bytes | grpc.StatusCode = await who(b"", timeout=PATIENCE_S)
            except grpc.RpcError as error:
                found = error.code()
            if found == wanted:
                return
            await asyncio.sleep(0.01)


@pytest.mark.timeout(BUILD_S + 60)
@pytest.mark.parametrize("features", [(), ("delta",)], ids=["sotw", "delta"])
@pytest.mark.parametrize("cache", ["snapshot", "linear", "mux"])
async def test_client_follows_each_cache_when_resources_change_and_it_restarts(
    binary: Path, cache: str, features: tuple[str, ...]
) -> None:
    async with backends("first", "second") as (first, second), AsyncExitStack() as stack:
        addresses = (first.address, second.address)
        async with go_control_plane(binary, *addresses, cache=cache) as plane:
            bootstrap = plane.bootstrap(features)
            channel = await stack.enter_async_context(
                proxyless.aio.insecure_channel("xds:///greeter", bootstrap=bootstrap)
            )
            await call_until(channel, b"first")
            await plane.serve(2)
            await call_until(channel, b"second")
            await plane.serve(0)
            await call_until(channel, grpc.StatusCode.UNAVAILABLE)
            await plane.serve(1)
            await call_until(channel, b"first")
            # It prints NACKs; there were none.
            plane.process.stdin.close()  # type: ignore[union-attr]
            assert await plane.line() == ""
        assert await channel.unary_unary(WHERE)(b"", timeout=PATIENCE_S) == b"first"
        # Its versions start again; only the last backend is another one.
        again = go_control_plane(binary, *reversed(addresses), cache=cache, listen=plane.address)
        async with again as plane:
            await call_until(channel, b"second")
            await plane.serve(2)
            await call_until(channel, b"first")
