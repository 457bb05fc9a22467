"""The base of policies that have another one do the work."""

from dataclasses import replace

from proxyless.base import OK, Endpoint, State, Status, ValidationErrors
from proxyless.lb import DelegatingPolicy, PolicyConfig, Update, parse_policy_list
from proxyless.testing import FakeHelper, address


class FirstOnly(DelegatingPolicy):
    """Shows the child of its config the first endpoint alone."""

    def delegate(self, update: Update) -> Update:
        assert not isinstance(update.endpoints, Status)
        return replace(update, endpoints=update.endpoints[:1])

    def _note(self) -> str:
        return "the first alone"


def child(helper: FakeHelper, name: str) -> PolicyConfig | None:
    return parse_policy_list([{name: {}}], ValidationErrors(), helper.context.registry)


def endpoints(names: str) -> tuple[Endpoint, ...]:
    return tuple(Endpoint((address(name),)) for name in names)


def test_the_child_is_told_what_the_policy_makes_of_it_and_does_the_rest() -> None:
    helper = FakeHelper()
    policy = FirstOnly(helper)
    assert policy.update(Update(endpoints("ab"), child(helper, "round_robin"))) == OK
    assert [each.address for each in helper.subchannels] == [address("a")]
    helper.connection("a").become(State.READY)
    assert helper.pick_address() == address("a")


def test_another_kind_of_child_replaces_the_first_when_it_is_connected() -> None:
    helper = FakeHelper()
    policy = FirstOnly(helper)
    policy.update(Update(endpoints("a"), child(helper, "round_robin")))
    helper.connection("a").become(State.READY)
    policy.update(Update(endpoints("b"), child(helper, "pick_first")))
    assert helper.pick_address() == address("a")
    helper.connection("b").become(State.READY)
    assert helper.pick_address() == address("b")


def test_everything_else_reaches_the_child() -> None:
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
