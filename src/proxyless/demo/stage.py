"""Stage of the demo: backend processes, a control plane and a channel, on loopback.

The story decides what is done, the view what is shown; the stage executes and records.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import proxyless
from proxyless.assembly import xds_clients_by_loop
from proxyless.base.frozen import frozen
from proxyless.controlplane import CLUSTER, ROUTE_CONFIG, ControlPlane, ServiceOptions
from proxyless.demo.mesh import NEW, PLACES, SERVICE, Plan, build
from proxyless.demo.processes import Backend
from proxyless.demo.story import Observation, summarize
from proxyless.demo.traffic import RPCS_PER_S, SESSION_RPCS_PER_S, Load, Record
from proxyless.demo.verdict import is_excused, kills_of
from proxyless.demo.view import (
    GenerationView,
    View,
    view_backends,
    view_held,
    view_session,
    view_steps,
    view_tree,
)
from proxyless.observe.csds_service import view_clients

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from proxyless.demo.story import Step, StepLog
    from proxyless.demo.verdict import Verdict
    from proxyless.front import AioChannel, AioSession
    from proxyless.xds.client.api import ResourceDump

TARGET: Final = f"xds:///{SERVICE}"
NODE: Final = "demo"
# The client reconnects to a restarted backend within a second.
_OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


@frozen
class Settings:
    """Options of the user."""

    # Divisor of the time for which steps are shown.
    speed: float = 1.0
    # Backend that answers with errors, for a bad verdict.
    bad_backend: str = ""


class LiveStage:
    """Executes the actions of the story. It owns the record of the RPCs and the plan."""

    def __init__(
        self, backends: Iterable[Backend], control_plane: ControlPlane, channel: AioChannel
    ) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._begin_s: Final = self._loop.time()
        self._backends: Final = {backend.place.name: backend for backend in backends}
        self._control_plane: Final = control_plane
        self._channel: Final = channel
        self._session: Final[AioSession] = channel.session()
        self.record: Final = Record()
        self._plan = plan_of(self._backends.values())
        self._is_served = True

    def now_s(self) -> float:
        return self._loop.time() - self._begin_s

    def loads(self) -> tuple[Load, Load]:
        record, begin_s = self.record, self._begin_s
        every = Load(self._channel, record, rate=RPCS_PER_S, is_session=False, begin_s=begin_s)
        session = Load(
            self._session, record, rate=SESSION_RPCS_PER_S, is_session=True, begin_s=begin_s
        )
        return every, session

    # Actions

    async def kill(self, zone: str) -> None:
        await asyncio.gather(*(backend.kill() for backend in self._backends_in(zone)))

    async def revive(self, zone: str) -> None:
        await asyncio.gather(*(backend.start() for backend in self._backends_in(zone)))

    def move_session_endpoint(self) -> str:
        name = self._plan.name_at(self._session.backend or "")
        self._serve(self._plan.with_moved(name))
        return name

    def route_to(self, cluster: str, *, is_late: bool = False) -> None:
        if is_late:
            self._control_plane.withhold(CLUSTER, NEW)
        self._serve(self._plan.with_route_to(cluster))

    def release(self) -> None:
        self._control_plane.release()

    async def stop_control_plane(self) -> None:
        self._is_served = False
        await self._control_plane.stop()

    async def start_control_plane(self) -> None:
        await self._control_plane.start()
        self._is_served = True

    def _backends_in(self, zone: str) -> list[Backend]:
        return [each for each in self._backends.values() if each.place.zone == zone]

    def _serve(self, plan: Plan) -> None:
        self._plan = plan
        self._control_plane.set_snapshot(build(plan, self._control_plane.snapshot))

    # Observations

    def observe(self, since_s: float, moved: str) -> Observation:
        load, failed, session = summarize(self.record.ended_since(since_s), since_s=since_s)
        routes = [dump for dump in self._dump() if dump.type_url == ROUTE_CONFIG]
        return Observation(
            served=load,
            failed=failed,
            session=session,
            first_choice=self._plan.first_choice(),
            routes_held=routes[0].version if routes else "",
            routes_served=self._control_plane.snapshot.version_of(ROUTE_CONFIG),
            moved=moved,
        )

    def take_view(
        self, story: Sequence[Step], logs: Sequence[StepLog], verdict: Verdict | None = None
    ) -> View:
        now_s, record, plan = self.now_s(), self.record, self._plan
        names = {plan.address_of(place): place.name for place in PLACES}
        running = [name for name, backend in self._backends.items() if backend.is_running]
        backends = view_backends(record, plan, running, now_s)
        lost = sum(is_excused(rpc, kills_of(logs)) for rpc in record.failures)
        session = view_session(record, plan, self._session.cluster or "", now_s)
        return View(
            elapsed_s=now_s,
            rate=sum(backend.rate for backend in backends),
            sent=record.started,
            lost=lost,
            failed=len(record.failures) - lost,
            tree=view_tree(self._channel.lb_tree(), names, f"{session.backend} {session.address}"),
            backends=backends,
            session=session,
            generation=self._view_generation(),
            steps=view_steps(story, logs),
            verdict=verdict.rows if verdict is not None else (),
            is_good=verdict is not None and verdict.is_good,
        )

    def _view_generation(self) -> GenerationView:
        answered = next((rpc for rpc in reversed(self.record.rpcs) if rpc.is_ok), None)
        clusters = {place.name: place.cluster for place in PLACES}
        return GenerationView(
            served=str(self._plan.generation),
            is_served=self._is_served,
            held=view_held(self._dump()),
            cluster=clusters[answered.backend] if answered is not None else "",
        )

    def _dump(self) -> Sequence[ResourceDump]:
        clients = xds_clients_by_loop().get(self._loop)
        views = view_clients(clients, self._loop.time()) if clients is not None else []
        return next((view.resources for view in views if view.scope == TARGET), ())


def plan_of(backends: Iterable[Backend]) -> Plan:
    return Plan({backend.place.name: backend.port for backend in backends})


@asynccontextmanager
async def open_stage(settings: Settings) -> AsyncIterator[LiveStage]:
    """Start everything, and stop everything at the exit, even after an error."""
    backends = [Backend(place, is_bad=place.name == settings.bad_backend) for place in PLACES]
    async with AsyncExitStack() as exits:
        for backend in backends:
            exits.push_async_callback(backend.kill)
        await asyncio.gather(*(backend.start() for backend in backends))
        # Not paced: all parts of a change are sent at once, so avoiding tears is up to the client.
        control_plane = await exits.enter_async_context(
            ControlPlane(build(plan_of(backends)), options=ServiceOptions(is_paced=False))
        )
        channel = await exits.enter_async_context(
            proxyless.aio.insecure_channel(
                TARGET, options=_OPTIONS, bootstrap=control_plane.bootstrap(NODE)
            )
        )
        yield LiveStage(backends, control_plane, channel)
