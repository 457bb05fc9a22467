"""A world around a policy with children, all of them stubs that say what the test wants.

A stub knows its name from its config, `{"stub": {"name": "p0"}}`; `stub_config` writes that.
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
from tests.spec.lb_world import CONNECTING, FAILURE, READY, World, address, endpoint, unavailable


def stub_config(name: str, kind: str = "stub", **more: object) -> list[Mapping[str, object]]:
    """A LoadBalancingConfig list for a stub of this name."""
    return [{kind: {"name": name, **more}}]


def at(path: str, name: str) -> Endpoint:
    """The endpoint of that name, for the child at this path: `at("p0/locality", "a")`."""
    return with_path(endpoint(name), tuple(path.split("/")))


class StubPicker(Picker):
    """Tells its owner that it was asked."""

    __slots__ = ("_owner",)

    def __init__(self, owner: "Stub") -> None:
        self._owner = owner

    def pick(self, info: PickInfo) -> PickResult:
        self._owner.picks += 1
        return QUEUE


class Stub:
    """A policy that says what the test tells it to say. Holds its parent to the contract."""

    def __init__(self, factory: "StubFactory", helper: Helper) -> None:
        self._factory = factory
        self._helper = helper
        self._is_speaking = False
        self.name = ""
        self.updates: list[Update] = []
        self.calls: list[str] = []
        self.is_closed = False
        # How often its pickers were asked.
        self.picks = 0
        self.picker: Picker = QUEUE_PICKER
        self.state = CONNECTING
        self._subchannels: list[Subchannel] = []

    # What the parent calls.

    def update(self, update: Update) -> Status:
        self._check("updated")
        self.updates.append(update)
        assert isinstance(update.config, Mapping)
        self.name = str(update.config["name"])
        for state in self._factory.inline.get(self.name, ()):
            self.says(state)
        if self.name in self._factory.raises:
            raise RuntimeError(f"{self.name} raises")
        return self._factory.refuses.get(self.name, OK)

    def exit_idle(self) -> None:
        self._check("told to exit idle")
        self.calls.append("exit_idle")
        if self.state is State.IDLE:
            for state in self._factory.on_exit_idle.get(self.name, (CONNECTING,)):
                self.says(state)

    def reset_backoff(self) -> None:
        self._check("told to reset its backoff")
        self.calls.append("reset_backoff")
        for state in self._factory.on_reset.get(self.name, ()):
            self.says(state)

    def close(self) -> None:
        self._check("closed")
        self.is_closed = True
        for subchannel in self._subchannels:
            subchannel.release()

    def _check(self, what: str) -> None:
        assert not self.is_closed, f"{self.name!r} is {what} after it was closed"
        assert not self._is_speaking, f"{self.name!r} is {what} while it calls its parent"

    # What the test says.

    def says(self, state: State, text: str = "") -> None:
        self.state = state
        error = unavailable(text or f"{self.name} fails")
        self.picker = FailPicker(error) if state is FAILURE else StubPicker(self)
        self._speaking(state)

    def repeats(self) -> None:
        """Report the same state and the same picker again."""
        self._speaking(self.state)

    def _speaking(self, state: State) -> None:
        self._is_speaking = True
        try:
            self._helper.update_state(state, self.picker)
        finally:
            self._is_speaking = False

    def request_reresolution(self) -> None:
        self._helper.request_reresolution()

    def connects_to(self, name: str) -> None:
        """Have a subchannel, until it is closed."""
        subchannel = self._helper.create_subchannel(address(name), EMPTY_ATTRIBUTES)
        self._subchannels.append(subchannel)

    @property
    def endpoints(self) -> list[tuple[str, tuple[str, ...]]]:
        """Of the last update: addresses and paths."""
        endpoints = self.updates[-1].endpoints
        assert not isinstance(endpoints, Status), f"{self.name!r} got {endpoints}, wanted endpoints"
        return [(str(each.addresses[0]), path_of(each)) for each in endpoints]

    @property
    def config(self) -> Mapping[str, object]:
        config = self.updates[-1].config
        assert isinstance(config, Mapping)
        return config


class StubFactory:
    """Makes stubs of one kind, and remembers all of them."""

    def __init__(self, name: str = "stub") -> None:
        self.name = name
        self.made: list[Stub] = []
        # By the name of a child: what it reports inside each update, when it is to leave IDLE, and
        # when its backoff is reset; what it answers to an update, and whether it raises there.
        self.inline: dict[str, Sequence[State]] = {}
        self.on_exit_idle: dict[str, Sequence[State]] = {}
        self.on_reset: dict[str, Sequence[State]] = {}
        self.refuses: dict[str, Status] = {}
        self.raises: set[str] = set()

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        if "bad" in json:
            with errors.field("bad"):
                errors.add("is not wanted")
        return json

    def create(self, helper: Helper) -> Policy:
        stub = Stub(self, helper)
        self.made.append(stub)
        return stub


class ChildrenWorld(World):
    """The world of the policy under test, and those of its children that are stubs."""

    def __init__(
        self, factory: PolicyFactory, *, others: tuple[PolicyFactory, ...] = (), seed: int = 1
    ) -> None:
        self.stubs = StubFactory()
        super().__init__(factory, others=(self.stubs, *others), seed=seed)

    def child(self, name: str) -> Stub:
        """The one that is alive."""
        found = [each for each in self._alive if each.name == name]
        assert len(found) == 1, f"{len(found)} children {name!r} are alive, wanted 1"
        return found[0]

    def instances(self, name: str) -> list[Stub]:
        """All that ever were."""
        return [each for each in self.stubs.made if each.name == name]

    def say(self, name: str, *states: State) -> None:
        for state in states:
            self.child(name).says(state)

    @property
    def _alive(self) -> list[Stub]:
        return [each for each in self.stubs.made if not each.is_closed]

    def expect_children(self, *names: str) -> None:
        """These are alive, and no others."""
        assert sorted(each.name for each in self._alive) == sorted(names)

    def expect_uses(self, name: str) -> None:
        """The newest report is the newest one of that child, picker and all."""
        child = self.child(name)
        self.expect_state(child.state)
        assert self.picker is child.picker, f"picker is not the newest one of {name!r}"

    def expect_waits(self) -> None:
        """CONNECTING, with a picker that queues."""
        self.expect_state(CONNECTING)
        self.expect_picker_queues()

    def expect_ready(self, name: str) -> None:
        self.expect_state(READY)
        self.expect_uses(name)
