"""Base of policies that delegate everything to one child.

Such a policy only rewrites the updates. The kind of its child may change with its config: the child
is a `GracefulSwitchPolicy`.
"""

from abc import ABC, abstractmethod

from proxyless.base import Status
from proxyless.lb.api import Helper, Update
from proxyless.lb.description import LbNode, wrap
from proxyless.lb.graceful_switch import GracefulSwitchPolicy


class DelegatingPolicy(ABC):
    """Policy that forwards every call to its one child."""

    __slots__ = ("_child", "_helper")

    def __init__(self, helper: Helper) -> None:
        self._helper = helper
        self._child = GracefulSwitchPolicy(helper)

    @abstractmethod
    def delegate(self, update: Update) -> Update:
        """Return the child's update. Its config is a `PolicyConfig`."""

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
        """Return the detail text of the policy's description."""
        return ""
