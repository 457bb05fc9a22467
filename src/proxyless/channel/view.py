"""What is there to see of a channel, for somebody who wants to explain an RPC?

A snapshot that is made when it is asked for. It decides nothing, and nothing is stored for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.base.frozen import frozen
from proxyless.lb.view import LbNode, place

if TYPE_CHECKING:
    from proxyless.base import State, Status
    from proxyless.channel.service_config import ServiceConfig
    from proxyless.lb.graceful_switch import GracefulSwitch
    from proxyless.resolver.api import Resolver


@frozen
class ChannelView:
    """One channel at one moment."""

    target: str
    state: State
    # None while the channel is idle, as is what came of it.
    resolver: Resolver | None
    service_config: ServiceConfig | None
    # What new RPCs fail with because nothing routes them; None if something does, or they wait.
    unroutable: Status | None
    # How many RPCs wait to be routed or picked for.
    waiting: int
    # The top policy, and why it fails if it does. To be asked before anything else happens.
    policy: GracefulSwitch | None
    failure: Status

    def lb_tree(self) -> LbNode | None:
        """All policies and subchannels; None if there are none yet."""
        if self.policy is None:
            return None
        node = self.policy.describe()
        if not node.policy:
            return None
        return place(node, self.target, state=self.state, failure=self.failure)

    def find_lb(self, name: str) -> LbNode | None:
        """One child of the top policy: on a large mesh, all of them are many."""
        return None if self.policy is None else self.policy.describe_child(name)
