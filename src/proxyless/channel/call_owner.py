"""Interfaces between a call and its channel. Imported for types only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from proxyless.channel.config_state import UnselectedCall

if TYPE_CHECKING:
    from proxyless.base import Status
    from proxyless.channel.attempt import Strategy
    from proxyless.channel.config_state import ConfigState
    from proxyless.channel.loop_stack import LoopStack
    from proxyless.channel.options import ChannelOptions
    from proxyless.channel.pick_queue import PickQueue
    from proxyless.channel.retry_strategies import RetriedCall
    from proxyless.channel.service_config import MethodConfig
    from proxyless.channel.view import ChannelView


class ActiveCall(Protocol):
    """An RPC that a channel counts, and cancels when it is closed."""

    def cancel(self, status: Status) -> None: ...


class WaitingCall(UnselectedCall, Protocol):
    """An RPC that may wait for a selector or a picker."""

    @property
    def is_connected(self) -> bool: ...
    @property
    def path(self) -> str: ...


class CallOwner(Protocol):
    """The methods of a channel that its calls use."""

    @property
    def authority(self) -> str: ...
    @property
    def options(self) -> ChannelOptions: ...
    @property
    def stack(self) -> LoopStack: ...
    @property
    def config(self) -> ConfigState: ...
    @property
    def picks(self) -> PickQueue: ...

    def view(self) -> ChannelView: ...

    def on_call_started(self, call: ActiveCall) -> None: ...
    def on_call_ended(self, call: ActiveCall) -> None: ...

    def wait_for_selector(self, call: WaitingCall) -> None:
        """Advance the call as soon as there is a selector, or end it."""

    def describe_delay(self, call: WaitingCall) -> Status:
        """The status of an RPC whose deadline has passed: what it waited for may be the reason."""

    def describe_failure(self, status: Status, path: str) -> Status:
        """The status of an RPC that the channel itself fails with this one."""

    def describe_limit(self, status: Status, note: str) -> Status:
        """The status of an RPC whose deadline was a timeout of this origin."""

    def describe_wait(self) -> Status:
        """What RPCs without a selector wait for; OK if that is unknown."""

    def choose_strategy(self, call: RetriedCall, method_config: MethodConfig) -> Strategy | None:
        """The retry or hedging policy of the method, for this call."""
