"""Applications that send RPCs: unary and streaming, with short and long deadlines, in bursts.

Some RPCs are cancelled by the application.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import grpc

from proxyless.sim.backends import REPLY_BYTES, RPC_ID, STREAM, UNARY
from proxyless.sim.loop import pause
from proxyless.sim.random_choices import choose
from tools.simulation.plans import LANE_HEADER
from tools.simulation.random_choices import random_bool, random_gap_s
from tools.simulation.records import RpcRecord
from tools.simulation.scenario import QUIET_S

if TYPE_CHECKING:
    from proxyless.front import AioChannel
    from proxyless.runtime import Random
    from tools.simulation.scenario import Scenario

TIMEOUTS_S: Final = (1.0, 5.0, 20.0)


class Traffic:
    """Random RPCs of all clients."""

    name: Final = "traffic"

    async def start(self, scenario: Scenario) -> None:
        random = scenario.random(self.name)
        number = 0
        names = list(scenario.channels)
        mean_s = 1.0 / (scenario.options.rpcs_per_s * len(names))
        while scenario.world.now_s() < scenario.end_s - QUIET_S:
            client = choose(random, names)
            burst = 2 + random.randrange(8) if random_bool(random, 0.05) else 1
            for _ in range(burst):
                rpc = _Rpc(scenario, client, f"rpc-{number}", random)
                scenario.spawn(rpc.run(scenario.channels[client]))
                number += 1
            await pause(random_gap_s(random, mean_s * burst) / scenario.pace)


class _Rpc:
    """One RPC, with all random choices made before its start."""

    def __init__(self, scenario: Scenario, client: str, name: str, random: Random) -> None:
        self._scenario = scenario
        self._messages = 1 + random.randrange(6) if random_bool(random, 0.15) else 0
        self._gap_s = random.random()
        self._cancel_after_s = random.random() if random_bool(random, 0.05) else None
        reply_bytes = scenario.options.reply_bytes
        self._reply_bytes = reply_bytes if reply_bytes and random_bool(random, 0.5) else 0
        self.record = RpcRecord(
            name=name,
            client=scenario.recorder.clients[client],
            kind="stream" if self._messages else "unary",
            lane="blue" if random_bool(random, 0.3) else "",
            wait_for_ready=random_bool(random, 0.4),
            # Streams take longer.
            timeout_s=max(TIMEOUTS_S) if self._messages else choose(random, TIMEOUTS_S),
            started_s=scenario.world.now_s(),
        )
        scenario.recorder.rpcs[name] = self.record

    async def run(self, channel: AioChannel) -> None:
        record = self.record
        self._note("rpc.start", kind=record.kind, lane=record.lane, patient=record.wait_for_ready)
        metadata = [(RPC_ID, record.name)]
        if record.lane:
            metadata.append((LANE_HEADER, record.lane))
        if self._reply_bytes:
            metadata.append((REPLY_BYTES, str(self._reply_bytes)))
        settings = {
            "timeout": record.timeout_s,
            "wait_for_ready": record.wait_for_ready,
            "metadata": tuple(metadata),
        }
        try:
            record.served_by = await self._call(channel, settings)
            record.code = "OK"
        except grpc.aio.AioRpcError as error:
            record.code, record.details = error.code().name, str(error.details())
        except asyncio.CancelledError:
            if not record.is_cancelled_by_us:
                raise
            record.code = "CANCELLED"
        record.ended_s = self._scenario.world.now_s()
        self._note("rpc.end", code=record.code, by=record.served_by, details=record.details)

    async def _call(self, channel: AioChannel, settings: dict[str, Any]) -> str:
        if not self._messages:
            call = channel.unary_unary(UNARY)(b"", **settings)
            self._cancel_later(call)
            return bytes(await call).decode().rstrip()
        stream = channel.stream_stream(STREAM)(**settings)
        self._cancel_later(stream)
        reply = await self._exchange_messages(stream)
        if await stream.code() is not grpc.StatusCode.OK:
            raise grpc.aio.AioRpcError(
                await stream.code(),
                await stream.initial_metadata(),
                await stream.trailing_metadata(),
                details=await stream.details(),
            )
        return reply.decode()

    async def _exchange_messages(self, stream: Any) -> bytes:  # noqa: ANN401 - grpc.aio's calls have no types
        """Write and read in turn; returns the last reply."""
        reply = b""
        try:
            for _ in range(self._messages):
                await stream.write(b"")
                received = await stream.read()
                if received is grpc.aio.EOF:
                    break
                reply = bytes(received)
                await pause(self._gap_s)
            await stream.done_writing()
        except asyncio.InvalidStateError:
            pass  # The stream has ended; its status has the reason.
        return reply

    def _cancel_later(self, call: Any) -> None:  # noqa: ANN401
        if self._cancel_after_s is not None:
            self._scenario.spawn(self._cancel(call, self._cancel_after_s))

    async def _cancel(self, call: Any, after_s: float) -> None:  # noqa: ANN401
        await pause(after_s)
        if not call.done():
            self.record.is_cancelled_by_us = True
            call.cancel()

    def _note(self, event: str, **fields: object) -> None:
        record = self.record
        self._scenario.world.journal.note(record.client.name, event, rpc=record.name, **fields)
