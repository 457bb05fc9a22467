"""An RPC ends once, whatever happens to it in whatever order, and leaves nothing behind.

Each life is one RPC among everything that can happen to it: its attempts end in every way, block
and answer, pickers come and go, retries are throttled, time passes, the application sends, waits
and gives up. Then the world is kind to it, and it has to come to its end. The lives are the same in
every run; a failure names the seed. Somebody measures every other life, which must not change it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

from proxyless.base import OK, State, Status, StatusCode
from proxyless.channel import CallConfig
from proxyless.channel.retry import AttemptEnd
from proxyless.channel.service_config import HedgingPolicy, MethodConfig, RetryPolicy
from proxyless.lb import QUEUE_PICKER, Drop, Fail
from proxyless.metrics.instruments import ATTEMPT_DURATION, ATTEMPT_STARTED, CALL_DURATION
from proxyless.runtime import seeded_random
from proxyless.wire import StreamEnd
from tests.metrics_world import RecordingPlugin
from tests.spec.channel_world import (
    UNAVAILABLE,
    UNPROCESSED,
    ChannelWorld,
    FakeSelector,
    FakeStream,
    Observer,
    RecordingPicker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

LIVES: Final = 400
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


# How an attempt may end; what decides the RPC at once is rare, or no life would be long.
ENDS: Final = (
    *(UNAVAILABLE, UNPROCESSED, replace(UNPROCESSED, is_retry_free=True)) * 4,
    *(pushback("500"), pushback("-1"), pushback("soon")) * 2,
    StreamEnd(Status(StatusCode.NOT_FOUND, "no such thing")),
)


@dataclass
class WaitingObserver(Observer):
    """A front with a writer, who waits until he is told to go on."""

    is_writer_waiting: bool = False

    def on_writable(self) -> None:
        self.is_writer_waiting = False


@dataclass
class Life:
    """One RPC and what happens to it."""

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
        """Those of attempts that are under way."""
        return [stream for stream in self.world.streams if not stream.is_ended]

    # What may happen

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
        self._tell_throttle(UNAVAILABLE.status)

    def _fill_throttle(self) -> None:
        self._tell_throttle(OK)

    def _tell_throttle(self, status: Status) -> None:
        """Other RPCs of the channel ended like this."""
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

    def _give_up(self) -> None:
        self.call.cancel()

    def _drop(self) -> None:
        self.world.report(State.READY, RecordingPicker(Drop(FAILING)))

    # The life

    def live(self) -> None:
        if self.random.randrange(2):
            self.sent, self.is_half_closed = [b"request"], True
            self.call.start_unary(b"request")
        else:
            self.call.start()
        for _ in range(self.random.randrange(EVENTS_MAX)):
            self._choose(self.events)()
            self._expect_no_more_than_allowed()
        self._choose((*(self._connect,) * 6, self._give_up, self._drop))()
        self._expect_no_more_than_allowed()
        self._come_to_an_end()
        self._expect_nothing_left()

    def _come_to_an_end(self) -> None:
        """From here on everything goes well."""
        self._half_close()
        self.world.ready()
        for _ in range(2 * int(TIMEOUT_S)):
            for stream in self.streams:
                if not stream.is_ended:
                    assert stream.messages == self.sent
                    assert stream.is_half_closed
                    stream.end(StreamEnd(OK)) if self.call.is_committed else stream.answer()
            self.world.clock.advance(1.0)

    def _expect_no_more_than_allowed(self) -> None:
        too_many = b"grpc-previous-rpc-attempts\x01%d" % ATTEMPTS_MAX
        assert not any(too_many in stream.block for stream in self.world.streams), "attempts"
        if self.observer.is_running:
            is_forgotten = self.observer.is_writer_waiting and self.call.is_writable
            assert not is_forgotten, "a writer waits, and could go on"
            assert self.streams or self.call.is_waiting or self.world.clock.timers_pending

    def _expect_nothing_left(self) -> None:
        assert len(self.observer.ends) == 1, "ends"
        assert self.commits == 1, "commits"
        channel, clock = self.world.channel, self.world.clock
        assert (channel.calls, channel.view().waiting) == (0, 0)
        assert len(channel.deadlines) == 0
        assert not self.streams
        streams = len(self.world.streams)
        clock.advance(100.0)
        assert len(self.world.streams) == streams
        if self.seed % 2:
            self._expect_all_measured()

    def _expect_all_measured(self) -> None:
        started = self.plugin.count_of(ATTEMPT_STARTED)
        assert len(self.plugin.values(ATTEMPT_DURATION)) == started >= len(self.world.streams)
        assert len(self.plugin.values(CALL_DURATION)) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_every_rpc_ends_once_and_leaves_nothing_behind(policy: str) -> None:
    longest = 0
    for seed in range(LIVES):
        life = Life(policy, seed)
        try:
            life.live()
        except (AssertionError, RuntimeError) as error:
            raise AssertionError(f"life {seed} of an RPC with {policy}: {error}") from error
        longest = max(longest, len(life.world.streams))
    # What did not happen cannot go wrong.
    assert longest > ATTEMPTS_MAX
