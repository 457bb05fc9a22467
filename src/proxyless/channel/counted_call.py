"""Calls of a channel that is observed: they are counted, and some are recorded.

A live service or a flight recorder replaces the type of a channel's calls (`Channel.count_calls`),
so that RPCs of other channels run no additional code
(docs/adr/0013-metrics-are-chosen-when-a-channel-is-made.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from proxyless.channel.call import Call
from proxyless.channel.call_attempts import Station

if TYPE_CHECKING:
    from proxyless.base import Address, Attributes, Status
    from proxyless.channel.call_counts import ChannelCounts, Counts
    from proxyless.lb.api import CallTracker
    from proxyless.transport import ClientTransport
    from proxyless.wire import RequestEncoder, StreamEnd

_START: Final = Station.START


class CountedCall(Call):
    """A call that is counted. Without slots, so that `counted` can combine it with other types."""

    def __init__(self, channel: Any, *rest: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(channel, *rest, **options)
        self._counts: ChannelCounts = channel.counts
        # Address of the last attempt, and its counts.
        self.address: Address | None = None
        self._address_counts: Counts | None = None
        self.started_s = 0.0

    def advance(self) -> None:
        if self.station is _START:
            self._count_start()
        super().advance()

    def start_failed(self, status: Status) -> None:
        self._count_start()
        super().start_failed(status)

    def _count_start(self) -> None:
        self.started_s = self._channel.stack.clock.now_s()
        self._counts.started += 1
        self._counts.last_started_s = self.started_s

    def _open(
        self, transport: ClientTransport, tracker: CallTracker | None, encoder: RequestEncoder
    ) -> None:
        self._leave_address()
        address = self.address = transport.address
        if address is not None:
            counts = self._address_counts = self._counts.of_address(address)
            counts.started += 1
            counts.last_started_s = self._channel.stack.clock.now_s()
        super()._open(transport, tracker, encoder)

    def _leave_address(self) -> None:
        """The previous attempt has failed, or a hedged one is not followed any more."""
        counts, self._address_counts = self._address_counts, None
        if counts is not None:
            counts.failed += 1

    def finish(self, end: StreamEnd) -> None:
        if not self.is_ended:
            self._count_end(end.status)
        super().finish(end)

    def _count_end(self, status: Status) -> None:
        counts, at_address = self._counts, self._address_counts
        now_s = self._channel.stack.clock.now_s()
        if status.is_ok:
            counts.succeeded += 1
            if at_address is not None:
                at_address.succeeded += 1
        else:
            counts.failed += 1
            if at_address is not None:
                at_address.failed += 1
            counts.on_failure(now_s, self, status)
        if now_s >= counts.sink.next_sample_s or not status.is_ok:
            counts.sink.on_call_end(counts, self, status)

    # `CallSample`

    @property
    def pick_attributes(self) -> Attributes | None:
        return None if self._info is None else self._info.attributes


# By the type that they extend.
_TYPES: Final[dict[type[Call], type[Call]]] = {Call: CountedCall}


def counted(call_type: type[Call]) -> type[Call]:
    """The counted variant of this type of calls."""
    found = _TYPES.get(call_type)
    if found is None:
        found = type(f"Counted{call_type.__name__}", (CountedCall, call_type), {})
        _TYPES[call_type] = found
    return found
