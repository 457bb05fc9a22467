"""FlightRecorder: bounded memory of the events, RPCs and resources of a process.

It subscribes to the trace of each event loop, gets failed RPCs and samples of others from calls
(`channel.counted_call`), and reads the resources of the xDS clients when they have changed. Events
and RPCs have rings of their own, so that RPCs do not displace the few events that explain them.
Values are converted when the recording is read, not when an event happens.
"""

from __future__ import annotations

import os
import platform
from collections import deque
from datetime import UTC, datetime
from functools import partial
from heapq import merge
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from proxyless.base.frozen import frozen
from proxyless.base.texts import one_line
from proxyless.channel.call_counts import ChannelCounts
from proxyless.observe.flight.recording import (
    RPC_EVENT,
    TEXT_MAX,
    Entry,
    bound_fields,
    to_document,
    write_lines,
)
from proxyless.observe.flight.resources import ResourceLog
from proxyless.observe.flight.storm import StormDetector
from proxyless.version import __version__
from proxyless.xds.view import dump_clients, picked_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxyless.base import Event, Status
    from proxyless.channel import Channel, LoopStack
    from proxyless.channel.call_counts import CallSample
    from proxyless.channel.loop_stack import LoopChannels
    from proxyless.xds.view import XdsClients

# Newer entries displace older ones.
EVENTS_MAX: Final = 4_096
RPCS_MAX: Final = 4_096
CHANNELS_MAX: Final = 1_000
# RPCs that succeed, per loop; and those that fail.
SAMPLE_INTERVAL_S: Final = 0.1
FAILURES_PER_S_MAX: Final = 100
CHUNK_BYTES: Final = 64 * 1024
# All resources of a loop are compared, at about 2 µs each; if there are many, not each time.
COMPARED_AT_ONCE_MAX: Final = 1_000
COMPARISON_DELAY_S: Final = 1.0

# Events after which the resources of the xDS clients are compared.
_CONFIG_EVENTS: Final = frozenset({"xds.response", "xds.resource_timeout", "xds_resolver.config"})

# Returns the xDS clients of a loop; None if it has none yet.
FindClients: TypeAlias = "Callable[[], XdsClients | None]"


@frozen
class RecordedChannel:
    """A channel whose RPCs are recorded. `created` is None if it is older than the recording."""

    target: str
    loop: int
    created: float | None


class FlightRecorder:
    """The recording of one process, or of one host of a simulation. Read by any thread."""

    def __init__(self, *, is_epoch_of_clock: bool = False) -> None:
        """`is_epoch_of_clock`: times are those of the loops' clocks, as in simulations."""
        self._is_epoch_of_clock: Final = is_epoch_of_clock
        self._numbers: Final = count(1)
        self.last_number = 0
        self._events: deque[Entry] = deque(maxlen=EVENTS_MAX)
        self._rpcs: deque[Entry] = deque(maxlen=RPCS_MAX)
        self._resources: Final = ResourceLog(self._next_number)
        # Weak, because loops end before the process.
        self._loops: WeakKeyDictionary[LoopChannels, _LoopRecorder] = WeakKeyDictionary()
        self._loop_numbers: Final = count(1)
        # The newest channels, by ID.
        self._channels: dict[int, RecordedChannel] = {}
        # Detectors of the channels with failed RPCs, by ID.
        self._storm_detectors: dict[int, StormDetector] = {}
        # Called once, when many RPCs fail.
        self.on_storm: Callable[[], None] | None = None
        self.has_had_storm = False

    def attach(self, stack: LoopStack, clients: FindClients) -> None:
        """Record the events of a loop. Called on that loop. Idempotent."""
        if stack.channels in self._loops:
            return
        offset_s = 0.0
        if not self._is_epoch_of_clock:
            offset_s = datetime.now(UTC).timestamp() - stack.clock.now_s()
        place = (next(self._loop_numbers), offset_s)
        self._loops[stack.channels] = _LoopRecorder(self, stack, clients, place)

    def observe_channels(self, stack: LoopStack) -> None:
        """Count and sample the RPCs of all channels of a loop. Called on that loop."""
        stack.channels.observer = partial(self.observe_channel, is_new=True)
        for channel in stack.channels.list_all():
            self.observe_channel(channel)

    def observe_channel(self, channel: Channel, *, is_new: bool = False) -> None:
        """Count and sample the RPCs of a channel of a loop that is recorded. Idempotent."""
        if channel.id in self._channels:
            return
        recorder = self._loops[channel.stack.channels]
        if len(self._channels) >= CHANNELS_MAX:
            self._channels.pop(next(iter(self._channels)), None)
        created = recorder.time() if is_new else None
        self._channels[channel.id] = RecordedChannel(channel.target, recorder.number, created)
        channel.count_calls(ChannelCounts(channel.id, recorder))

    def close(self) -> None:
        """Record nothing from now on. Channels that are counted remain so. Idempotent."""
        for channels, recorder in list(self._loops.items()):
            channels.observer = None
            recorder.stop()

    # Called by the recorders of loops

    def _next_number(self) -> int:
        self.last_number = number = next(self._numbers)
        return number

    def add_event(self, loop: int, time_s: float, name: str, fields: dict[str, object]) -> None:
        self._events.append(Entry(self._next_number(), time_s, loop, name, fields))

    def add_rpc(self, loop: int, time_s: float, fields: dict[str, object]) -> None:
        self._rpcs.append(Entry(self._next_number(), time_s, loop, RPC_EVENT, fields))

    def add_resources(self, loop: int, time_s: float, clients: XdsClients) -> int:
        """Add the resources that have changed; returns the number of all."""
        dumps = [(scope, dump) for scope, _, found in dump_clients(clients) for dump in found]
        self._resources.on_dumps(time_s, loop, dumps)
        return len(dumps)

    def on_failed_rpc(self, now_s: float, counts: ChannelCounts) -> None:
        if self.on_storm is None:
            return
        detector = self._storm_detectors.get(counts.channel_id)
        if detector is None:
            if len(self._storm_detectors) >= CHANNELS_MAX:
                self._storm_detectors.pop(next(iter(self._storm_detectors)), None)
            detector = self._storm_detectors[counts.channel_id] = StormDetector()
        if detector.on_failure(now_s, counts.succeeded):
            on_storm, self.on_storm = self.on_storm, None
            self.has_had_storm = True
            on_storm()

    # Reading

    def entries(self) -> Iterator[Entry]:
        """All entries, in the order of their numbers."""
        rings = (list(self._events), list(self._rpcs), list(self._resources.entries()))
        return merge(*rings, key=lambda entry: entry.number)

    def events_after(self, number: int, limit: int) -> tuple[list[dict[str, Any]], int]:
        """The newest events and RPCs after one with this number, and how many are left out."""
        rings = (list(self._events), list(self._rpcs))
        found = [each for each in merge(*rings, key=lambda one: one.number) if each.number > number]
        shown = [to_document(each) for each in found[-limit:]]
        return shown, max(0, len(found) - len(shown))

    def created(self, channel_id: int) -> float | None:
        """When a channel was created; None if it is older than the recording."""
        found = self._channels.get(channel_id)
        return None if found is None else found.created

    def states_of(self, target: str) -> list[Entry]:
        """The recorded changes of the state of the channels to a target, the oldest first."""
        changes = (each for each in list(self._events) if each.event == "channel.state")
        return [each for each in changes if each.fields.get("target") == target]

    def dump_lines(self) -> Iterator[str]:
        """The recording as a file, line by line."""
        entries = list(self.entries())
        header = {
            "time": entries[-1].time if entries else 0.0,
            "process": os.getpid(),
            "proxyless": __version__,
            "python": platform.python_version(),
            "channels": [
                {"id": number, "target": one_line(each.target, TEXT_MAX), "loop": each.loop}
                for number, each in list(self._channels.items())
            ],
        }
        return write_lines(header, entries, self.last_number - len(entries))

    def dump_chunks(self) -> Iterator[bytes]:
        """The recording as a file, in chunks of whole lines."""
        chunk: list[bytes] = []
        for line in self.dump_lines():
            chunk.append(line.encode("utf-8", "backslashreplace"))
            if sum(map(len, chunk)) >= CHUNK_BYTES:
                yield b"".join(chunk)
                chunk = []
        if chunk:
            yield b"".join(chunk)


