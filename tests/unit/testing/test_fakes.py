"""Unit tests of proxyless.testing.fakes."""

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, OK, Endpoint, IpAddress, State, Status, StatusCode
from proxyless.lb import Complete, FailPicker, LoadReport, SubchannelPicker, Update
from proxyless.lb.description import describe_policy
from proxyless.lb.policies.round_robin import RoundRobinConfig, RoundRobinFactory
from proxyless.testing import ConformanceError, FakeHelper, FakeSubchannel, Rule, address

IDLE, CONNECTING, READY = State.IDLE, State.CONNECTING, State.READY
FAILURE = State.TRANSIENT_FAILURE


@pytest.fixture
def helper() -> FakeHelper:
    return FakeHelper()


def watch(helper: FakeHelper, name: str, received: list[State]) -> FakeSubchannel:
    subchannel = helper.create_subchannel(address(name), EMPTY_ATTRIBUTES)
    subchannel.watch(lambda state, _: received.append(state))
    return subchannel


def test_fake_helper_shows_reports_and_picks_of_a_policy(helper: FakeHelper) -> None:
    policy = RoundRobinFactory().create(helper)
    endpoints = tuple(Endpoint((address(name),)) for name in "ab")
    assert policy.update(Update(endpoints, RoundRobinConfig())) == OK
    assert helper.state is CONNECTING
    assert helper.pick_address() is None
    helper.connection("b").become(CONNECTING)
    helper.connection("b").become(READY)
    assert helper.state is READY
    assert helper.pick_address() == address("b")
    policy.close()
    assert helper.subchannels == []
    assert helper.clock.timers_pending == 0


@pytest.mark.parametrize(
    ("name", "host"),
    [("a", "10.0.0.1"), ("z6", "fd00::1a"), ("0", "10.1.0.0"), ("300", "10.1.1.44")],
)
def test_address_is_found_by_its_short_name(name: str, host: str) -> None:
    assert address(name) == IpAddress(host, 80)


@pytest.mark.parametrize("name", ["A", "ab", "a7", "é"])
def test_address_rejects_invalid_names(name: str) -> None:
    with pytest.raises(ValueError, match="is not valid: wanted 'a' to 'z'"):
        address(name)


def test_subchannels_of_one_address_share_its_connection(helper: FakeHelper) -> None:
    first: list[State] = []
    second: list[State] = []
    watch(helper, "a", first).request_connection()
    helper.connection("a").become(CONNECTING)
    watch(helper, "a", second)
    helper.connection("a").become(READY)
    assert first == [IDLE, CONNECTING, READY]
    assert second == [CONNECTING, READY]


def test_connection_is_idle_after_its_last_subchannel_is_released(helper: FakeHelper) -> None:
    subchannel = watch(helper, "a", [])
    helper.connection("a").become(READY)
    subchannel.release()
    assert helper.connection("a").state is IDLE
    helper.connection("a").is_shared = True
    helper.connection("a").become(READY)
    watch(helper, "a", []).release()
    assert helper.connection("a").state is READY


def test_cancelled_watch_is_not_notified(helper: FakeHelper) -> None:
    received: list[State] = []
    subchannel = helper.create_subchannel(address("a"), EMPTY_ATTRIBUTES)
    cancel = subchannel.watch(lambda state, _: received.append(state))
    cancel()
    cancel()
    helper.connection("a").become(CONNECTING)
    assert received == [IDLE]


def test_health_watch_is_notified(helper: FakeHelper) -> None:
    received: list[tuple[State, str]] = []
    subchannel = helper.create_subchannel(address("a"), EMPTY_ATTRIBUTES)
    subchannel.watch_health(lambda state, error: received.append((state, error.details)))
    helper.connection("a").set_health(FAILURE)
    assert received == [(READY, ""), (FAILURE, "10.0.0.1:80: not serving")]


def test_load_watch_is_notified(helper: FakeHelper) -> None:
    received: list[LoadReport] = []
    first, second = (helper.create_subchannel(address("a"), EMPTY_ATTRIBUTES) for _ in range(2))
    cancel = first.watch_load_reports(10, received.append)
    second.watch_load_reports(5, received.append)
    assert [interval_s for interval_s, _ in second.load_watches] == [5]
    helper.connection("a").report_load(LoadReport(qps=1))
    cancel()
    cancel()
    helper.connection("a").report_load(LoadReport(qps=2))
    second.release()
    helper.connection("a").report_load(LoadReport(qps=3))
    assert [report.qps for report in received] == [1, 1, 2]
    with pytest.raises(ConformanceError, match="watches the load of"):
        second.watch_load_reports(5, received.append)


@pytest.mark.parametrize(
    ("state", "is_requested", "possible"),
    [
        (IDLE, False, ()),
        (IDLE, True, (CONNECTING,)),
        (CONNECTING, False, (READY, FAILURE, IDLE)),
        (READY, False, (IDLE, CONNECTING, FAILURE)),
        (FAILURE, False, (IDLE,)),
    ],
)
def test_connection_allows_only_real_state_changes(
    helper: FakeHelper, state: State, is_requested: bool, possible: tuple[State, ...]
) -> None:
    connection = helper.connection("a")
    connection.state, connection.is_requested = state, is_requested
    assert {each for each in State if connection.can_become(each)} == set(possible)


def test_pick_address_returns_the_status_of_a_failed_pick(helper: FakeHelper) -> None:
    error = Status(StatusCode.UNAVAILABLE, "no backend")
    helper.update_state(FAILURE, FailPicker(error))
    assert helper.pick_address() == error


def test_waiting_rpcs_are_picked_with_each_report(helper: FakeHelper) -> None:
    subchannel = watch(helper, "a", [])
    helper.waiting_rpcs = 1
    with pytest.raises(ConformanceError, match="which is IDLE") as caught:
        helper.update_state(READY, SubchannelPicker(Complete(subchannel)))
    assert caught.value.rule is Rule.READY_PICKS


def test_requests_of_idle_connections_are_recorded_in_order(helper: FakeHelper) -> None:
    first, second = (watch(helper, name, []) for name in "ab")
    helper.connection("b").become(State.CONNECTING)
    for subchannel in (second, first, first):
        subchannel.request_connection()
    assert helper.requests == [address("a"), address("a")]


def test_children_of_the_registry_are_described(helper: FakeHelper) -> None:
    factory = helper.context.registry.find("round_robin")
    assert factory is not None
    child = factory.create(helper)
    child.update(Update((Endpoint((address("a"),)),), RoundRobinConfig()))
    assert describe_policy(child, "round_robin").state == "CONNECTING"


def test_second_release_raises_conformance_error(helper: FakeHelper) -> None:
    subchannel = watch(helper, "a", [])
    subchannel.release()
    with pytest.raises(
        ConformanceError, match=r"policy releases 10\.0\.0\.1:80, which it released"
    ):
        subchannel.release()
    assert helper.broken is not None
