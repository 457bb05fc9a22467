"""Graceful switch: replacement of one policy by another without failing RPCs."""

from collections.abc import Mapping

import pytest

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    OK,
    Attributes,
    Endpoint,
    State,
    Status,
    ValidationErrors,
)
from proxyless.lb import (
    QUEUE_PICKER,
    Complete,
    FailPicker,
    GracefulSwitchPolicy,
    Helper,
    Policy,
    PolicyConfig,
    PolicyRegistry,
    SubchannelPicker,
    Update,
)
from proxyless.testing import ANY_RPC
from tests.worlds.policies import (
    CONNECTING,
    FAILURE,
    IDLE,
    READY,
    PolicyWorld,
    address,
    endpoint,
    unavailable,
)


class StubPolicy:
    """A policy whose reports the test makes."""

    def __init__(self, helper: Helper, refuses: Status) -> None:
        self._helper = helper
        self._refuses = refuses
        self.updates: list[Update] = []
        self.is_closed = False
        self.calls: list[str] = []
        self.context = helper.context

    def update(self, update: Update) -> Status:
        self.updates.append(update)
        return self._refuses

    def exit_idle(self) -> None:
        self.calls.append("exit_idle")

    def reset_backoff(self) -> None:
        self.calls.append("reset_backoff")

    def close(self) -> None:
        assert not self.is_closed, "closed twice"
        self.is_closed = True

    def report(self, state: State) -> None:
        picker = FailPicker(unavailable("stub fails")) if state is FAILURE else QUEUE_PICKER
        self._helper.update_state(state, picker)

    def connect(self, name: str) -> None:
        subchannel = self._helper.create_subchannel(address(name), EMPTY_ATTRIBUTES)
        self._helper.update_state(READY, SubchannelPicker(Complete(subchannel)))

    def create_subchannel(self, name: str) -> None:
        subchannel = self._helper.create_subchannel(address(name), EMPTY_ATTRIBUTES)
        states: list[State] = []
        for watch in (subchannel.watch, subchannel.watch_health):
            cancel = watch(lambda state, error: states.append(state))
            cancel()
        assert states
        subchannel.watch_load_reports(10, lambda report: None)()
        assert subchannel.address == address(name)
        subchannel.request_connection()
        subchannel.reset_backoff()
        subchannel.release()

    def request_reresolution(self) -> None:
        self._helper.request_reresolution()


