"""Unit tests of proxyless.channel.connectivity."""

from itertools import product
from math import inf, nan

import pytest

from proxyless.base import OK, BackoffPolicy, State, Status, StatusCode
from proxyless.channel.connectivity import (
    BackoffOver,
    BackoffReset,
    CancelBackoff,
    Connect,
    Connected,
    Connectivity,
    Effect,
    Event,
    Failed,
    Lost,
    Needed,
    Released,
    Requested,
    StartBackoff,
    StopConnection,
)
from proxyless.channel.subchannel_options import SubchannelOptions
from proxyless.runtime import seeded_random
from tests.worlds.subchannels import CONNECTING, FAILURE, IDLE, READY, SHUTDOWN

REFUSED = Status(StatusCode.UNAVAILABLE, "10.0.0.1:80: connection refused")
GONE = Status(StatusCode.UNAVAILABLE, "connection lost: closed by peer")
EXACT = SubchannelOptions(backoff=BackoffPolicy(jitter=0))


# How to get into each state. The attempt starts at 100 s, its delay is 1 s.
WAYS: dict[State, tuple[Event, ...]] = {
    IDLE: (),
    CONNECTING: (Requested(100.0),),
    READY: (Requested(100.0), Connected()),
    FAILURE: (Requested(100.0), Failed(REFUSED, 100.25)),
    SHUTDOWN: (Released(),),
}
EVENTS: tuple[Event, ...] = (
    Requested(200.0),
    Needed(200.0),
    Connected(),
    Failed(REFUSED, 100.25),
    Lost(GONE),
    BackoffOver(),
    BackoffReset(),
    Released(),
)
# All other events change nothing.
MOVES: dict[tuple[State, type[Event]], tuple[State, tuple[Effect, ...]]] = {
    (IDLE, Requested): (CONNECTING, (Connect(20.0),)),
    (IDLE, Released): (SHUTDOWN, ()),
    (CONNECTING, Connected): (READY, ()),
    (CONNECTING, Failed): (FAILURE, (StartBackoff(0.75),)),
    (CONNECTING, Released): (SHUTDOWN, (StopConnection(),)),
    (READY, Needed): (READY, (Connect(20.0),)),
    (READY, Lost): (IDLE, ()),
    (READY, Released): (SHUTDOWN, (StopConnection(),)),
    (FAILURE, BackoffOver): (IDLE, ()),
    (FAILURE, BackoffReset): (IDLE, (CancelBackoff(),)),
    (FAILURE, Released): (SHUTDOWN, (CancelBackoff(),)),
}


def connectivity_after(*events: Event, options: SubchannelOptions = EXACT) -> Connectivity:
    connectivity = Connectivity(options, seeded_random(1))
    for event in events:
        connectivity.step(event)
    return connectivity


def next_delay_s(connectivity: Connectivity) -> float:
    """The backoff after an attempt that starts and fails at the same time."""
    connectivity.step(Requested(0.0))
    (effect,) = connectivity.step(Failed(REFUSED, 0.0))
    assert isinstance(effect, StartBackoff)
    return effect.delay_s


@pytest.mark.parametrize(("state", "event"), list(product(WAYS, EVENTS)))
def test_every_state_meets_every_event(state: State, event: Event) -> None:
    connectivity = connectivity_after(*WAYS[state])
    assert connectivity.state is state
    expected = MOVES.get((state, type(event)), (state, ()))
    effects = connectivity.step(event)
    assert (connectivity.state, effects) == expected


@pytest.mark.parametrize(("state", "event"), list(product(WAYS, EVENTS)))
def test_status_is_ok_in_every_state_except_transient_failure(state: State, event: Event) -> None:
    connectivity = connectivity_after(*WAYS[state], event)
    assert connectivity.status == (REFUSED if connectivity.state is FAILURE else OK)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ((), "new"),
        (WAYS[CONNECTING], "connection requested"),
        (WAYS[READY], "connected"),
        (WAYS[FAILURE], "10.0.0.1:80: connection refused"),
        ((*WAYS[READY], Lost(GONE)), "connection lost: closed by peer"),
        ((*WAYS[FAILURE], BackoffOver()), "backoff over"),
        ((*WAYS[FAILURE], BackoffReset()), "backoff reset"),
        ((*WAYS[READY], BackoffReset()), "connected"),
        (WAYS[SHUTDOWN], "released"),
    ],
)
def test_each_state_has_its_reason(events: tuple[Event, ...], reason: str) -> None:
    assert connectivity_after(*events).reason == reason


@pytest.mark.parametrize(
    ("failed_s", "left_s"), [(100.0, 1.0), (100.5, 0.5), (101.0, 0.0), (107.0, 0.0)]
)
def test_backoff_includes_the_time_of_the_attempt(failed_s: float, left_s: float) -> None:
    connectivity = connectivity_after(Requested(100.0))
    assert connectivity.step(Failed(REFUSED, failed_s)) == (StartBackoff(left_s),)


