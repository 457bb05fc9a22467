"""Counts of the calls of a channel, and of its calls to each address.

Only channels that are observed have them (`counted_call`). Limits are here, because the addresses
are chosen by control planes.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from proxyless.base import Address, Attributes, Status, StatusCode

# Past this the address that was counted first is removed.
ADDRESSES_MAX: Final = 10_000


class CallSample(Protocol):
    """An RPC that has ended, for a `CallSink`. Without metadata and messages."""

    @property
    def path(self) -> str: ...
    @property
    def address(self) -> Address | None:
        """Address of the last attempt; None if there was none."""

    @property
    def pick_attributes(self) -> Attributes | None:
        """Attributes of the picks; None if the RPC was not routed."""

    @property
    def started_s(self) -> float: ...


class CallSink(Protocol):
    """Consumer of RPCs that have ended: of each failed one, and of samples of the others."""

    # No sample is taken before this time.
    next_sample_s: float

    def on_call_end(self, counts: ChannelCounts, call: CallSample, status: Status) -> None: ...


class NullSink:
    """Sink of channels whose calls are counted and not recorded."""

    next_sample_s = inf

    def on_call_end(self, counts: ChannelCounts, call: CallSample, status: Status) -> None:
        """No-op."""


class Counts:
    """Number of RPCs that were started and that have ended."""

    __slots__ = ("failed", "last_started_s", "started", "succeeded")

    def __init__(self) -> None:
        self.started = 0
        self.succeeded = 0
        self.failed = 0
        # None before the first.
        self.last_started_s: float | None = None

    @property
    def in_flight(self) -> int:
        return self.started - self.succeeded - self.failed


class ChannelCounts(Counts):
    """Counts of one channel. Changed by its calls only."""

    __slots__ = ("addresses", "by_code", "channel_id", "last_failure", "sink")

    def __init__(self, channel_id: int, sink: CallSink | None = None) -> None:
        super().__init__()
        self.channel_id: Final = channel_id
        self.sink: Final[CallSink] = sink or NullSink()
        # RPCs by the address of their last attempt; an RPC with two attempts is started at both.
        self.addresses: Final[dict[Address, Counts]] = {}
        # RPCs that failed.
        self.by_code: Final[dict[StatusCode, int]] = {}
        # Time, path, status and address.
        self.last_failure: tuple[float, str, Status, Address | None] | None = None

    def of_address(self, address: Address) -> Counts:
        found = self.addresses.get(address)
        if found is None:
            if len(self.addresses) >= ADDRESSES_MAX:
                del self.addresses[next(iter(self.addresses))]
            found = self.addresses[address] = Counts()
        return found

    def on_failure(self, now_s: float, call: CallSample, status: Status) -> None:
        self.by_code[status.code] = self.by_code.get(status.code, 0) + 1
        self.last_failure = (now_s, call.path, status, call.address)
