"""Views of a channel, its subchannels and connections at one moment.

They are made on the loop of the channel, in slices, and read in any thread.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from proxyless.base import State
from proxyless.base.frozen import frozen
from proxyless.base.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from proxyless.base import Status
    from proxyless.channel import Channel, LoopStack
    from proxyless.channel.call_counts import Counts
    from proxyless.channel.connection import Connection
    from proxyless.channel.subchannel import Subchannel
    from proxyless.lb import LbNode

T = TypeVar("T")

# Work on a loop: it yields between slices, each of which runs in a turn of its own.
LoopWork: TypeAlias = "Callable[[LoopStack], Generator[None, None, T]]"

# Texts of peers in responses.
TEXT_MAX: Final = 300
NAME_MAX: Final = 200
# Addresses in one slice: about a millisecond.
SLICE_ADDRESSES: Final = 500


def short(text: str, limit: int = TEXT_MAX) -> str:
    """A text from outside, escaped, on one line of bounded length."""
    return one_line(text, limit)


@frozen
class CountsView:
    """Counts of RPCs. Times are seconds since the epoch."""

    started: int = 0
    succeeded: int = 0
    failed: int = 0
    in_flight: int = 0
    last_started: float | None = None

    def __add__(self, other: CountsView) -> CountsView:
        times = [each for each in (self.last_started, other.last_started) if each is not None]
        return CountsView(
            self.started + other.started,
            self.succeeded + other.succeeded,
            self.failed + other.failed,
            self.in_flight + other.in_flight,
            max(times, default=None),
        )


NO_COUNTS: Final = CountsView()


@frozen
class FailureView:
    """The last RPC that failed."""

    time: float
    method: str
    code: str
    details: str
    address: str


@frozen
class SocketView:
    """A connection of a subchannel."""

    id: int
    address: str
    # Names as the operating system has them.
    local: object
    remote: object
    streams_started: int
    tls_cipher: str


@frozen
class SubchannelView:
    """One subchannel of a channel."""

    id: int
    address: str
    state: State
    # Its connections, oldest first.
    sockets: tuple[SocketView, ...]


@frozen
class LiveChannel:
    """One channel."""

    id: int
    target: str
    state: State
    problem: str
    generation: int
    rpcs: CountsView
    waiting: int
    failures: Mapping[str, int]
    last_failure: FailureView | None
    by_address: Mapping[str, CountsView]
    tree: LbNode | None
    # IDs and addresses; empty unless `Contents` has them.
    subchannels: tuple[tuple[int, str], ...] = ()


@frozen
class Contents:
    """The parts of a view that take time on a large mesh."""

    tree: bool = True
    addresses: bool = True
    subchannels: bool = False


def list_open(stack: LoopStack) -> list[Channel]:
    """The channels of one loop that are not closed, in the order of their IDs."""
    return [each for each in stack.channels.list_all() if each.state is not State.SHUTDOWN]


def view_channels(
    stack: LoopStack, choose: Callable[[Channel], bool], contents: Contents
) -> Generator[None, None, list[LiveChannel]]:
    """The channels of one loop that are chosen and not closed."""
    found: list[LiveChannel] = []
    for channel in list_open(stack):
        if choose(channel):
            view = yield from view_channel(channel, contents)
            # It may be closed since the first slice.
            if view.state is not State.SHUTDOWN:
                found.append(view)
            yield
    return found


def view_channel(channel: Channel, contents: Contents) -> Generator[None, None, LiveChannel]:
    """Called on the channel's loop. The LB tree is described in one slice, the last."""
    by_address: dict[str, CountsView] = {}
    subchannels: tuple[tuple[int, str], ...] = ()
    counts, offset_s = channel.counts, epoch_offset_s(channel)
    if counts is not None and contents.addresses:
        for number, (address, found) in enumerate(list(counts.addresses.items()), start=1):
            by_address[str(address)] = view_counts(found, offset_s)
            if number % SLICE_ADDRESSES == 0:
                yield
    if contents.subchannels:
        held = channel.stack.pool.subchannels_of(channel)
        subchannels = tuple((each.id, str(each.address)) for each in held)
        yield
    rpcs, failures, last_failure = CountsView(in_flight=channel.calls), {}, None
    if counts is not None:
        rpcs = view_counts(counts, offset_s, channel.calls)
        failures = {code.name: number for code, number in counts.by_code.items()}
        last_failure = _view_failure(counts.last_failure, offset_s)
    view = channel.view()
    failure = view.failure if channel.state is State.TRANSIENT_FAILURE else None
    problem = view.unroutable or failure
    return LiveChannel(
        channel.id,
        channel.target,
        channel.state,
        "" if problem is None else problem.details,
        channel.config.generation,
        rpcs,
        view.waiting,
        failures,
        last_failure,
        by_address,
        view.lb_tree() if contents.tree else None,
        subchannels,
    )


def epoch_offset_s(channel: Channel) -> float:
    """The difference between the time since the epoch and the clock of the channel."""
    return datetime.now(UTC).timestamp() - channel.clock.now_s()


def view_counts(counts: Counts, offset_s: float, in_flight: int | None = None) -> CountsView:
    last_s = counts.last_started_s
    return CountsView(
        counts.started,
        counts.succeeded,
        counts.failed,
        counts.in_flight if in_flight is None else in_flight,
        None if last_s is None else last_s + offset_s,
    )


def _view_failure(
    failure: tuple[float, str, Status, Any] | None, offset_s: float
) -> FailureView | None:
    if failure is None:
        return None
    at_s, path, status, address = failure
    where = "" if address is None else str(address)
    return FailureView(at_s + offset_s, path, status.code.name, status.details, where)


def view_subchannel(subchannel: Subchannel) -> SubchannelView:
    """Called on the subchannel's loop."""
    address = str(subchannel.address)
    found = (_view_socket(address, each) for each in subchannel.connections)
    sockets = tuple(each for each in found if each is not None)
    return SubchannelView(subchannel.id, address, subchannel.state, sockets)


def _view_socket(address: str, connection: Connection) -> SocketView | None:
    if (transport := connection.transport) is None:
        return None
    local, remote = transport.socket_names
    started = transport.streams_started
    return SocketView(connection.id, address, local, remote, started, transport.tls_cipher)
