"""Graceful switch: replaces a policy by one of another kind without failing RPCs.

Specs: GS-01 to GS-03.

Theory of operation
    RPCs use the current policy. An update that names another kind creates a pending policy. From
    then on only the pending policy gets updates, and only its re-resolution requests are forwarded.
    When it first reports a state other than CONNECTING, it becomes the current policy and the old
    one is closed. Calls from any other policy are ignored.
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
    no_op,
)
from proxyless.lb.config import PolicyConfig
from proxyless.lb.description import LbNode, as_child, describe_policy, wrap


class GracefulSwitchPolicy:
    """Policy whose config, a `PolicyConfig`, names the kind of its child."""

    __slots__ = ("_pending", "context", "current", "helper")

    def __init__(self, helper: Helper) -> None:
        # Fixed at construction. `helper` and `current` are read by children.
        self.helper: Final = helper
        # Copied: in a deep tree, each access through the helper would climb to the root.
        self.context: Final[Context] = helper.context
        self.current: SwitchedChild | None = None
        self._pending: SwitchedChild | None = None

    def update(self, update: Update) -> Status:
        config = update.config
        assert isinstance(config, PolicyConfig), "the config names the kind of policy"
        return self.update_child(update, config, update.endpoints)

    def update_child(self, whole: Update, config: PolicyConfig, endpoints: Endpoints) -> Status:
        """Update the child with this config and these endpoints, and the rest of `whole`."""
        newest = self._pending or self.current
        # Compared by name: each registry may have its own factory object of a kind.
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
        children, self.current, self._pending = self._children, None, None
        for child in children:
            child.policy.close()

    def describe(self) -> LbNode:
        """Describe the current policy; during a switch, the switch with both policies."""
        if self.current is None:
            return LbNode()
        current = self.current.describe()
        if self._pending is None:
            return current
        pending = self._pending.describe()
        pending = as_child(pending, "pending", state=State.CONNECTING, in_use=False)
        detail = f"{current.policy} goes on until {pending.policy} is connected"
        node = wrap(as_child(current, "current"), detail, (pending,))
        return replace(node, policy="graceful_switch")

    def describe_child(self, name: str) -> LbNode | None:
        """Describe one child of the current policy, without describing the others."""
        if self.current is None:
            return None
        describe = getattr(self.current.policy, "describe_child", None)
        if describe is not None:
            child: LbNode | None = describe(name)
            return child
        return next((each for each in self.describe().children if each.name == name), None)

    @property
    def _children(self) -> "list[SwitchedChild]":
        return [child for child in (self.current, self._pending) if child is not None]

    def _start(self, factory: PolicyFactory) -> "SwitchedChild":
        child, dropped = SwitchedChild(self, factory), self._pending
        if self.current is None:
            self.current = child
        else:
            self._pending = child
        if dropped is not None:
            dropped.policy.close()
        return child

    # Called by children

    def create_pending_subchannel(
        self, child: "SwitchedChild", address: Address, attributes: Attributes
    ) -> Subchannel:
        """Called by a child that is not the current one."""
        if child is self._pending:
            return self.helper.create_subchannel(address, attributes)
        return _NeverConnected(address)

    def on_pending_report(self, child: "SwitchedChild", state: State, picker: Picker) -> None:
        """Called by a child that is not the current one."""
        if child is self._pending and state is not State.CONNECTING:
            replaced, self.current, self._pending = self.current, child, None
            # Report before closing: the old picker is in use until then.
            self.helper.update_state(state, picker)
            assert replaced is not None, "a child is pending only beside a current one"
            replaced.policy.close()

    def on_reresolution_request(self, child: "SwitchedChild") -> None:
        if child is (self._pending or self.current):
            self.helper.request_reresolution()


class SwitchedChild:
    """Current or pending policy, and its helper, which passes itself to the switch."""

    __slots__ = ("_owner", "context", "name", "policy")

    def __init__(self, owner: GracefulSwitchPolicy, factory: PolicyFactory) -> None:
        self._owner = owner
        self.context: Final[Context] = owner.context
        self.name = factory.name
        self.policy = factory.create(self)

    def describe(self) -> LbNode:
        return describe_policy(self.policy, self.name)

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        owner = self._owner
        if self is owner.current:
            return owner.helper.create_subchannel(address, attributes)
        return owner.create_pending_subchannel(self, address, attributes)

    def update_state(self, state: State, picker: Picker) -> None:
        owner = self._owner
        if self is owner.current:
            owner.helper.update_state(state, picker)
        else:
            owner.on_pending_report(self, state, picker)

    def request_reresolution(self) -> None:
        self._owner.on_reresolution_request(self)


class _NeverConnected:
    """Subchannel of a replaced policy: always IDLE."""

    __slots__ = ("address",)

    def __init__(self, address: Address) -> None:
        self.address = address

    def watch(self, listener: StateListener) -> Cancel:
        listener(State.IDLE, OK)
        return no_op

    def watch_health(self, listener: StateListener) -> Cancel:
        return self.watch(listener)

    def watch_load_reports(self, interval_s: float, listener: LoadListener) -> Cancel:
        return no_op

    def request_connection(self) -> None:
        return

    def reset_backoff(self) -> None:
        return

    def release(self) -> None:
        return
