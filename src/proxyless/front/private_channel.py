"""Attribute `_channel` of grpcio's channels, with the methods that applications call.

It is private, but a blocking channel has no other method that returns its state without a callback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.front.conversions import CLOSED_TO_CALLS, to_grpc_state

if TYPE_CHECKING:
    from proxyless.front.aio.channel import AioChannel
    from proxyless.front.sync.channel import SyncChannel


class PrivateSyncChannel:
    """`_channel` of a blocking channel. Raises ValueError if that is closed."""

    def __init__(self, channel: SyncChannel) -> None:
        self._channel: Final = channel

    def check_connectivity_state(self, try_to_connect: bool) -> int:
        binding = self._channel.bind(CLOSED_TO_CALLS)
        state = to_grpc_state(binding.core.state)
        if try_to_connect:
            binding.background.post(binding.core.request_connection)
        return int(state.value[0])

    def target(self) -> bytes:
        """The target in canonical form."""
        return self._channel.bind(CLOSED_TO_CALLS).core.canonical_target.encode()


class PrivateAioChannel:
    """`_channel` of an asyncio channel."""

    def __init__(self, channel: AioChannel) -> None:
        self._channel: Final = channel

    def check_connectivity_state(self, try_to_connect: bool) -> int:
        return int(self._channel.get_state(try_to_connect).value[0])

    def closed(self) -> bool:
        return self._channel.is_closed
