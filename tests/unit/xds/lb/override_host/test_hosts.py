"""Owners of subchannels to hosts of sessions. Scenarios are in tests/spec."""

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, Endpoint, State, Status
from proxyless.lb.policies.round_robin import RoundRobinFactory
from proxyless.xds.config.attributes import HEALTH_STATUS
from proxyless.xds.lb.override_host.hosts import (
    Host,
    Hosts,
    HostSubchannel,
    next_sweep_delay_s,
    sweep,
)
from proxyless.xds.resources import HealthStatus
from tests.worlds.policies import CONNECTING, FAILURE, IDLE, READY, PolicyWorld, address


class Owner:
    """A policy that keeps released subchannels if `is_keeping`, and records notifications."""

    def __init__(self, world: PolicyWorld) -> None:
        self.create_inner_subchannel = world.helper.create_subchannel
        self.is_keeping = False
        # Whether to report soon, instead of now.
        self.notifications: list[bool] = []

    def should_keep(self, host: Host) -> bool:
        return self.is_keeping

    def on_host_change(self) -> None:
        pass

    def report_changes(self) -> None:
        self.notifications.append(False)

    def report_changes_soon(self) -> None:
        self.notifications.append(True)


class HostsWorld:
    """Hosts, their owner, and the subchannels below."""

    def __init__(self) -> None:
        self.lb_world = PolicyWorld(RoundRobinFactory())
        self.owner = Owner(self.lb_world)
        self.hosts = Hosts(self.owner)

    def child_creates(self, name: str) -> HostSubchannel:
        return self.hosts.create_for_child(address(name), EMPTY_ATTRIBUTES)

    def host(self, name: str) -> Host:
        return self.hosts.listed[str(address(name))]


@pytest.fixture
def world() -> HostsWorld:
    world = HostsWorld()
    world.hosts.replace([Endpoint((address("a"),)), Endpoint((address("b"),))])
    return world


def test_child_is_not_notified_after_it_released_the_subchannel(world: HostsWorld) -> None:
    world.owner.is_keeping = True
    subchannel = world.child_creates("a")
    reported: list[State] = []
    subchannel.watch(lambda state, _: reported.append(state))
    subchannel.watch_health(lambda state, _: reported.append(state))
    subchannel.watch_load_reports(1, lambda _: None)
    cancel = subchannel.watch(lambda state, _: reported.append(state))
    cancel()
    cancel()
    subchannel.release()
    inner = world.lb_world.subchannels[0]
    reported.clear()
    inner.connecting()
    inner.set_health(FAILURE, "ejected")
    assert reported == []
    assert inner.load_watches == []
    assert world.host("a").owned is subchannel
    assert world.host("a").state is CONNECTING


def test_childs_listeners_share_one_watch_of_the_inner_subchannel(world: HostsWorld) -> None:
    subchannel = world.child_creates("a")
    inner = world.lb_world.subchannels[0]
    first, second = list[State](), list[State]()
    subchannel.watch(lambda state, _: first.append(state))
    inner.connecting()
    cancel = subchannel.watch(lambda state, _: second.append(state))
    inner.ready()
    cancel()
    inner.idle()
    assert first == [IDLE, CONNECTING, READY, IDLE]
    assert second == [CONNECTING, READY]


def test_listener_is_not_called_when_another_one_releases_the_subchannel(world: HostsWorld) -> None:
    subchannel = world.child_creates("a")
    reported: list[State] = []

    def release(state: State, _: Status) -> None:
        if state is CONNECTING:
            subchannel.release()

    subchannel.watch(release)
    subchannel.watch(lambda state, _: reported.append(state))
    world.lb_world.subchannels[0].connecting()
    assert reported == [IDLE]


@pytest.mark.parametrize("is_keeping", [True, False])
def test_second_release_is_a_no_op(world: HostsWorld, is_keeping: bool) -> None:
    world.owner.is_keeping = is_keeping
    subchannel = world.child_creates("a")
    subchannel.release()
    subchannel.release()
    assert world.host("a").owned is (subchannel if is_keeping else None)
    assert len(world.lb_world.subchannels) == is_keeping


def test_newest_subchannel_of_the_child_is_used_and_the_older_stays(world: HostsWorld) -> None:
    world.owner.is_keeping = True
    older, newer = world.child_creates("a"), world.child_creates("a")
    assert world.host("a").subchannel is newer
    newer.release()
    assert world.host("a").subchannel is older
    # The child still has one, so none is kept.
    assert world.host("a").owned is None
    assert len(world.lb_world.subchannels) == 1
    older.release()
    assert world.host("a").owned is older


def test_first_endpoint_is_used_when_an_address_is_listed_twice(world: HostsWorld) -> None:
    healthy = EMPTY_ATTRIBUTES.with_(HEALTH_STATUS, HealthStatus.HEALTHY)
    draining = EMPTY_ATTRIBUTES.with_(HEALTH_STATUS, HealthStatus.DRAINING)
    world.hosts.replace(
        [Endpoint((address("a"), address("c")), healthy), Endpoint((address("a"),), draining)]
    )
    assert world.host("a").health is HealthStatus.HEALTHY
    assert world.host("a").addresses == (str(address("a")), str(address("c")))
    assert set(world.hosts.listed) == {str(address("a")), str(address("c"))}


def test_host_is_unused_when_it_is_listed_again(world: HostsWorld) -> None:
    # The child holds a subchannel all the time.
    world.child_creates("a")
    host = world.host("a")
    host.last_used_s = 100.0
    world.hosts.replace([])
    world.hosts.replace([Endpoint((address("a"),))])
    assert world.host("a") is host
    assert host.is_expired(0.0, 1e9)


def test_host_is_removed_when_it_is_neither_listed_nor_held(world: HostsWorld) -> None:
    subchannel = world.child_creates("h")
    host = subchannel.host
    subchannel.release()
    assert world.child_creates("h").host is not host
    world.hosts.clear()
    assert world.hosts.listed == {}


def test_policy_is_notified_when_the_child_changes_an_awaited_host(world: HostsWorld) -> None:
    host = world.host("a")
    host.is_awaited = True
    subchannel = world.child_creates("a")
    assert world.owner.notifications == [True]
    subchannel.request_connection()
    world.lb_world.subchannels[0].connecting()
    assert world.owner.notifications == [True], "no RPC waits any more"
    host.is_awaited = True
    subchannel.release()
    assert world.owner.notifications == [True, True]


def test_sweep_is_due_for_expired_hosts_with_a_subchannel_only(world: HostsWorld) -> None:
    host = world.host("a")
    assert next_sweep_delay_s(world.hosts, 1000.0, 60.0) == 60.0
    host.last_used_s = 970.0
    assert next_sweep_delay_s(world.hosts, 1000.0, 60.0) == 30.0
    host.last_used_s = 900.0
    assert next_sweep_delay_s(world.hosts, 1000.0, 60.0) == 60.0
    world.hosts.own(host)
    assert next_sweep_delay_s(world.hosts, 1000.0, 60.0) == 5.0
    assert sweep(world.hosts, 1000.0, 60.0) == [host]
    assert world.lb_world.subchannels == []
    assert sweep(world.hosts, 1000.0, 60.0) == []
