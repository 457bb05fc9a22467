"""Applications with a session, which a cookie keeps on one backend (A55)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import grpc

from proxyless.sim.backends import RPC_ID, UNARY
from proxyless.sim.loop import pause
from tools.simulation.plans import SESSION_COOKIE
from tools.simulation.random_choices import random_bool, random_gap_s
from tools.simulation.records import RpcRecord
from tools.simulation.scenario import QUIET_S

if TYPE_CHECKING:
    from proxyless.runtime import Random
    from tools.simulation.scenario import Scenario

SESSIONS: Final = 3
_TIMEOUT_S: Final = 5.0
_GAP_S: Final = 4.0


class SessionTraffic:
    """Sessions at each client, if the mesh has sessions."""

    name: Final = "session traffic"

    async def start(self, scenario: Scenario) -> None:
        if not scenario.options.has_sessions:
            return
        for client in scenario.channels:
            for number in range(SESSIONS):
                scenario.spawn(_Session(scenario, client, f"session-{number}-{client}").live())


class _Session:
    """One session: its cookie and its endpoint."""

    def __init__(self, scenario: Scenario, client: str, name: str) -> None:
        self._scenario = scenario
        self._client = client
        self._name = name
        self._random: Random = scenario.random(name)
        self._cookie = ""
        self._home = ""
        self._home_cluster = ""
        self._home_aliases: frozenset[str] = frozenset()

    async def live(self) -> None:
        number = 0
        while True:
            await pause(random_gap_s(self._random, _GAP_S) / self._scenario.pace)
            if self._scenario.world.now_s() >= self._scenario.end_s - QUIET_S:
                return
            await self._send_rpc(f"{self._name}-{number}")
            number += 1

    async def _send_rpc(self, name: str) -> None:
        scenario = self._scenario
        record = RpcRecord(
            name=name,
            client=scenario.recorder.clients[self._client],
            kind="session",
            lane="",
            wait_for_ready=random_bool(self._random, 0.5),
            timeout_s=_TIMEOUT_S,
            started_s=scenario.world.now_s(),
            home=self._home,
            home_cluster=self._home_cluster,
            home_aliases=self._home_aliases,
        )
        scenario.recorder.rpcs[name] = record
        metadata = [(RPC_ID, name)]
        if self._cookie:
            metadata.append(("cookie", self._cookie))
        call = scenario.channels[self._client].unary_unary(UNARY)(
            b"",
            timeout=_TIMEOUT_S,
            wait_for_ready=record.wait_for_ready,
            metadata=tuple(metadata),
        )
        try:
            record.served_by = bytes(await call).decode()
            record.code = "OK"
            self._store_cookie(record, await call.initial_metadata())
        except grpc.aio.AioRpcError as error:
            record.code, record.details = error.code().name, str(error.details())
        except asyncio.CancelledError:
            if not record.is_cancelled_by_us:
                raise
            record.code = "CANCELLED"
        record.ended_s = scenario.world.now_s()
        scenario.world.journal.note(
            self._client, "session.rpc", rpc=name, code=record.code, by=record.served_by
        )

    def _store_cookie(self, record: RpcRecord, metadata: Any) -> None:  # noqa: ANN401 - grpcio's own
        for key, value in metadata:
            if key == "set-cookie" and value.startswith(f"{SESSION_COOKIE}="):
                self._cookie = value.partition(";")[0]
                self._home = self._scenario.address(record.served_by)
                self._home_cluster = record.picks[-1].cluster
                self._home_aliases = record.view_of(record.picks[-1]).endpoint_of(self._home)
