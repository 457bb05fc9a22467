"""LameChannel: a channel to a target that is malformed.

gRPC's C++ has the same class with the same behaviour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.base import State, Status
from proxyless.channel.channel import Channel
from proxyless.lb.pickers import FailPicker
from proxyless.resolver import StaticResolver
from proxyless.resolver.unresolvable import UnresolvableTargets
from proxyless.wire import StreamEnd

if TYPE_CHECKING:
    from proxyless.channel.call_owner import WaitingCall
    from proxyless.channel.loop_stack import LoopStack
    from proxyless.channel.options import ChannelOptions
    from proxyless.lb.api import PolicyRegistry


class LameChannel(Channel):
    """Channel whose RPCs all fail at once with one status, wait-for-ready ones included.

    It is in TRANSIENT_FAILURE from the start until it is closed, and opens no connection.
    """

    def __init__(
        self,
        target: str,
        options: ChannelOptions,
        stack: LoopStack,
        *,
        policies: PolicyRegistry,
        reason: Status,
    ) -> None:
        targets = UnresolvableTargets(reason)
        super().__init__(target, options, stack, policies=policies, resolvers=targets)
        self._reason = reason
        # Never started. Without a resolver the first RPC would start one.
        self._resolver = StaticResolver(reason, self, stack.clock)
        self._set_state(State.TRANSIENT_FAILURE, FailPicker(reason))

    def wait_for_selector(self, call: WaitingCall) -> None:
        if self.state is State.SHUTDOWN:
            super().wait_for_selector(call)
        else:
            call.finish(StreamEnd(self._reason))
