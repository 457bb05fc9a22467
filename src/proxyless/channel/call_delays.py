"""Delays of a measured call: their kinds, and the time that each takes.

Specs: A121, a draft: a wait for name resolution delays a call, a wait for a pick an attempt. The
kinds `credentials`, `http_filters`, `max_concurrent_streams` and `flow_control` are our own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.lb.api import Complete, Fail
from proxyless.lb.attributes import DELAY_KIND, DELAY_PRIORITY
from proxyless.metrics.plugins import record_safely

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from proxyless.lb.api import PickResult
    from proxyless.metrics.tracers import DelayTracer
    from proxyless.runtime import Clock
    from proxyless.wire import ClientStream

# Delays of calls
CREDENTIALS: Final = "credentials"
RESOLVING: Final = "resolving"
FILTERS: Final = "http_filters"
# Delays of attempts
CONNECTING: Final = "connecting"
STATE_MISMATCH: Final = "subchannel_state_mismatch"
FAILING: Final = "picker_failing_with_wait_for_ready"
STREAM_LIMIT: Final = "max_concurrent_streams"
FLOW_CONTROL: Final = "flow_control"

# Kind and reason. The reason is for people: it may contain names and addresses.
DelayCause = tuple[str, str]


def describe_queued_pick(result: PickResult, labels: Mapping[str, str]) -> DelayCause:
    """The cause of a delay by this pick result. `labels`: what policies noted in the pick."""
    if isinstance(result, Complete):
        return STATE_MISMATCH, f"connection to {result.subchannel.address} was lost before its use"
    if isinstance(result, Fail):
        return FAILING, result.status.details
    kind, priority = labels.get(DELAY_KIND, CONNECTING), labels.get(DELAY_PRIORITY)
    if kind != CONNECTING:
        return kind, "cluster is not received yet"
    if priority is None:
        return kind, "no endpoint is connected yet"
    # "Prepends the active priority tier index" - A121
    return f"p{priority}:{kind}", f"no endpoint of priority {priority} is connected yet"


def describe_unsent(stream: ClientStream) -> DelayCause | None:
    """What the first messages of a new stream wait for; None if they are sent."""
    if stream.is_ended or stream.queue is None:
        return None
    if not stream.id:
        return STREAM_LIMIT, "peer's limit of concurrent streams is reached"
    return FLOW_CONTROL, f"{stream.queue.size} bytes wait for the peer's window"


class Delay:
    """One delay of a call or an attempt. Ends when its kind changes, or the wait is over."""

    __slots__ = ("_began_s", "_clock", "_record", "cause", "tracers")

    def __init__(
        self, cause: DelayCause, clock: Clock, record: Callable[[str, float], None]
    ) -> None:
        self._clock: Final = clock
        self._record: Final = record
        self._began_s: Final = clock.measured_s()
        self.cause = cause
        # Set by a traced call.
        self.tracers: Sequence[DelayTracer] = ()

    @property
    def kind(self) -> str:
        return self.cause[0]

    def on_cause(self, cause: DelayCause) -> None:
        """The delay continues, with a cause of the same kind."""
        if cause != self.cause:
            self.cause = cause
            for tracer in self.tracers:
                record_safely(tracer.on_reason, cause[1])

    def end(self) -> None:
        """Called once."""
        self._record(self.kind, self._clock.measured_s() - self._began_s)
        for tracer in self.tracers:
            record_safely(tracer.end)
