"""Where does an RPC go, given a ring and the states of those on it?

Specs: A61 "Ring Hash", A76; requirements RH-05, RH-06, RH-10, RH-11.

A pick waits for the owner of its hash to connect, and goes on along the ring from owners that fail.
An RPC without a hash of its own goes to whoever is connected.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final, Generic, TypeVar

from xxhash import xxh64_intdigest

from proxyless.base import OK, Metadata, State, Status, StatusCode
from proxyless.base.frozen import frozen
from proxyless.lb.api import QUEUE, Fail, Picker, PickInfo, PickResult
from proxyless.lb.attributes import REQUEST_HASH
from proxyless.lb.policies.ring_hash.ring import Ring

T = TypeVar("T")

HASH_BITS: Final = 64

NO_REQUEST_HASH: Final = "RPC has no hash, wanted one from its route or requestHashHeader"


@frozen
class View:
    """What the owner of an entry has last reported, if that was not IDLE."""

    state: State
    picker: Picker


@frozen(eq=False)
class Snapshot(Generic[T]):
    """All that a picker knows: the ring, and those owners that are not IDLE."""

    ring: Ring[T]
    views: Mapping[T, View]
    has_connecting: bool
    is_all_failing: bool
    # Has an owner connected, soon.
    wake: Callable[[T], None]
    # Why everything fails, if that is the state.
    status: Status = OK


class RingPicker(Picker, Generic[T]):
    """Goes by the hash that comes with the RPC."""

    __slots__ = ("_ring", "_snapshot", "_views")

    def __init__(self, snapshot: Snapshot[T]) -> None:
        self._snapshot: Final = snapshot
        self._ring: Final = snapshot.ring
        self._views: Final = snapshot.views

    def pick(self, info: PickInfo) -> PickResult:
        request_hash = info.attributes.get(REQUEST_HASH)
        if request_hash is None:
            return _NO_REQUEST_HASH_RESULT
        return self._pick_from(self._ring.find(request_hash), info)

    @property
    def status(self) -> Status:
        return self._snapshot.status

    def _pick_from(self, first: int, info: PickInfo) -> PickResult:
        """The first entry from there on that is not failing."""
        if self._snapshot.is_all_failing:
            return self._fail_with(first, info)
        members, views = self._ring.members, self._views
        for index in chain(range(first, len(members)), range(first)):
            owner = members[index].owner
            view = views.get(owner)
            if view is None:
                self._snapshot.wake(owner)
                return QUEUE
            if view.state is State.READY:
                return view.picker.pick(info)
            if view.state is State.CONNECTING:
                return QUEUE
        return self._fail_with(first, info)

    def _fail_with(self, first: int, info: PickInfo) -> PickResult:
        """ "All children are in transient failure. Return the first failure." - A61."""
        return self._views[self._ring.members[first].owner].picker.pick(info)


class HeaderPicker(RingPicker[T]):
    """Goes by a header of the RPC, and by chance if it does not have that."""

    __slots__ = ("_draw_bits", "_header", "_known_places")

    def __init__(self, snapshot: Snapshot[T], header: str, draw_bits: Callable[[int], int]) -> None:
        super().__init__(snapshot)
        self._header: Final = header
        self._draw_bits: Final = draw_bits
        # Found when they are first needed, which may be never.
        self._known_places: tuple[Places, Places] | None = None

    def pick(self, info: PickInfo) -> PickResult:
        value = join_values(info.metadata, self._header)
        if value:
            return self._pick_from(self._ring.find(xxh64_intdigest(value)), info)
        return self._pick_by_chance(self._ring.find(self._draw_bits(HASH_BITS)), info)

    def _pick_by_chance(self, first: int, info: PickInfo) -> PickResult:
        """The first READY entry from there on, also if there is another that could connect.

        "it will trigger a connection attempt on at most one endpoint that is in IDLE state along
        the way" if "no endpoint is currently in CONNECTING state" - A76
        """
        ready, idle = self._places()
        is_requested = self._snapshot.has_connecting
        if not is_requested and idle and idle.steps_from(first) < ready.steps_from(first):
            self._snapshot.wake(self._ring.members[idle.next_from(first)].owner)
            is_requested = True
        if ready:
            owner = self._ring.members[ready.next_from(first)].owner
            return self._views[owner].picker.pick(info)
        return QUEUE if is_requested else self._fail_with(first, info)

    def _places(self) -> tuple["Places", "Places"]:
        """Where on the ring READY and IDLE entries are. A walk for each pick would be too long."""
        if self._known_places is None:
            ready, idle = [], []
            for index, member in enumerate(self._ring.members):
                view = self._views.get(member.owner)
                if view is None:
                    idle.append(index)
                elif view.state is State.READY:
                    ready.append(index)
            size = len(self._ring.members)
            self._known_places = Places(ready, size), Places(idle, size)
        return self._known_places


class Places:
    """Some of the places on a ring of this size, in order."""

    __slots__ = ("_indices", "_size")

    def __init__(self, indices: Sequence[int], size: int) -> None:
        self._indices: Final = indices
        self._size: Final = size

    def __bool__(self) -> bool:
        return bool(self._indices)

    def next_from(self, start: int) -> int:
        """The first of them from there on, around the ring. There must be one."""
        at = bisect_left(self._indices, start)
        return self._indices[at if at < len(self._indices) else 0]

    def steps_from(self, start: int) -> int:
        """How far that is; the whole ring if there is none."""
        return (self.next_from(start) - start) % self._size if self._indices else self._size


def join_values(metadata: Metadata, header: str) -> bytes:
    """ "values are joined with a comma" - A76. Empty if there is none."""
    values = [value for key, value in metadata if key == header]
    return b",".join(
        value if isinstance(value, bytes) else value.encode(errors="surrogatepass")
        for value in values
    )


_NO_REQUEST_HASH_RESULT: Final = Fail(Status(StatusCode.INTERNAL, NO_REQUEST_HASH))
