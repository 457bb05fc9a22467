"""Unit tests of proxyless.lb.delegating."""

from dataclasses import replace

from proxyless.base import OK, Endpoint, State, Status, ValidationErrors
from proxyless.lb import DelegatingPolicy, PolicyConfig, Update, parse_policy_list
from proxyless.testing import FakeHelper, address


class FirstOnly(DelegatingPolicy):
    """Policy whose child gets the first endpoint only."""

    def delegate(self, update: Update) -> Update:
        assert not isinstance(update.endpoints, Status)
        return replace(update, endpoints=update.endpoints[:1])

    def _note(self) -> str:
        return "the first alone"


def child(helper: FakeHelper, name: str) -> PolicyConfig | None:
    return parse_policy_list([{name: {}}], ValidationErrors(), helper.context.registry)


def endpoints(names: str) -> tuple[Endpoint, ...]:
    return tuple(Endpoint((address(name),)) for name in names)


def test_child_gets_the_delegated_update() -> None:
    helper = FakeHelper()
    policy = FirstOnly(helper)
    assert policy.update(Update(endpoints("ab"), child(helper, "round_robin"))) == OK
    assert [each.address for each in helper.subchannels] == [address("a")]
    helper.connection("a").become(State.READY)
    assert helper.pick_address() == address("a")


def test_child_of_another_kind_replaces_the_first_when_it_is_ready() -> None:
    helper = FakeHelper()
    policy = FirstOnly(helper)
    policy.update(Update(endpoints("a"), child(helper, "round_robin")))
    helper.connection("a").become(State.READY)
    policy.update(Update(endpoints("b"), child(helper, "pick_first")))
    assert helper.pick_address() == address("a")
    helper.connection("b").become(State.READY)
    assert helper.pick_address() == address("b")


def test_other_calls_are_forwarded_to_the_child() -> None:
    helper = FakeHelper()
    policy = FirstOnly(helper)
    policy.update(Update(endpoints("a"), child(helper, "pick_first")))
    connection = helper.connection("a")
    connection.become(State.READY)
    connection.become(State.IDLE)
    policy.exit_idle()
    assert helper.state is State.CONNECTING
    connection.become(State.TRANSIENT_FAILURE)
    policy.reset_backoff()
    assert [each.backoff_resets for each in helper.subchannels] == [1]
    assert policy.describe().detail.startswith("the first alone")
    policy.close()
    assert not helper.subchannels
