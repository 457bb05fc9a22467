"""Checks of the calls that a policy makes to its children.

The factories of the registry are wrapped, to detect that a parent calls a child inside the child's
own call, calls it after `close`, or does not close it. Children whose factory does not come from
the registry are not checked.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from proxyless.lb import PolicyRegistry
from proxyless.lb.description import describe_policy
from proxyless.lb.forwarding import ForwardingHelper
from proxyless.testing.rules import OnBroken, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proxyless.base import Address, Attributes, State, Status, ValidationErrors
    from proxyless.lb import Helper, Picker, Policy, PolicyFactory, Subchannel, Update
    from proxyless.lb.description import LbNode


class Children:
    """Open children of the policy under test."""

    def __init__(self, on_broken: OnBroken) -> None:
        self._on_broken = on_broken
        self.open: list[GuardedPolicy] = []

    def guard(self, registry: PolicyRegistry) -> PolicyRegistry:
        """Return a registry that creates guarded policies."""
        factories = (registry.find(name) for name in registry.names)
        return PolicyRegistry(GuardedFactory(each, self) for each in factories if each is not None)

    def create(self, factory: PolicyFactory, helper: Helper) -> Policy:
        child = GuardedPolicy(factory, helper, self)
        self.open.append(child)
        return child

    def on_close(self, child: GuardedPolicy) -> None:
        self.open.remove(child)

    def fail(self, rule: Rule, what: str) -> None:
        self._on_broken(rule, what)


class GuardedFactory:
    """Factory of guarded policies of one kind."""

    def __init__(self, inner: PolicyFactory, children: Children) -> None:
        self._inner = inner
        self._children = children

    @property
    def name(self) -> str:
        return self._inner.name

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        return self._inner.parse_config(json, errors, registry)

    def create(self, helper: Helper) -> Policy:
        return self._children.create(self._inner, helper)


class GuardedPolicy:
    """Child that checks the calls of its parent."""

    def __init__(self, factory: PolicyFactory, helper: Helper, children: Children) -> None:
        self.name = factory.name
        self._children = children
        self._is_closed = False
        self._helper = _GuardedHelper(helper)
        self._inner = factory.create(self._helper)

    def update(self, update: Update) -> Status:
        self._check("updated")
        return self._inner.update(update)

    def exit_idle(self) -> None:
        self._check("asked to exit idle")
        self._inner.exit_idle()

    def reset_backoff(self) -> None:
        self._check("asked to reset its backoff")
        self._inner.reset_backoff()

    def close(self) -> None:
        self._check("closed")
        self._is_closed = True
        self._children.on_close(self)
        self._inner.close()

    def describe(self) -> LbNode:
        return describe_policy(self._inner, self.name)

    def _check(self, what: str) -> None:
        if self._is_closed:
            self._children.fail(Rule.CLOSED, f"child {self.name!r} is {what} after it was closed")
        if (calling := self._helper.calling) is not None:
            self._children.fail(
                Rule.NO_REENTRANCY, f"child {self.name!r} is {what} while it {calling}"
            )


class _GuardedHelper(ForwardingHelper):
    """Helper of a child that records the child's current call to its parent."""

    __slots__ = ("calling",)

    def __init__(self, parent: Helper) -> None:
        super().__init__(parent)
        self.calling: str | None = None

    def create_subchannel(self, address: Address, attributes: Attributes) -> Subchannel:
        with self._calling("creates a subchannel"):
            return super().create_subchannel(address, attributes)

    def update_state(self, state: State, picker: Picker) -> None:
        with self._calling(f"reports {state}"):
            super().update_state(state, picker)

    def request_reresolution(self) -> None:
        with self._calling("requests re-resolution"):
            super().request_reresolution()

    @contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        before, self.calling = self.calling, what
        try:
            yield
        finally:
            self.calling = before
