"""Policy under test with children that are stubs, whose reports the test makes.

The name of a stub is in its config, `{"stub": {"name": "p0"}}`; `stub_config` returns that.
`proxyless.testing` checks the calls of the parent to the stubs.
"""

from collections.abc import Mapping, Sequence

from proxyless.base import EMPTY_ATTRIBUTES, OK, Endpoint, State, Status, ValidationErrors
from proxyless.lb import (
    QUEUE,
    QUEUE_PICKER,
    FailPicker,
    Helper,
    Picker,
    PickInfo,
    PickResult,
    Policy,
    PolicyFactory,
    PolicyRegistry,
    Subchannel,
    Update,
)
from proxyless.lb.hierarchy import path_of, with_path
from tests.worlds.policies import (
    CONNECTING,
    FAILURE,
    READY,
    PolicyWorld,
    address,
    endpoint,
    unavailable,
)


def stub_config(name: str, kind: str = "stub", **more: object) -> list[Mapping[str, object]]:
    """Return a LoadBalancingConfig list for a stub of this name."""
    return [{kind: {"name": name, **more}}]


def at(path: str, name: str) -> Endpoint:
    """Return the endpoint of that name for the child at this path: `at("p0/locality", "a")`."""
    return with_path(endpoint(name), tuple(path.split("/")))


class StubChildPicker(Picker):
    """Picker that queues, and counts its picks."""

    __slots__ = ("_owner",)

    def __init__(self, owner: "StubChild") -> None:
        self._owner = owner

    def pick(self, info: PickInfo) -> PickResult:
        self._owner.picks += 1
        return QUEUE


class StubChild:
    """Child policy that reports what the test calls `report` with."""

    def __init__(self, factory: "StubChildFactory", helper: Helper) -> None:
        self._factory = factory
        self._helper = helper
        self.name = ""
        self.updates: list[Update] = []
        self.calls: list[str] = []
        self.is_closed = False
        # The number of picks with its pickers.
        self.picks = 0
        self.picker: Picker = QUEUE_PICKER
        self.state = CONNECTING
        self._subchannels: list[Subchannel] = []

    # Called by the parent.

    def update(self, update: Update) -> Status:
        self.updates.append(update)
        assert isinstance(update.config, Mapping)
        self.name = str(update.config["name"])
        self._report_each(self._factory.on_update)
        if self.name in self._factory.raises:
            raise RuntimeError(f"{self.name} raises")
        return self._factory.update_results.get(self.name, OK)

    def exit_idle(self) -> None:
        self.calls.append("exit_idle")
        if self.state is State.IDLE:
            self._report_each(self._factory.on_exit_idle, CONNECTING)

    def reset_backoff(self) -> None:
        self.calls.append("reset_backoff")
        self._report_each(self._factory.on_reset)

    def close(self) -> None:
        self.is_closed = True
        for subchannel in self._subchannels:
            subchannel.release()

    def _report_each(self, scripted: Mapping[str, Sequence[State]], *default: State) -> None:
        for state in scripted.get(self.name, default):
            self.report(state)

    # Called by tests.

    def report(self, state: State, text: str = "") -> None:
        self.state = state
        error = unavailable(text or f"{self.name} fails")
        self.picker = FailPicker(error) if state is FAILURE else StubChildPicker(self)
        self._helper.update_state(state, self.picker)

    def report_again(self) -> None:
        """Report the same state and the same picker."""
        self._helper.update_state(self.state, self.picker)

    def request_reresolution(self) -> None:
        self._helper.request_reresolution()

    def create_subchannel(self, name: str) -> None:
        """Create and watch a subchannel, which is released by `close`."""
        subchannel = self._helper.create_subchannel(address(name), EMPTY_ATTRIBUTES)
        subchannel.watch(lambda state, error: None)
        self._subchannels.append(subchannel)

    @property
    def endpoints(self) -> list[tuple[str, tuple[str, ...]]]:
        """Addresses and paths of the last update."""
        endpoints = self.updates[-1].endpoints
        assert not isinstance(endpoints, Status), f"{self.name!r} got {endpoints}, wanted endpoints"
        return [(str(each.addresses[0]), path_of(each)) for each in endpoints]

    @property
    def config(self) -> Mapping[str, object]:
        config = self.updates[-1].config
        assert isinstance(config, Mapping)
        return config


class StubChildFactory:
    """Factory of stubs of one kind. Keeps all of them."""

    def __init__(self, name: str = "stub") -> None:
        self.name = name
        self.created: list[StubChild] = []
        # By the name of a child: the states that it reports inside each call, the results of its
        # updates, and whether they raise.
        self.on_update: dict[str, Sequence[State]] = {}
        self.on_exit_idle: dict[str, Sequence[State]] = {}
        self.on_reset: dict[str, Sequence[State]] = {}
        self.update_results: dict[str, Status] = {}
        self.raises: set[str] = set()

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        if "bad" in json:
            with errors.field("bad"):
                errors.add("is not wanted")
        return json

    def create(self, helper: Helper) -> Policy:
        stub = StubChild(self, helper)
        self.created.append(stub)
        return stub


class ParentPolicyWorld(PolicyWorld):
    """Policy under test, and its children that are stubs."""

    def __init__(
        self, factory: PolicyFactory, *, others: tuple[PolicyFactory, ...] = (), seed: int = 1
    ) -> None:
        self.stubs = StubChildFactory()
        super().__init__(factory, others=(self.stubs, *others), seed=seed)

    def child(self, name: str) -> StubChild:
        """Return the only open child of this name."""
        found = [each for each in self.open_children if each.name == name]
        assert len(found) == 1, f"{len(found)} children {name!r} are open, wanted 1"
        return found[0]

    def instances(self, name: str) -> list[StubChild]:
        """Return all children of this name, closed ones too."""
        return [each for each in self.stubs.created if each.name == name]

    def report(self, name: str, *states: State) -> None:
        """Make the child report these states."""
        for state in states:
            self.child(name).report(state)

    @property
    def open_children(self) -> list[StubChild]:
        return [each for each in self.stubs.created if not each.is_closed]

    def expect_children(self, *names: str) -> None:
        """These children are open, and no others."""
        assert sorted(each.name for each in self.open_children) == sorted(names)

    def expect_uses(self, name: str) -> None:
        """The newest report has the state and the picker of that child."""
        child = self.child(name)
        self.expect_state(child.state)
        assert self.picker is child.picker, f"picker is not the newest one of {name!r}"

    def expect_waits(self) -> None:
        """The policy is CONNECTING, with a picker that queues."""
        self.expect_state(CONNECTING)
        self.expect_picker_queues()

    def expect_ready(self, name: str) -> None:
        self.expect_state(READY)
        self.expect_uses(name)
