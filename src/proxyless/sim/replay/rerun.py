"""Re-run of a story in a simulated world, recorded as the original was.

One control plane serves the config steps, each endpoint is a backend that comes and goes by its
steps, and one client has a channel for each target. A sample of an RPC is sent again, and where it
was sent is compared with where the re-run would send it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import grpc

from proxyless.base.frozen import frozen
from proxyless.controlplane.snapshot import Snapshot
from proxyless.lb.description import ready_addresses
from proxyless.observe.flight import read_lines
from proxyless.sim.journal import without_logs
from proxyless.sim.loop import pause
from proxyless.sim.replay.decisions import (
    Comparison,
    Decision,
    compare_decisions,
    find_decisions,
)
from proxyless.sim.replay.story import (
    BackendStep,
    ConfigStep,
    NameStep,
    RpcStep,
    Step,
    Story,
    WakeStep,
    make_story,
)
from proxyless.sim.world import World
from proxyless.xds.routing.cluster_refs import CLUSTER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.base import Address
    from proxyless.front import AioChannel
    from proxyless.observe.flight import Recording
    from proxyless.sim.backends import Backend

# Addresses that are not used in meshes (RFC 2544).
_SUBNET: Final = "198.18"
_CLIENT: Final = "client"
# One way. The recording has the delays of its network, and it may have been a loopback.
LATENCY_S: Final = 0.000_01
# Time for the last decisions after the last event.
GRACE_S: Final = 1.0
# Time that a connection takes in the re-run and may not have taken in the recording.
CONNECT_S: Final = 0.1
# Samples of the connections during an RPC.
SAMPLES: Final = 50
# Timeout of a re-run RPC. The config and the first connection take some milliseconds here.
RPC_TIMEOUT_S: Final = 10.0

_OK: Final = "OK"


@frozen
class PickComparison:
    """Where a sampled RPC was sent, and where the re-run could send it."""

    at_s: float
    path: str
    cluster: str
    address: str
    # Ready addresses of the cluster, in the re-run.
    possible: tuple[str, ...]
    # Status code in the recording and in the re-run.
    code: str
    replayed_code: str

    @property
    def is_same(self) -> bool:
        if self.address:
            return self.address in self.possible
        return (self.code == _OK) == (self.replayed_code == _OK)


@frozen
class ReplayReport:
    """Comparison of a recording with its re-run."""

    decisions: tuple[Comparison, ...]
    picks: tuple[PickComparison, ...]
    notes: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        return all(each.is_same for each in self.decisions) and all(
            each.is_same for each in self.picks
        )


def replay(recording: Recording, seed: int = 0) -> ReplayReport:
    """Re-run a recording. Raises UnsuitableRecordingError with the reason if that is impossible."""
    story = make_story(recording)
    with without_logs():
        replayed, picks = _Rerun(story, seed).run()
    recorded = find_decisions(recording.entries, story.start_s, story.targets)
    has_start = not recording.left_out
    compared = compare_decisions(recorded, replayed, end_s=story.end_s, has_start=has_start)
    return ReplayReport(compared, tuple(picks), story.notes)


def listeners_as_targets(story: Story) -> dict[str, str]:
    """The targets of the re-run: without the bootstrap, a target is named as its listener."""
    return {listener: f"xds:///{listener}" for listener in story.targets}


class _Rerun:
    """One re-run. It owns the world."""

    def __init__(self, story: Story, seed: int) -> None:
        self._story = story
        self._world = world = World(seed, lines_kept=0, subnet=_SUBNET)
        world.fabric.latency_s = LATENCY_S
        self._control = world.control_plane("control", Snapshot.of([], partial=True))
        # The recording has the order in which the parts of a change arrived.
        self._control.is_paced = False
        self._client = world.client(_CLIENT)
        self._backends: dict[Address, Backend] = {}
        self._silent: set[Address] = set()
        self._channels: dict[str, AioChannel] = {}
        self._picks: list[PickComparison] = []
        self._start_s = 0.0
        methods = sorted({step.path for step in story.rpcs})
        # Names have an answer from the start, as lookups begin with the config.
        for step in reversed(story.names):
            world.fabric.names[step.host] = list(step.ips)
        for number, address in enumerate(sorted(story.addresses)):
            name = f"backend-{number + 1}"
            self._backends[address] = world.backend(name, addresses=[address], methods=methods)

    def run(self) -> tuple[dict[str, list[Decision]], list[PickComparison]]:
        """The decisions and the picks of the re-run."""
        rerun = read_lines(self._world.run(self._live()))
        story = self._story
        decisions = find_decisions(rerun.entries, self._start_s, listeners_as_targets(story))
        # The original may name its targets differently.
        names = {
            f"state of xds:///{listener}": f"state of {target}"
            for listener, target in story.targets.items()
        }
        names |= {
            f"clusters of xds:///{listener}": f"clusters of {target}"
            for listener, target in story.targets.items()
        }
        return {names.get(key, key): value for key, value in decisions.items()}, self._picks

    async def _live(self) -> list[str]:
        recorder = self._client.host.record_flight()
        for listener, target in self._story.targets.items():
            self._channels[target] = self._client.channel(f"xds:///{listener}")
        self._start_s = start_s = self._world.now_s()
        async with asyncio.TaskGroup() as group:
            for step in self._steps():
                await pause(max(0.0, start_s + step.at_s - self._world.now_s()))
                await self._execute(step, group)
            await pause(max(0.0, start_s + self._story.end_s + GRACE_S - self._world.now_s()))
        return list(recorder.dump_lines())

    def _steps(self) -> Iterator[Step]:
        """All steps in the order of time; a backend changes before what depends on it."""
        story = self._story
        steps: list[Any] = [
            *story.names, *story.backends, *story.configs, *story.wakes, *story.rpcs
        ]  # fmt: skip
        return iter(sorted(steps, key=lambda step: step.at_s))

    async def _execute(self, step: Step, group: asyncio.TaskGroup) -> None:
        match step:
            case ConfigStep():
                number = f"{step.at_s:.6f}"
                self._control.set_snapshot(Snapshot.of(step.resources, number, partial=True))
            case NameStep():
                self._world.fabric.names[step.host] = list(step.ips)
            case BackendStep():
                await self._change(step)
            case WakeStep():
                self._channels[step.target].get_state(try_to_connect=True)
            case RpcStep() if step.target in self._channels:
                group.create_task(self._send(step))
            case RpcStep():
                pass

    async def _change(self, step: BackendStep) -> None:
        backend = self._backends[step.address]
        if step.address in self._silent:
            self._silent.discard(step.address)
            backend.host.heal(self._client.host)
        if step.is_up:
            await backend.start()
        elif step.is_silent:
            self._silent.add(step.address)
            backend.host.cut(self._client.host)
        else:
            await backend.kill()
        if step.is_retried:
            pool = self._client.host.stack().pool
            for subchannel in pool.subchannels_at(step.address):
                subchannel.reset_backoff()

    async def _send(self, step: RpcStep) -> None:
        channel = self._channels[step.target]
        code = _OK
        call = channel.unary_unary(step.path)
        sampling = asyncio.ensure_future(self._sample(channel, step))
        try:
            await call(b"", timeout=max(step.ended_s - step.at_s, 0.0) + RPC_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            code = error.code().name
        found = tuple(sorted(await sampling | self._possible(channel, step)))
        self._picks.append(
            PickComparison(step.at_s, step.path, step.cluster, step.address, found, step.code, code)
        )

    async def _sample(self, channel: AioChannel, step: RpcStep) -> set[str]:
        """The ready addresses while the RPC ran, until the recorded one is among them.

        The recorded RPC may have waited for a connection, or have been sent again on another one
        when its backend went away. The re-run has other delays, so the whole RPC is sampled.
        """
        possible = self._possible(channel, step)
        until_s = self._start_s + step.ended_s + CONNECT_S
        interval_s = max(step.ended_s - step.at_s, CONNECT_S) / SAMPLES
        while step.address not in possible and self._world.now_s() < until_s:
            await pause(interval_s)
            possible |= self._possible(channel, step)
        return possible

    def _possible(self, channel: AioChannel, step: RpcStep) -> set[str]:
        with suppress(RuntimeError):
            tree = channel.lb_tree()
            for node in () if tree is None else tree.children:
                if node.name == CLUSTER_PREFIX + step.cluster:
                    return set(ready_addresses(node))
        return set()
