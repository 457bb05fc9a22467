"""Measurements of the scale benchmark, one coroutine per row.

A row measures one client at one size in one round, and returns its figures by name. Sizes and
targets are in `scale_targets`.
"""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from bench.certificates import certificate_directory
from bench.meshes import HEADER, loopback_address
from bench.processes import MeshProcess, running
from bench.scale_world import TIMEOUT_S, ScaleClient, World, run_echo, watch_echo
from proxyless.controlplane import CLUSTER, ENDPOINTS

Measured = dict[str, float]
Row = Callable[[World, str, int], Awaitable[Measured]]

MICRO: Final = 1e6
MILLI: Final = 1e3
REPEAT_S: Final = 0.7
WARM_UP_S: Final = 0.2
IDLE_S: Final = 4.0
LOAD: Final = 100
STEADY_RATE_PER_S: Final = 200.0
# Higher rates that both clients reach.
BUSY_RATE_PER_S: Final = 2000.0
HIGH_RATE_PER_S: Final = 6000.0
# The delay of the new cluster in a torn config; the time of load before and after an event.
LATE_S: Final = 0.5
AROUND_S: Final = 0.3
# Endpoints that are replaced; ports for many connections with TLS.
REPLACED: Final = 3
TLS_PORTS: Final = 4
# The number of endpoints that stay when the others are removed.
STAYING: Final = 10


async def routes_by_path(world: World, client: str, size: int) -> Measured:
    """CPU per RPC with `size` routes, of which only the last one matches."""
    await world.mesh.serve("path_routes", count=size, addresses=[world.echo.address])
    return await _cpu_per_rpc(world, client, [])


async def routes_by_header(world: World, client: str, size: int) -> Measured:
    await world.mesh.serve("header_routes", count=size, addresses=[world.echo.address])
    return await _cpu_per_rpc(world, client, [(HEADER, f"v{size - 1}")])


async def _cpu_per_rpc(world: World, client: str, metadata: list[tuple[str, str]]) -> Measured:
    async with world.run_client(client) as process:
        await process.do("open")
        await process.do("rpc", metadata=metadata)
        await process.do("repeat", duration_s=WARM_UP_S, metadata=metadata)
        got = await process.do("repeat", duration_s=REPEAT_S, metadata=metadata)
    return {"cpu_us": got["cpu_s"] / got["rpcs"] * MICRO}


@asynccontextmanager
async def _connected(
    world: World, client: str, size: int
) -> AsyncIterator[tuple[ScaleClient, Measured]]:
    """A client with `size` connections, and their cost."""
    await world.mesh.serve("many_endpoints", count=size, ports=world.ports)
    async with world.run_client(client) as process:
        opened = await process.do("open")
        at_s = await world.watch.wait_for_now(size)
        usage = await process.settle()
        yield (
            process,
            {
                "connected_s": at_s - opened["at_s"],
                "cpu_s": usage["cpu_s"] - opened["cpu_s"],
                "rss_kb": usage["rss_kb"],
            },
        )


async def many_endpoints(world: World, client: str, size: int) -> Measured:
    """Time from opening the channel until all endpoints are connected, and the memory then."""
    async with _connected(world, client, size) as (_, measured):
        return measured


async def first_of_many(world: World, client: str, size: int) -> Measured:
    """Time from opening the channel to the end of the first RPC, while the endpoints connect."""
    await world.mesh.serve("many_endpoints", count=size, ports=world.ports)
    async with world.run_client(client) as process:
        opened = await process.do("open")
        answered = await process.do("rpc")
    return {"first_rpc_s": answered["at_s"] - opened["at_s"]}


async def first_after_config(world: World, client: str, size: int) -> Measured:
    """Time from sending the endpoints, which a channel lacks, to the end of its first RPC."""
    await world.mesh.send({"withhold": [ENDPOINTS]}, TIMEOUT_S)
    await world.mesh.serve("many_endpoints", count=size, ports=world.ports)
    async with world.run_client(client) as process, asyncio.TaskGroup() as group:
        await process.do("open")
        rpc = group.create_task(process.do("rpc"))
        await asyncio.sleep(AROUND_S)
        released = await world.mesh.send({"release": True}, TIMEOUT_S)
        answered = await rpc
    return {"first_rpc_s": answered["at_s"] - released["at_s"]}


