"""How does one kind of policy replace another without failing RPCs meanwhile?

Specs: GS-01 to GS-03.

Theory of operation
    The current policy carries traffic. An update that asks for another kind makes a pending one
    beside it, and from then on only the pending one, being the newest, gets updates and has its
    re-resolution requests heard. As soon as it reports anything but CONNECTING it becomes the
    current one, and the old one is closed. Whoever is neither is not listened to.
"""

from dataclasses import replace
from typing import Final

from proxyless.base import OK, Address, Attributes, State, Status
from proxyless.lb.api import (
    Cancel,
    Context,
    Endpoints,
    Helper,
    LoadListener,
    Picker,
    PolicyFactory,
    StateListener,
    Subchannel,
    Update,
)
from proxyless.lb.config import PolicyConfig
from proxyless.lb.view import LbNode, describe_policy, place, wrap


class GracefulSwitch:
    """A policy whose config, a `PolicyConfig`, may ask for a different kind each time.

    Driven by its parent and by one or two children.
    """

    __slots__ = ("_current", "_helper", "_pending", "context")

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction.
        self._helper: Final = helper
        # A deep tree would ask all the way up, for each endpoint several times.
        self.context: Final[Context] = helper.context
        self._current: SwitchedChild | None = None
        self._pending: SwitchedChild | None = None

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, PolicyConfig), "the config says which kind of policy to use"
        return self.update_child(update, config, update.endpoints)

    def update_child(self, whole: Update, config: PolicyConfig, endpoints: Endpoints) -> Status:
        """Update with this config and these endpoints; the rest is that of the parent's update."""
        newest = self._pending or self._current
        # A factory may be made anew with each registry; its name says the kind.
        if newest is None or newest.name != config.factory.name:
            newest = self._start(config.factory)
        return newest.policy.update(
            Update(endpoints, config.config, whole.attributes, whole.resolution_note)
        )

    def exit_idle(self) -> None:
        for child in self._children:
            child.policy.exit_idle()

    def reset_backoff(self) -> None:
        for child in self._children:
            child.policy.reset_backoff()

    def close(self) -> None:
        children, self._current, self._pending = self._children, None, None
        for child in children:
            child.policy.close()

    def describe(self) -> LbNode:
        """The policy inside: of the switch something is to be seen only while it switches."""
        if self._current is None:
            return LbNode()
        current = self._current.describe()
        if self._pending is None:
            return current
        pending = self._pending.describe()
        pending = place(pending, "pending", state=State.CONNECTING, in_use=False)
        detail = f"{current.policy} goes on until {pending.policy} is connected"
        node = wrap(place(current, "current"), detail, (pending,))
        return replace(node, policy="graceful_switch")

    def describe_child(self, name: str) -> LbNode | None:
        """One child of the policy that carries traffic; the others may be many."""
        if self._current is None:
            return None
        describe = getattr(self._current.policy, "describe_child", None)
        if describe is not None:
            child: LbNode | None = describe(name)
            return child
        return next((each for each in self.describe().children if each.name == name), None)

    @property
    def _children(self) -> "list[SwitchedChild]":
        return [child for child in (self._current, self._pending) if child is not None]

    def _start(self, factory: PolicyFactory) -> "SwitchedChild":
        child, dropped = SwitchedChild(self, factory), self._pending
        if self._current is None:
            self._current = child
        else:
            self._pending = child
        if dropped is not None:
            dropped.policy.close()
        return child

    # Called by children.

    def create_subchannel(
        self, child: "SwitchedChild", address: Address, attributes: Attributes
    ) -> Subchannel:
        if child is self._current or child is self._pending:
            return self._helper.create_subchannel(address, attributes)
        return _NeverConnected(address)

    def on_report(self, child: "SwitchedChild", state: State, picker: Picker) -> None:
        if child is self._current:
            self._helper.update_state(state, picker)
        elif child is self._pending and state is not State.CONNECTING:
            replaced, self._current, self._pending = self._current, child, None
            # Report first: the old picker may still be in use until then.
            self._helper.update_state(state, picker)
            assert replaced is not None, "a child is pending only beside a current one"
            replaced.policy.close()

    def on_reresolution_request(self, child: "SwitchedChild") -> None:
        if child is (self._pending or self._current):
            self._helper.request_reresolution()


class SwitchedChild:
    """One policy, and the helper that tells the switch which one is speaking."""

    __slots__ = ("_owner", "context", "name", "policy")

    def __init__(self, owner: GracefulSwitch, factory: PolicyFactory) -> None:
        self._owner = owner
        self.context: Final[Context] = owner.context
        self.name = factory.name
        self.policy = factory.create(self)

    def describe(self) -> LbNode:
        return describe_policy(self.policy, self.name)

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        return self._owner.create_subchannel(self, address, attributes)

    def update_state(self, state: State, picker: Picker) -> None:
        self._owner.on_report(self, state, picker)

    def request_reresolution(self) -> None:
        self._owner.on_reresolution_request(self)


class _NeverConnected:
    """Given to a policy that was replaced and asks for a subchannel all the same."""

    __slots__ = ("address",)

    def __init__(self, address: Address) -> None:
        self.address = address

    def watch(self, listener: StateListener) -> Cancel:
        listener(State.IDLE, OK)
        return _nothing_to_cancel

    def watch_health(self, listener: StateListener) -> Cancel:
        return self.watch(listener)

    def watch_load_reports(self, interval_s: float, listener: LoadListener) -> Cancel:
        return _nothing_to_cancel

    def request_connection(self) -> None:
        return

    def reset_backoff(self) -> None:
        return

    def release(self) -> None:
        return


def _nothing_to_cancel() -> None:
    return
