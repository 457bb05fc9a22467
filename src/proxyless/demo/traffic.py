"""RPCs of the demo: a steady load and one session, with a record of every RPC.

RPCs go through the generated stub. They are neither wait-for-ready nor retried, so each failure is
visible.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

import grpc.aio

from proxyless.base.frozen import frozen
from proxyless.demo import greeter_pb2, greeter_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.front import AioChannel

RPCS_PER_S: Final = 300.0
SESSION_RPCS_PER_S: Final = 20.0
DEADLINE_S: Final = 5.0
# Width of a column of the history.
BUCKET_S: Final = 0.5
OK: Final = "OK"

# At most two RPCs are due at each tick, so RPCs are spread evenly.
_TICK_S: Final = 0.003


@frozen
class Rpc:
    """An RPC that has ended. Times are seconds since the demo began."""

    started_s: float
    ended_s: float
    is_session: bool
    # The backend that answered, and the client's end of the connection; empty if the RPC failed.
    backend: str = ""
    peer: str = ""
    code: str = OK
    details: str = ""

    @property
    def is_ok(self) -> bool:
        return self.code == OK

    @property
    def took_s(self) -> float:
        return self.ended_s - self.started_s


class Record:
    """All RPCs so far, in the order of their ends."""

    def __init__(self) -> None:
        self.started = 0
        self.rpcs: list[Rpc] = []
        self.failures: list[Rpc] = []
        # Successful RPCs of the session.
        self.session: list[Rpc] = []
        # Successful RPCs of the load by (backend, bucket).
        self._buckets: Counter[tuple[str, int]] = Counter()

    def on_end(self, rpc: Rpc) -> None:
        self.rpcs.append(rpc)
        if not rpc.is_ok:
            self.failures.append(rpc)
            return
        if rpc.is_session:
            self.session.append(rpc)
        else:
            self._buckets[rpc.backend, int(rpc.ended_s / BUCKET_S)] += 1

    def rates(self, backend: str, now_s: float, columns: int) -> tuple[float, ...]:
        """RPCs per second in each of the last complete buckets, the newest last."""
        end = int(now_s / BUCKET_S)
        counts = (self._buckets[backend, index] for index in range(end - columns, end))
        return tuple(count / BUCKET_S for count in counts)

    def ended_since(self, since_s: float) -> Iterator[Rpc]:
        """RPCs that ended since then, the newest first."""
        for rpc in reversed(self.rpcs):
            if rpc.ended_s < since_s:
                return
            yield rpc


class Load:
    """RPCs at a steady rate, independent of each other."""

    def __init__(
        self, channel: AioChannel, record: Record, *, rate: float, is_session: bool, begin_s: float
    ) -> None:
        self._greet: Final = greeter_pb2_grpc.GreeterStub(channel).Greet
        self._record: Final = record
        self._rate: Final = rate
        self._is_session: Final = is_session
        # The loop's time at which the demo began.
        self._begin_s: Final = begin_s
        self._is_over = False

    def stop(self) -> None:
        """Start no more; `run` returns when the last RPC has ended."""
        self._is_over = True

    async def run(self) -> None:
        now_s = asyncio.get_running_loop().time
        began_s, started = now_s(), 0
        async with asyncio.TaskGroup() as group:
            while not self._is_over:
                due = int((now_s() - began_s) * self._rate) - started
                for _ in range(due):
                    started += 1
                    self._record.started += 1
                    group.create_task(self._run_one())
                await asyncio.sleep(_TICK_S)

    async def _run_one(self) -> None:
        now_s = asyncio.get_running_loop().time
        started_s = now_s() - self._begin_s
        backend, peer, code, details = "", "", OK, ""
        try:
            reply = await self._greet(greeter_pb2.GreetRequest(name="demo"), timeout=DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            code, details = error.code().name, str(error.details())
        else:
            backend, peer = reply.backend, reply.peer
        ended_s = now_s() - self._begin_s
        rpc = Rpc(started_s, ended_s, self._is_session, backend, peer, code, details)
        self._record.on_end(rpc)