async def one_added(world: World, client: str, size: int) -> Measured:
    """One more endpoint: its CPU, and the times until it is connected and until it answers."""
    async with _connected(world, client, size) as (process, _):
        before, (_, ever) = await process.do("usage"), await world.watch.count()
        served_s = await world.mesh.serve(
            "many_endpoints", count=size, ports=world.ports, added=[size]
        )
        at_s = await world.watch.wait_for_ever(ever + 1)
        after = await process.settle()
        await process.do("start_load", concurrency=LOAD)
        await asyncio.sleep(AROUND_S)
        loaded_s = await world.mesh.serve(
            "many_endpoints", count=size, ports=world.ports, added=[size, size + 1]
        )
        backend = loopback_address(size + 1, world.ports)
        answered = await process.do("wait_for", backend=backend)
        await process.do("stop_load")
    return {
        "cpu_s": after["cpu_s"] - before["cpu_s"],
        "connected_s": at_s - served_s,
        "first_rpc_s": answered["at_s"] - loaded_s,
    }


async def base_memory(world: World, client: str, _size: int) -> Measured:
    """Memory of a process with one connection, after an RPC."""
    await world.mesh.serve("spread", addresses=[world.echo.address])
    async with world.run_client(client) as process:
        await process.do("open")
        await process.do("rpc")
        return {"rss_kb": (await process.settle())["rss_kb"]}


async def leave_and_return(world: World, client: str, size: int) -> Measured:
    """Memory after all but a few endpoints were removed and added again, twice."""
    async with _connected(world, client, size) as (process, measured):
        found = {"rss_kb_0": measured["rss_kb"]}
        for cycle in (1, 2):
            await world.mesh.serve("many_endpoints", count=STAYING, ports=world.ports)
            await world.watch.wait_for_now(STAYING)
            await world.mesh.serve("many_endpoints", count=size, ports=world.ports)
            await world.watch.wait_for_now(size)
            found[f"rss_kb_{cycle}"] = (await process.settle())["rss_kb"]
    return {**found, "growth": found["rss_kb_2"] / found["rss_kb_0"]}


async def many_clusters(world: World, client: str, size: int) -> Measured:
    """Time from opening the channel until the last of `size` clusters answers the first RPC."""
    await world.mesh.serve("many_clusters", count=size, ports=world.ports)
    async with world.run_client(client) as process:
        opened = await process.do("open")
        answered = await process.do("rpc")
    return {
        "first_rpc_s": answered["at_s"] - opened["at_s"],
        "cpu_s": answered["cpu_s"] - opened["cpu_s"],
    }


async def cold_start(world: World, client: str, _size: int) -> Measured:
    """Time from the start of a process to the end of its first RPC."""
    await world.mesh.serve("spread", addresses=[world.echo.address])
    started_s = asyncio.get_running_loop().time()
    argv = (sys.executable, "-m", "bench.cold", client, world.mesh.address)
    async with running(argv, leaves_at_eof=True) as process:
        assert process.stdout is not None, "the process is started with a pipe as stdout"
        async with asyncio.timeout(TIMEOUT_S):
            times = (await process.stdout.readline()).split()
    begin_s, imported_s, answered_s = map(float, times)
    return {
        "first_rpc_s": answered_s - started_s,
        "import_s": imported_s - begin_s,
        "channel_s": answered_s - imported_s,
    }


async def failover_at_200(world: World, client: str, _size: int) -> Measured:
    """Both backends of P0 are killed: the number of failed RPCs, and the time until P1 serves."""
    return await _failover(world, client, rate_per_s=STEADY_RATE_PER_S)


async def failover_at_2000(world: World, client: str, _size: int) -> Measured:
    return await _failover(world, client, rate_per_s=BUSY_RATE_PER_S)


async def failover_at_6000(world: World, client: str, _size: int) -> Measured:
    return await _failover(world, client, rate_per_s=HIGH_RATE_PER_S)


async def failover_under_load(world: World, client: str, _size: int) -> Measured:
    return await _failover(world, client, concurrency=LOAD)