class _LoopRecorder:
    """Records one loop: sink of its trace and of its calls."""

    def __init__(
        self,
        recorder: FlightRecorder,
        stack: LoopStack,
        clients: FindClients,
        place: tuple[int, float],
    ) -> None:
        self._recorder = recorder
        self._clock = stack.clock
        self._clients = clients
        self.number, self._offset_s = place
        self._is_comparison_due = False
        self._resources = 0
        # Sampling of RPCs, and the failed ones that were recorded in the current second.
        self.next_sample_s = 0.0
        self._failures_second = 0.0
        self._failures = 0
        self.stop: Final = stack.trace.subscribe(self._on_event)
        self._compare_resources()

    def time(self) -> float:
        """The time of the recording."""
        return self._clock.now_s() + self._offset_s

    def _on_event(self, event: Event) -> None:
        fields = bound_fields(event.fields)
        self._recorder.add_event(self.number, self.time(), event.name, fields)
        if event.name in _CONFIG_EVENTS and not self._is_comparison_due:
            # After the notifications that the response causes.
            self._is_comparison_due = True
            is_large = self._resources > COMPARED_AT_ONCE_MAX
            delay_s = COMPARISON_DELAY_S if is_large else 0.0
            self._clock.call_later(delay_s, self._compare_resources)

    def _compare_resources(self) -> None:
        self._is_comparison_due = False
        clients = self._clients()
        if clients is not None:
            self._resources = self._recorder.add_resources(self.number, self.time(), clients)

    def on_call_end(self, counts: ChannelCounts, call: CallSample, status: Status) -> None:
        now_s = self._clock.now_s()
        if now_s >= self.next_sample_s:
            self.next_sample_s = now_s + SAMPLE_INTERVAL_S
        elif not self._may_add_failure(now_s):
            return
        fields = {
            "channel": counts.channel_id,
            "method": one_line(call.path, TEXT_MAX),
            "cluster": picked_cluster(call.pick_attributes),
            "address": call.address,
            "status": status,
            "took_s": round(now_s - call.started_s, 6),
        }
        self._recorder.add_rpc(self.number, now_s + self._offset_s, fields)
        if not status.is_ok:
            self._recorder.on_failed_rpc(now_s, counts)

    def _may_add_failure(self, now_s: float) -> bool:
        if now_s - self._failures_second >= 1.0:
            self._failures_second, self._failures = now_s, 0
        self._failures += 1
        return self._failures <= FAILURES_PER_S_MAX
