"""Pickers of ring_hash: choose an endpoint from the ring and the endpoints' states.

Specs: A61 "Ring Hash", A76; requirements RH-05, RH-06, RH-10, RH-11.

A pick waits for the owner of its hash to connect, and skips failing owners along the ring. An RPC
without the hash header goes to a random READY endpoint.
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
class OwnerState:
    """Last report of the owner of an entry, if it is not IDLE."""

    state: State
    picker: Picker


@frozen(eq=False)
class RingSnapshot(Generic[T]):
    """The ring, and the states of all owners that are not IDLE."""

    ring: Ring[T]
    owner_states: Mapping[T, OwnerState]
    has_connecting: bool
    is_all_failing: bool
    # Schedules a connection of an owner.
    connect: Callable[[T], None]
    # The reason for TRANSIENT_FAILURE.
    status: Status = OK


class RingHashPicker(Picker, Generic[T]):
    """Uses the RPC's attribute REQUEST_HASH."""

    __slots__ = ("_owner_states", "_ring", "_snapshot")

    def __init__(self, snapshot: RingSnapshot[T]) -> None:
        self._snapshot: Final = snapshot
        self._ring: Final = snapshot.ring
        self._owner_states: Final = snapshot.owner_states

    def pick(self, info: PickInfo) -> PickResult:
        request_hash = info.attributes.get(REQUEST_HASH)
        if request_hash is None:
            return _NO_REQUEST_HASH_RESULT
        return self._pick_from(self._ring.find(request_hash), info)

    @property
    def status(self) -> Status:
        return self._snapshot.status

    def _pick_from(self, first: int, info: PickInfo) -> PickResult:
        """Pick the first entry that is not failing, starting at `first`."""
        if self._snapshot.is_all_failing:
            return self._fail_with(first, info)
        members, owner_states = self._ring.members, self._owner_states
        for index in chain(range(first, len(members)), range(first)):
            owner = members[index].owner
            owner_state = owner_states.get(owner)
            if owner_state is None:
                self._snapshot.connect(owner)
                return QUEUE
            if owner_state.state is State.READY:
                return owner_state.picker.pick(info)
            if owner_state.state is State.CONNECTING:
                return QUEUE
        return self._fail_with(first, info)

    def _fail_with(self, first: int, info: PickInfo) -> PickResult:
        """ "All children are in transient failure. Return the first failure." - A61."""
        return self._owner_states[self._ring.members[first].owner].picker.pick(info)


class HeaderHashPicker(RingHashPicker[T]):
    """Hashes a header of the RPC; without the header, the hash is random."""

    __slots__ = ("_header", "_positions", "_random_bits")

    def __init__(
        self, snapshot: RingSnapshot[T], header: str, random_bits: Callable[[int], int]
    ) -> None:
        super().__init__(snapshot)
        self._header: Final = header
        self._random_bits: Final = random_bits
        # The positions of READY and IDLE entries, computed on first use.
        self._positions: tuple[RingPositions, RingPositions] | None = None

    def pick(self, info: PickInfo) -> PickResult:
        value = join_values(info.metadata, self._header)
        if value:
            return self._pick_from(self._ring.find(xxh64_intdigest(value)), info)
        return self._pick_random(self._ring.find(self._random_bits(HASH_BITS)), info)

    def _pick_random(self, first: int, info: PickInfo) -> PickResult:
        """Pick the first READY entry, starting at `first`.

        "it will trigger a connection attempt on at most one endpoint that is in IDLE state along
        the way" if "no endpoint is currently in CONNECTING state" - A76
        """
        ready, idle = self._find_positions()
        is_requested = self._snapshot.has_connecting
        if not is_requested and idle and idle.steps_from(first) < ready.steps_from(first):
            self._snapshot.connect(self._ring.members[idle.next_from(first)].owner)
            is_requested = True
        if ready:
            owner = self._ring.members[ready.next_from(first)].owner
            return self._owner_states[owner].picker.pick(info)
        return QUEUE if is_requested else self._fail_with(first, info)

    def _find_positions(self) -> tuple["RingPositions", "RingPositions"]:
        """Find the READY and IDLE entries. Cached, because a scan for each pick would be slow."""
        if self._positions is None:
            ready, idle = [], []
            for index, member in enumerate(self._ring.members):
                owner_state = self._owner_states.get(member.owner)
                if owner_state is None:
                    idle.append(index)
                elif owner_state.state is State.READY:
                    ready.append(index)
            size = len(self._ring.members)
            self._positions = RingPositions(ready, size), RingPositions(idle, size)
        return self._positions


class RingPositions:
    """Sorted indices of some entries of a ring."""

    __slots__ = ("_indices", "_size")

    def __init__(self, indices: Sequence[int], size: int) -> None:
        self._indices: Final = indices
        self._size: Final = size

    def __bool__(self) -> bool:
        return bool(self._indices)

    def next_from(self, start: int) -> int:
        """Return the first index at or after `start`, cyclically. There must be one."""
        at = bisect_left(self._indices, start)
        return self._indices[at if at < len(self._indices) else 0]

    def steps_from(self, start: int) -> int:
        """Return the distance to that index; the size of the ring if there is none."""
        return (self.next_from(start) - start) % self._size if self._indices else self._size


def join_values(metadata: Metadata, header: str) -> bytes:
    """ "values are joined with a comma" - A76. Empty if there is none."""
    values = [value for key, value in metadata if key == header]
    return b",".join(
        value if isinstance(value, bytes) else value.encode(errors="surrogatepass")
        for value in values
    )


_NO_REQUEST_HASH_RESULT: Final = Fail(Status(StatusCode.INTERNAL, NO_REQUEST_HASH))
