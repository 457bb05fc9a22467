"""Does a policy with children keep its side of their contract?

The policies of a registry are wrapped, so that it is noticed when a parent calls a child that is
just calling it, or one that it closed, or forgets to close one. A child whose factory does not
come from the registry is not seen.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from proxyless.lb import PolicyRegistry
from proxyless.lb.forwarding import ForwardingHelper
from proxyless.testing.rules import OnBroken, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proxyless.base import Address, Attributes, State, Status, ValidationErrors
    from proxyless.lb import Helper, Picker, Policy, PolicyFactory, Subchannel, Update


class Children:
    """The policies that were created from the registry and are not closed yet."""

    def __init__(self, on_broken: OnBroken) -> None:
        self._on_broken = on_broken
        self.open: list[GuardedPolicy] = []

    def guard(self, registry: PolicyRegistry) -> PolicyRegistry:
        """A registry whose policies are watched."""
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
    """Makes watched policies of one kind."""

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
    """A child. Driven by the policy under test."""

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
        self._check("told to exit idle")
        self._inner.exit_idle()

    def reset_backoff(self) -> None:
        self._check("told to reset its backoff")
        self._inner.reset_backoff()

    def close(self) -> None:
        self._check("closed")
        self._is_closed = True
        self._children.on_close(self)
        self._inner.close()

    def _check(self, what: str) -> None:
        if self._is_closed:
            self._children.fail(Rule.CLOSED, f"child {self.name!r} is {what} after it was closed")
        if (calling := self._helper.calling) is not None:
            self._children.fail(
                Rule.NO_REENTRANCY, f"child {self.name!r} is {what} while it {calling}"
            )


class _GuardedHelper(ForwardingHelper):
    """Knows whether the child is calling its parent, and what about."""

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
