"""ChannelView: snapshot of a channel, for explanations of an RPC. Created on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.base.frozen import frozen
from proxyless.lb.description import LbNode, as_child

if TYPE_CHECKING:
    from proxyless.base import State, Status
    from proxyless.channel.service_config import ServiceConfig
    from proxyless.lb.graceful_switch import GracefulSwitchPolicy
    from proxyless.resolver.api import Resolver


@frozen
class ChannelView:
    """One channel at one moment. Valid until the next event."""

    target: str
    state: State
    # None while the channel is idle, as is the service config.
    resolver: Resolver | None
    service_config: ServiceConfig | None
    # The status that new RPCs fail with for lack of a selector; None if they do not fail.
    unroutable: Status | None
    # Number of RPCs that wait for a selector or a picker.
    waiting: int
    # The top policy, and its status if it fails.
    policy: GracefulSwitchPolicy | None
    failure: Status
    # Time since the start of the oldest RPC that waits.
    longest_wait_s: float = 0.0

    def lb_tree(self) -> LbNode | None:
        """All policies and subchannels; None without a policy."""
        if self.policy is None:
            return None
        node = self.policy.describe()
        if not node.policy:
            return None
        return as_child(node, self.target, state=self.state, failure=self.failure)

    def find_lb(self, name: str) -> LbNode | None:
        """One child of the top policy. Cheaper than `lb_tree` on a large mesh."""
        return None if self.policy is None else self.policy.describe_child(name)
