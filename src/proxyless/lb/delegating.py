"""How does a policy have another one do its work?

Many policies connect to nothing and pick nothing themselves: they only decide what another policy
is told. Which one that is may change with their config, as a `GracefulSwitch` allows.
"""

from abc import ABC, abstractmethod

from proxyless.base import Status
from proxyless.lb.api import Helper, Update
from proxyless.lb.graceful_switch import GracefulSwitch
from proxyless.lb.view import LbNode, wrap


class DelegatingPolicy(ABC):
    """A policy with one child, which does everything. Driven by its parent."""

    __slots__ = ("_child", "_helper")

    def __init__(self, helper: Helper) -> None:
        self._helper = helper
        self._child = GracefulSwitch(helper)

    @abstractmethod
    def delegate(self, update: Update) -> Update:
        """What the child is told instead. Its config is a `PolicyConfig`, the child's own."""

    def update(self, update: Update) -> Status:
        return self._child.update(self.delegate(update))

    def exit_idle(self) -> None:
        self._child.exit_idle()

    def reset_backoff(self) -> None:
        self._child.reset_backoff()

    def close(self) -> None:
        self._child.close()

    def describe(self) -> LbNode:
        return wrap(self._child.describe(), self._note())

    def _note(self) -> str:
        """What is to be said about the policy to somebody who asks."""
        return ""