class StubFactory:
    """Creates stubs of one kind and records them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.made: list[StubPolicy] = []
        self.refuses = OK

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        return json

    def create(self, helper: Helper) -> Policy:
        self.made.append(StubPolicy(helper, self.refuses))
        return self.made[-1]


class SwitchFactory:
    """Factory of the graceful switch policy."""

    name = "switch"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        raise AssertionError("the test makes the configs itself")

    def create(self, helper: Helper) -> Policy:
        return GracefulSwitchPolicy(helper)


class SwitchWorld(PolicyWorld):
    """A world with a switch between stubs of the kinds a, b and c."""

    def __init__(self) -> None:
        super().__init__(SwitchFactory())
        self.kinds = {name: StubFactory(name) for name in "abc"}

    def use(
        self,
        kind: str,
        config: object = None,
        endpoints: tuple[Endpoint, ...] | Status = (),
        attributes: Attributes = EMPTY_ATTRIBUTES,
    ) -> Status:
        policy = PolicyConfig(self.kinds[kind], config)
        return self.policy.update(Update(endpoints, policy, attributes, "note"))

    def stub(self, kind: str) -> StubPolicy:
        """The newest policy of this kind."""
        return self.kinds[kind].made[-1]


@pytest.fixture
def world() -> SwitchWorld:
    return SwitchWorld()


def switching(world: SwitchWorld) -> tuple[StubPolicy, StubPolicy]:
    """The current policy and the pending one."""
    world.use("a")
    world.stub("a").connect("x")
    world.use("b")
    world.expect_never()
    return world.stub("a"), world.stub("b")


@pytest.mark.spec("GS-01")
def test_first_policy_is_used_at_once(world: SwitchWorld) -> None:
    world.use("a")
    world.stub("a").report(CONNECTING)
    world.expect_reports(CONNECTING)


@pytest.mark.spec("GS-01")
def test_new_policy_is_pending_while_it_is_connecting(world: SwitchWorld) -> None:
    old, new = switching(world)
    new.report(CONNECTING)
    world.expect_reports()
    assert isinstance(world.picker.pick(ANY_RPC), Complete)
    assert not old.is_closed
    old.report(CONNECTING)  # The old policy is still current.
    world.expect_reports(CONNECTING)


@pytest.mark.spec("GS-01")
@pytest.mark.parametrize("state", [READY, IDLE, FAILURE])
def test_new_policy_replaces_the_old_one_when_it_is_not_connecting(
    world: SwitchWorld, state: State
) -> None:
    old, new = switching(world)
    new.report(CONNECTING)
    new.report(state)
    world.expect_reports(state)
    assert old.is_closed
    assert not new.is_closed
    new.report(CONNECTING)
    world.expect_reports(CONNECTING)


@pytest.mark.spec("GS-01")
def test_policy_is_updated_when_its_kind_stays_the_same(world: SwitchWorld) -> None:
    world.use("a", "first")
    world.use("a", "second")
    assert [update.config for update in world.stub("a").updates] == ["first", "second"]
    assert len(world.kinds["a"].made) == 1


def test_policy_gets_its_own_config_and_the_rest_of_the_update_unchanged(
    world: SwitchWorld,
) -> None:
    endpoints = (endpoint("x"),)
    world.kinds["a"].refuses = unavailable("do not like it")
    assert world.use("a", "config", endpoints) == unavailable("do not like it")
    assert world.stub("a").updates == [Update(endpoints, "config", EMPTY_ATTRIBUTES, "note")]
    assert world.stub("a").context is world.context


@pytest.mark.spec("GS-02")
def test_updates_and_errors_go_only_to_the_newest(world: SwitchWorld) -> None:
    old, new = switching(world)
    error = unavailable("no such host")
    world.use("b", "more")
    world.use("b", "error", error)
    assert len(old.updates) == 1
    assert [update.config for update in new.updates] == [None, "more", "error"]
    assert new.updates[-1].endpoints == error


@pytest.mark.spec("GS-02")
def test_reresolution_is_requested_only_by_the_newest(world: SwitchWorld) -> None:
    old, new = switching(world)
    old.request_reresolution()
    assert world.reresolutions == 0
    new.request_reresolution()
    assert world.reresolutions == 1
    new.report(READY)
    new.request_reresolution()
    assert world.reresolutions == 2
    old.request_reresolution()
    assert world.reresolutions == 2


@pytest.mark.spec("GS-02")
def test_reports_and_subchannels_of_a_replaced_policy_are_ignored(world: SwitchWorld) -> None:
    old, new = switching(world)
    new.report(READY)
    world.expect_reports(READY)
    created = world.helper.created
    for state in (CONNECTING, READY, IDLE, FAILURE):
        old.report(state)
    old.create_subchannel("y")
    world.expect_reports()
    assert world.helper.created == created


@pytest.mark.spec("GS-02")
def test_both_may_create_subchannels_while_one_is_pending(world: SwitchWorld) -> None:
    world.use("a")
    world.use("b")
    world.stub("a").connect("x")
    world.stub("b").connect("y")
    assert [each.address for each in world.subchannels] == [address("x"), address("y")]


@pytest.mark.spec("GS-03")
def test_pending_policy_is_closed_at_once_when_the_kind_changes_again(world: SwitchWorld) -> None:
    old, dropped = switching(world)
    world.use("c")
    assert dropped.is_closed
    assert not old.is_closed
    dropped.report(READY)
    world.expect_reports()
    world.stub("c").report(READY)
    world.expect_reports(READY)
    assert old.is_closed


@pytest.mark.spec("GS-03")
def test_new_policy_is_created_when_the_kind_returns_to_that_of_the_current_one(
    world: SwitchWorld,
) -> None:
    old, dropped = switching(world)
    world.use("a")
    assert dropped.is_closed
    assert len(world.kinds["a"].made) == 2
    world.stub("a").report(READY)
    assert old.is_closed


def test_exit_idle_and_reset_backoff_reach_both(world: SwitchWorld) -> None:
    old, new = switching(world)
    world.policy.exit_idle()
    world.policy.reset_backoff()
    assert old.calls == new.calls == ["exit_idle", "reset_backoff"]


def test_close_closes_both_policies_and_their_reports_are_ignored(world: SwitchWorld) -> None:
    old, new = switching(world)
    world.policy.close()
    assert old.is_closed
    assert new.is_closed
    old.report(READY)
    new.report(READY)
    new.request_reresolution()
    world.expect_reports()
    assert world.reresolutions == 0


def test_report_inside_the_first_update_is_processed(world: SwitchWorld) -> None:
    class Eager(StubPolicy):
        def update(self, update: Update) -> Status:
            self.report(READY)
            return OK

    class EagerFactory(StubFactory):
        def create(self, helper: Helper) -> Policy:
            self.made.append(Eager(helper, OK))
            return self.made[-1]

    world.use("a")
    world.kinds["b"] = EagerFactory("b")
    world.use("b")
    world.expect_reports(READY)
    assert world.stub("a").is_closed
