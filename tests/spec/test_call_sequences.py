"""Random sequences of events during one RPC: it ends once, and releases everything.

Each run is one RPC. Its attempts end in any way, block and respond, pickers change, retries are
throttled, time passes, the application sends, waits and cancels. Then all further attempts succeed,
and the RPC has to end. The runs have fixed seeds; a failure has its seed in the message. Every
other run is measured, which must not change the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

from proxyless.base import OK, State, Status, StatusCode
from proxyless.channel import CallConfig
from proxyless.channel.call_attempts import Station
from proxyless.channel.retry import AttemptEnd
from proxyless.channel.service_config import HedgingPolicy, MethodConfig, RetryPolicy
from proxyless.lb import QUEUE_PICKER, Drop, Fail
from proxyless.metrics.instruments import ATTEMPT_DURATION, ATTEMPT_STARTED, CALL_DURATION
from proxyless.runtime import seeded_random
from proxyless.wire import StreamEnd
from tests.worlds.channels import (
    UNAVAILABLE,
    UNPROCESSED,
    CallObserver,
    ChannelWorld,
    FakeSelector,
    FakeStream,
    RecordingPicker,
)
from tests.worlds.stats_plugins import RecordingPlugin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

RUNS: Final = 400
EVENTS_MAX: Final = 25
ATTEMPTS_MAX: Final = 3
TIMEOUT_S: Final = 20.0
CODES: Final = frozenset({StatusCode.UNAVAILABLE})
POLICIES: Final = {
    "no policy": MethodConfig(),
    "retries": MethodConfig(
        retry_policy=RetryPolicy(
            attempts_max=ATTEMPTS_MAX,
            initial_backoff_s=1.0,
            max_backoff_s=4.0,
            backoff_multiplier=2.0,
            retryable_codes=CODES,
        )
    ),
    "hedging": MethodConfig(
        hedging_policy=HedgingPolicy(
            attempts_max=ATTEMPTS_MAX, hedging_delay_s=1.0, non_fatal_codes=CODES
        )
    ),
}
THROTTLED: Final = {
    "loadBalancingConfig": [{"stub": {}}],
    "retryThrottling": {"maxTokens": 10, "tokenRatio": 1},
}
FAILING: Final = Status(StatusCode.UNAVAILABLE, "nothing to pick")


def pushback(value: str) -> StreamEnd:
    return StreamEnd(UNAVAILABLE.status, (("grpc-retry-pushback-ms", value),))


# How an attempt may end. Ends that also end the RPC are rare, so that most runs are long.
ENDS: Final = (
    *(UNAVAILABLE, UNPROCESSED, replace(UNPROCESSED, is_retry_free=True)) * 4,
    *(pushback("500"), pushback("-1"), pushback("soon")) * 2,
    StreamEnd(Status(StatusCode.NOT_FOUND, "no such thing")),
)


@dataclass
class WaitingObserver(CallObserver):
    """A front with a writer that waits until the call is writable."""

    is_writer_waiting: bool = False

    def on_writable(self) -> None:
        self.is_writer_waiting = False


@dataclass
class RpcRun:
    """One RPC and its random events."""

    policy: str
    seed: int
    commits: int = 0
    sent: list[bytes] = field(default_factory=list)
    is_half_closed: bool = False

    def __post_init__(self) -> None:
        self.random = seeded_random(self.seed)
        self.plugin = RecordingPlugin()
        metrics = {"metrics": self.plugin.metrics} if self.seed % 2 else {}
        self.world = ChannelWorld(service_config=THROTTLED, **metrics)
        config = CallConfig(POLICIES[self.policy], on_commit=self._on_commit)
        self.world.connect(FakeSelector(config))
        self.observer = WaitingObserver()
        self.call = self.world.channel.call_type(
            self.world.channel,
            self.world.method,
            self.observer,
            (),
            self._choose((None, TIMEOUT_S)),
            self._choose((None, True)),
        )
        self.events: tuple[Callable[[], None], ...] = (
            *(self._end_one, self._block_or_unblock, self._pass_time, self._send) * 4,
            *(self._queue, self._connect, self._fail_picks) * 2,
            *(self._answer_one, self._half_close, self._exhaust_throttle, self._fill_throttle),
        )

    def _choose(self, options: Sequence[T]) -> T:
        return options[self.random.randrange(len(options))]

    def _on_commit(self) -> None:
        self.commits += 1

    @property
    def streams(self) -> list[FakeStream]:
        """Streams of the attempts under way."""
        return [stream for stream in self.world.streams if not stream.is_ended]

    # Events

    def _end_one(self) -> None:
        if self.streams:
            self._choose(self.streams).end(self._choose(ENDS))

    def _answer_one(self) -> None:
        if self.streams:
            self._choose(self.streams).head()

    def _block_or_unblock(self) -> None:
        if self.streams:
            stream = self._choose(self.streams)
            stream.is_writable = not stream.is_writable
            if stream.is_writable:
                stream.listener.on_writable()

    def _pass_time(self) -> None:
        self.world.clock.advance(self._choose((0.0, 0.3, 1.0, 2.0)))

    def _queue(self) -> None:
        self.world.report(State.CONNECTING, QUEUE_PICKER)

    def _connect(self) -> None:
        self.world.ready()

    def _fail_picks(self) -> None:
        self.world.report(State.TRANSIENT_FAILURE, RecordingPicker(Fail(FAILING)))

    def _exhaust_throttle(self) -> None:
        self._record_attempts(UNAVAILABLE.status)

    def _fill_throttle(self) -> None:
        self._record_attempts(OK)

    def _record_attempts(self, status: Status) -> None:
        """Record 10 attempts of other RPCs that ended with this status."""
        throttle = self.world.channel.config.throttle
        assert throttle is not None
        for _ in range(10):
            throttle.on_attempt_end(AttemptEnd(status), CODES)

    def _send(self) -> None:
        if not self.is_half_closed and not self.observer.is_writer_waiting:
            self.sent.append(b"message %d" % len(self.sent))
            self.call.send_message(self.sent[-1])
            self.observer.is_writer_waiting = not self.call.is_writable

    def _half_close(self) -> None:
        self.is_half_closed = True
        self.call.close_sending()

    def _cancel(self) -> None:
        self.call.cancel()

    def _drop(self) -> None:
        self.world.report(State.READY, RecordingPicker(Drop(FAILING)))

    # The run

    def execute(self) -> None:
        if self.random.randrange(2):
            self.sent, self.is_half_closed = [b"request"], True
            self.call.start_unary(b"request")
        else:
            self.call.start()
        for _ in range(self.random.randrange(EVENTS_MAX)):
            self._choose(self.events)()
            self._check_running()
        self._choose((*(self._connect,) * 6, self._cancel, self._drop))()
        self._check_running()
        self._let_attempts_succeed()
        self._check_ended()

    def _let_attempts_succeed(self) -> None:
        """Let all further attempts succeed."""
        self._half_close()
        self.world.ready()
        for _ in range(2 * int(TIMEOUT_S)):
            for stream in self.streams:
                if not stream.is_ended:
                    assert stream.messages == self.sent
                    assert stream.is_half_closed
                    is_committed = self.call.station is Station.COMMITTED
                    stream.end(StreamEnd(OK)) if is_committed else stream.respond()
            self.world.clock.advance(1.0)

    def _check_running(self) -> None:
        too_many = b"grpc-previous-rpc-attempts\x01%d" % ATTEMPTS_MAX
        assert not any(too_many in stream.block for stream in self.world.streams), "attempts"
        if self.observer.is_running:
            is_stuck = self.observer.is_writer_waiting and self.call.is_writable
            assert not is_stuck, "a writer waits although the call is writable"
            assert self.streams or self.call.is_waiting or self.world.clock.timers_pending

    def _check_ended(self) -> None:
        assert len(self.observer.ends) == 1, "ends"
        assert self.commits == 1, "commits"
        channel, clock = self.world.channel, self.world.clock
        assert (channel.calls, channel.view().waiting) == (0, 0)
        assert len(channel.stack.deadlines) == 0
        assert not self.streams
        streams = len(self.world.streams)
        clock.advance(100.0)
        assert len(self.world.streams) == streams
        if self.seed % 2:
            self._check_measured()

    def _check_measured(self) -> None:
        started = self.plugin.count_of(ATTEMPT_STARTED)
        assert len(self.plugin.values(ATTEMPT_DURATION)) == started >= len(self.world.streams)
        assert len(self.plugin.values(CALL_DURATION)) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_every_rpc_ends_once_and_releases_everything(policy: str) -> None:
    longest = 0
    for seed in range(RUNS):
        run = RpcRun(policy, seed)
        try:
            run.execute()
        except (AssertionError, RuntimeError) as error:
            raise AssertionError(f"run {seed} of an RPC with {policy}: {error}") from error
        longest = max(longest, len(run.world.streams))
    # Some run has more attempts than the limit, by transparent retries.
    assert longest > ATTEMPTS_MAX
