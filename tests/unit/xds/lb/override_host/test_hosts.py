"""Which host is chosen, and who holds which subchannel. Whole stories are in tests/spec."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, Endpoint, State
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.xds.config.attributes import HEALTH_STATUS
from proxyless.xds.lb.override_host.hosts import (
    Host,
    Hosts,
    HostSubchannel,
    Verdict,
    choose_host,
    next_sweep_delay_s,
    sweep,
)
from proxyless.xds.resources import HealthStatus
from tests.spec.lb_world import CONNECTING, FAILURE, IDLE, READY, World, address

USABLE: Final = frozenset({HealthStatus.UNKNOWN, HealthStatus.HEALTHY})


@dataclass(frozen=True, eq=False)
class View:
    """A host as the choice sees it."""

    state: State | None
    health: HealthStatus = HealthStatus.UNKNOWN


VIEWS: Final = (
    View(READY),
    View(IDLE),
    View(CONNECTING),
    View(FAILURE),
    View(None),
    View(READY, HealthStatus.DRAINING),
    None,
)


def cookies() -> Iterator[tuple[View | None, ...]]:
    for length in range(5):
        yield from product(VIEWS, repeat=length)


def rank(view: View) -> int | None:
    """How much a host is worth to a session, 0 being the most; None if nothing."""
    if view.health not in USABLE:
        return None
    return {READY: 0, IDLE: 1, CONNECTING: 2, None: 3}.get(view.state)


def test_the_best_host_decides_and_among_equals_the_first() -> None:
    verdicts = [Verdict.USE, Verdict.CONNECT, Verdict.WAIT, Verdict.CREATE]
    for cookie in cookies():
        hosts = {str(index): view for index, view in enumerate(cookie) if view is not None}
        ranked = [(rank(view), view) for view in hosts.values()]
        known = [(worth, view) for worth, view in ranked if worth is not None]
        verdict, host = choose_host(map(str, range(len(cookie))), hosts, USABLE)
        if not known:
            assert (verdict, host) == (Verdict.DELEGATE, None)
            continue
        best = min(worth for worth, _ in known)
        assert verdict is verdicts[best]
        first = next(view for worth, view in known if worth == best)
        assert host is (None if verdict is Verdict.WAIT else first)


class Owner:
    """A policy that keeps what it is told to keep."""

    def __init__(self, world: World) -> None:
        self.create_inner = world.create_subchannel
        self.is_keeping = False
        self.news: list[bool] = []

    def keeps(self, host: Host) -> bool:
        return self.is_keeping

    def on_news(self, *, is_during_call: bool) -> None:
        self.news.append(is_during_call)


class Roster:
    """Hosts in hand."""

    def __init__(self) -> None:
        self.world = World(RoundRobinFactory())
        self.owner = Owner(self.world)
        self.hosts = Hosts(self.owner)

    def child_creates(self, name: str) -> HostSubchannel:
        return self.hosts.create_for_child(address(name), EMPTY_ATTRIBUTES)

    def host(self, name: str) -> Host:
        return self.hosts.listed[str(address(name))]


@pytest.fixture
def roster() -> Roster:
    made = Roster()
    made.hosts.replace([Endpoint((address("a"),)), Endpoint((address("b"),))])
    return made


def test_a_released_subchannel_tells_the_child_nothing_more(roster: Roster) -> None:
    roster.owner.is_keeping = True
    subchannel = roster.child_creates("a")
    told: list[State] = []
    subchannel.watch(lambda state, _: told.append(state))
    subchannel.watch_health(lambda state, _: told.append(state))
    subchannel.watch_load_reports(1, lambda _: None)
    cancel = subchannel.watch(lambda state, _: told.append(state))
    cancel()
    cancel()
    subchannel.release()
    inner = roster.world.live[0]
    told.clear()
    inner.connecting()
    inner.health(FAILURE, "ejected")
    assert told == []
    assert inner.load_watches == []
    assert roster.host("a").owned is subchannel
    assert roster.host("a").state is CONNECTING


@pytest.mark.parametrize("is_keeping", [True, False])
def test_a_second_release_changes_nothing(roster: Roster, is_keeping: bool) -> None:
    roster.owner.is_keeping = is_keeping
    subchannel = roster.child_creates("a")
    subchannel.release()
    subchannel.release()
    assert roster.host("a").owned is (subchannel if is_keeping else None)
    assert len(roster.world.live) == is_keeping


def test_of_two_that_the_child_holds_the_newer_counts_and_the_older_stays(roster: Roster) -> None:
    roster.owner.is_keeping = True
    older, newer = roster.child_creates("a"), roster.child_creates("a")
    assert roster.host("a").subchannel is newer
    newer.release()
    assert roster.host("a").subchannel is older
    # There is one to use already, so none is kept.
    assert roster.host("a").owned is None
    assert len(roster.world.live) == 1
    older.release()
    assert roster.host("a").owned is older


def test_of_an_address_that_is_listed_twice_the_first_counts(roster: Roster) -> None:
    healthy = EMPTY_ATTRIBUTES.with_(HEALTH_STATUS, HealthStatus.HEALTHY)
    draining = EMPTY_ATTRIBUTES.with_(HEALTH_STATUS, HealthStatus.DRAINING)
    roster.hosts.replace(
        [Endpoint((address("a"), address("c")), healthy), Endpoint((address("a"),), draining)]
    )
    assert roster.host("a").health is HealthStatus.HEALTHY
    assert roster.host("a").addresses == (str(address("a")), str(address("c")))
    assert set(roster.hosts.listed) == {str(address("a")), str(address("c"))}


def test_a_host_that_returns_has_never_been_used(roster: Roster) -> None:
    # The child holds on to it all the time.
    roster.child_creates("a")
    host = roster.host("a")
    host.last_used_s = 100.0
    roster.hosts.replace([])
    roster.hosts.replace([Endpoint((address("a"),))])
    assert roster.host("a") is host
    assert host.is_expired(0.0, 1e9)


def test_hosts_that_nobody_lists_or_holds_are_forgotten(roster: Roster) -> None:
    subchannel = roster.child_creates("h")
    host = subchannel.host
    subchannel.release()
    assert roster.child_creates("h").host is not host
    roster.hosts.clear()
    assert roster.hosts.listed == {}


def test_who_waits_hears_of_what_the_child_does(roster: Roster) -> None:
    host = roster.host("a")
    host.is_awaited = True
    subchannel = roster.child_creates("a")
    assert roster.owner.news == [True]
    subchannel.request_connection()
    roster.world.live[0].connecting()
    assert roster.owner.news == [True], "nobody waits any more"
    host.is_awaited = True
    subchannel.release()
    assert roster.owner.news == [True, True]


def test_expired_hosts_that_are_held_are_due_and_others_are_not(roster: Roster) -> None:
    host = roster.host("a")
    assert next_sweep_delay_s(roster.hosts, 1000.0, 60.0) == 60.0
    host.last_used_s = 970.0
    assert next_sweep_delay_s(roster.hosts, 1000.0, 60.0) == 30.0
    host.last_used_s = 900.0
    assert next_sweep_delay_s(roster.hosts, 1000.0, 60.0) == 60.0
    roster.hosts.own(host)
    assert next_sweep_delay_s(roster.hosts, 1000.0, 60.0) == 5.0
    assert sweep(roster.hosts, 1000.0, 60.0) == [host]
    assert roster.world.live == []
    assert sweep(roster.hosts, 1000.0, 60.0) == []