async def _failover(world: World, client: str, **load: float) -> Measured:
    async with AsyncExitStack() as stack:
        first, second, low = [await stack.enter_async_context(run_echo()) for _ in range(3)]
        await world.mesh.serve(
            "two_priorities", high=[first.address, second.address], low=[low.address]
        )
        process = await stack.enter_async_context(world.run_client(client))
        await process.do("open")
        await process.do("rpc")
        await process.do("start_load", **load)
        # At any moment: an RPC every 5 ms, from the same start, would always meet the kill.
        await asyncio.sleep(AROUND_S + random.uniform(0, 1 / STEADY_RATE_PER_S))
        killed_s = first.kill()
        second.kill()
        answered = await process.do("wait_for", backend=low.address)
        await asyncio.sleep(AROUND_S)
        total = await process.do("stop_load")
    return {
        "failed": total["failed"],
        "rpcs": total["rpcs"],
        "on_p1_ms": (answered["at_s"] - killed_s) * MILLI,
    }


async def torn_config(world: World, client: str, _size: int) -> Measured:
    """Routes name a cluster that is sent half a second later."""
    mesh = world.unpaced
    async with AsyncExitStack() as stack:
        old, new = [await stack.enter_async_context(run_echo()) for _ in range(2)]
        await mesh.serve("moving", old=[old.address])
        process = await stack.enter_async_context(world.run_client(client, mesh))
        await process.do("open")
        await process.do("rpc")
        await process.do("start_load", rate_per_s=STEADY_RATE_PER_S)
        await asyncio.sleep(AROUND_S)
        await _tear(mesh, old.address, new.address)
        await process.do("wait_for", backend=new.address)
        await asyncio.sleep(AROUND_S)
        total = await process.do("stop_load")
    return {"failed": total["failed"], "rpcs": total["rpcs"], "max_ms": total["max_ms"]}


async def _tear(mesh: MeshProcess, old: str, new: str) -> None:
    for type_url in (CLUSTER, ENDPOINTS):
        await mesh.send({"withhold": [type_url, "new"]}, TIMEOUT_S)
    await mesh.serve("moving", old=[old], new=[new])
    await asyncio.sleep(LATE_S)
    await mesh.send({"release": True}, TIMEOUT_S)


async def idle(world: World, client: str, size: int) -> Measured:
    """The share of a core that an unused channel takes."""
    async with _connected(world, client, size) as (process, _):
        before = await process.do("usage")
        await asyncio.sleep(IDLE_S)
        after = await process.do("usage")
    elapsed_s = after["at_s"] - before["at_s"]
    return {"cpu_percent": (after["cpu_s"] - before["cpu_s"]) / elapsed_s * 100}


async def all_replaced(world: World, client: str, _size: int) -> Measured:
    """All endpoints are replaced by new ones, which take half a second to connect."""
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(run_echo(REPLACED))
        new = await stack.enter_async_context(run_echo(1, *["--slow", "0"] * REPLACED))
        slow = [f"127.0.0.1:{port}" for port in new.ports[1:]]
        await world.mesh.serve("spread", addresses=[f"127.0.0.1:{port}" for port in old.ports])
        process = await stack.enter_async_context(world.run_client(client))
        await process.do("open")
        await process.do("rpc")
        await process.do("start_load", rate_per_s=STEADY_RATE_PER_S)
        await asyncio.sleep(AROUND_S)
        await world.mesh.serve("spread", addresses=slow)
        await process.do("wait_for", backend=slow[0])
        await asyncio.sleep(AROUND_S)
        total = await process.do("stop_load")
    return {"failed": total["failed"], "rpcs": total["rpcs"], "max_ms": total["max_ms"]}


async def tls_reconnects(world: World, client: str, size: int) -> Measured:
    """All of `size` connections with TLS are closed by the backend, and made again."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(certificate_directory())
        echo = await stack.enter_async_context(
            run_echo(1, *["--tls", "0"] * TLS_PORTS, certificates=directory)
        )
        watch = await stack.enter_async_context(watch_echo(echo))
        process = await stack.enter_async_context(world.run_client(client))
        addresses = [loopback_address(number, echo.ports[1:]) for number in range(size)]
        opened = await process.do("open_tls", addresses=addresses, certificates=str(directory))
        connected_s = await watch.wait_for_now(size)
        before, resumed = await process.settle(), await watch.count_resumed()
        dropped_s = await watch.drop_tls()
        again_s = await watch.wait_for_ever(2 * size)
        after = await process.settle()
        share = (await watch.count_resumed() - resumed) / size
    return {
        "first_connected_s": connected_s - opened["at_s"],
        "first_cpu_s": before["cpu_s"] - opened["cpu_s"],
        "connected_s": again_s - dropped_s,
        "cpu_s": after["cpu_s"] - before["cpu_s"],
        "rss_kb": after["rss_kb"],
        "resumed": share,
    }