def test_timeout_of_an_attempt_grows_with_the_backoff() -> None:
    policy = BackoffPolicy(initial_s=10, multiplier=2, max_s=80, jitter=0)
    connectivity = connectivity_after(options=SubchannelOptions(backoff=policy))
    timeouts_s = []
    for _ in range(5):
        (effect,) = connectivity.step(Requested(0.0))
        assert isinstance(effect, Connect)
        timeouts_s.append(effect.timeout_s)
        connectivity.step(Failed(REFUSED, 0.0))
        connectivity.step(BackoffOver())
    assert timeouts_s == [20.0, 20.0, 40.0, 80.0, 80.0]


def test_timeout_of_an_attempt_has_a_configured_minimum() -> None:
    connectivity = connectivity_after(
        options=SubchannelOptions(min_connect_timeout_s=0.5, backoff=BackoffPolicy(jitter=0))
    )
    assert connectivity.step(Requested(0.0)) == (Connect(1.0),)
    connectivity = connectivity_after(options=SubchannelOptions(min_connect_timeout_s=90))
    assert connectivity.step(Requested(0.0)) == (Connect(90),)


# Three failures: the next delay would be 4.096 s.
THREE_FAILURES: tuple[Event, ...] = ((Requested(0.0), Failed(REFUSED, 0.0), BackoffOver()) * 2) + (
    Requested(0.0),
    Failed(REFUSED, 0.0),
)


@pytest.mark.parametrize(
    ("events", "delay_s"),
    [
        ((BackoffOver(),), 4.096),
        # Success, then loss.
        ((BackoffOver(), Requested(0.0), Connected(), Lost(GONE)), 1.0),
        # A reset in each state except SHUTDOWN.
        ((BackoffReset(),), 1.0),
        ((BackoffOver(), BackoffReset()), 1.0),
        ((BackoffOver(), Requested(0.0), BackoffReset(), Failed(REFUSED, 0.0), BackoffOver()), 1.0),
        ((BackoffOver(), Requested(0.0), Connected(), BackoffReset(), Lost(GONE)), 1.0),
        # Requests during an attempt change nothing.
        ((Requested(0.0), Requested(0.0), BackoffOver()), 4.096),
    ],
)
def test_events_that_reset_the_backoff(events: tuple[Event, ...], delay_s: float) -> None:
    connectivity = connectivity_after(*THREE_FAILURES, *events)
    assert connectivity.state is IDLE
    assert next_delay_s(connectivity) == pytest.approx(delay_s)


def test_no_backoff_follows_an_attempt_during_which_it_was_reset() -> None:
    connectivity = connectivity_after(*THREE_FAILURES, BackoffOver(), Requested(50.0))
    assert connectivity.step(BackoffReset()) == ()
    assert connectivity.step(Failed(REFUSED, 50.1)) == (StartBackoff(0.0),)


def test_reset_while_idle_does_not_shorten_the_next_backoff() -> None:
    connectivity = connectivity_after(BackoffReset())
    assert next_delay_s(connectivity) == 1.0


@pytest.mark.parametrize("timeout_s", [0, -1, inf, nan])
def test_invalid_minimum_timeout_is_rejected(timeout_s: float) -> None:
    with pytest.raises(ValueError, match=f"min connect timeout {timeout_s} s is not valid"):
        SubchannelOptions(min_connect_timeout_s=timeout_s)


# Further connections (A105). The attempt starts at 200 s, its delay is 1 s.
FURTHER: dict[State, tuple[Event, ...]] = {
    IDLE: WAYS[READY],
    CONNECTING: (*WAYS[READY], Needed(200.0)),
    FAILURE: (*WAYS[READY], Needed(200.0), Failed(REFUSED, 200.25)),
}
# State and further state after the event, and its effects. All other events change nothing.
FURTHER_MOVES: dict[tuple[State, type[Event]], tuple[State, State, tuple[Effect, ...]]] = {
    (IDLE, Needed): (READY, CONNECTING, (Connect(20.0),)),
    (IDLE, Lost): (IDLE, IDLE, ()),
    (IDLE, Released): (SHUTDOWN, IDLE, (StopConnection(),)),
    (CONNECTING, Connected): (READY, IDLE, ()),
    (CONNECTING, Failed): (READY, FAILURE, (StartBackoff(0.0),)),
    (CONNECTING, Lost): (CONNECTING, IDLE, ()),
    (CONNECTING, Released): (SHUTDOWN, CONNECTING, (StopConnection(),)),
    (FAILURE, BackoffOver): (READY, IDLE, ()),
    (FAILURE, BackoffReset): (READY, IDLE, (CancelBackoff(),)),
    (FAILURE, Lost): (FAILURE, IDLE, ()),
    (FAILURE, Released): (SHUTDOWN, FAILURE, (StopConnection(), CancelBackoff())),
}


@pytest.mark.parametrize(("further", "event"), list(product(FURTHER, EVENTS)))
def test_every_further_state_meets_every_event(further: State, event: Event) -> None:
    connectivity = connectivity_after(*FURTHER[further])
    assert (connectivity.state, connectivity.further) == (READY, further)
    expected = FURTHER_MOVES.get((further, type(event)), (READY, further, ()))
    if isinstance(event, Failed):
        event = Failed(REFUSED, 300.0)
    effects = connectivity.step(event)
    assert (connectivity.state, connectivity.further, effects) == expected
    assert connectivity.status == (REFUSED if connectivity.state is FAILURE else OK)
