"""Unit tests of proxyless.lb.policies.ring_hash.picker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import EMPTY_ATTRIBUTES, State, Status
from proxyless.lb import QUEUE, REQUEST_HASH, Fail, FailPicker, Picker, PickInfo, PickResult
from proxyless.lb.pickers import QUEUE_PICKER
from proxyless.lb.policies.ring_hash.picker import (
    HeaderHashPicker,
    OwnerState,
    RingHashPicker,
    RingPositions,
    RingSnapshot,
    join_values,
)
from proxyless.lb.policies.ring_hash.ring import Member, RingSize, build_ring
from tests.worlds.policies import CONNECTING, FAILURE, IDLE, READY, unavailable

NAMES = "abcde"
RING = build_ring([Member(name, name) for name in NAMES], RingSize(15, 15))
STATES = st.sampled_from([IDLE, CONNECTING, READY, FAILURE])
HASHES = st.integers(0, 2**64 - 1)


class ReadyPicker(Picker):
    """Fails with the name of the owner, because there are no subchannels in these tests."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def pick(self, info: PickInfo) -> PickResult:
        return Fail(unavailable(f"{self.name} is READY"))


def owner_state(name: str, state: State) -> OwnerState:
    match state:
        case State.READY:
            return OwnerState(state, ReadyPicker(name))
        case State.TRANSIENT_FAILURE:
            return OwnerState(state, FailPicker(unavailable(f"{name} fails")))
        case _:
            return OwnerState(state, QUEUE_PICKER)


def snapshot(states: dict[str, State], connected: list[str]) -> RingSnapshot[str]:
    return RingSnapshot(
        RING,
        {name: owner_state(name, state) for name, state in states.items() if state is not IDLE},
        has_connecting=CONNECTING in states.values(),
        is_all_failing=set(states.values()) == {FAILURE},
        connect=connected.append,
    )


def all_states() -> st.SearchStrategy[dict[str, State]]:
    return st.fixed_dictionaries(dict.fromkeys(NAMES, STATES))


def around(first: int) -> list[str]:
    """Return the owners of all entries in order, starting at `first`."""
    owners = [member.owner for member in RING.members]
    return owners[first:] + owners[:first]


def details_of(result: PickResult) -> str | None:
    if result is QUEUE:
        return None
    assert isinstance(result, Fail)
    return result.status.details


@given(all_states(), HASHES)
def test_picks_match_the_pseudo_code_of_a61(states: dict[str, State], request_hash: int) -> None:
    expected: tuple[str | None, list[str]] | None = None
    owners = around(RING.find(request_hash))
    for owner in owners:
        if states[owner] is READY:
            expected = (f"{owner} is READY", [])
        elif states[owner] is IDLE:
            expected = (None, [owner])
        elif states[owner] is CONNECTING:
            expected = (None, [])
        if expected is not None:
            break
    else:
        expected = (f"{owners[0]} fails", [])
    connected: list[str] = []
    attributes = EMPTY_ATTRIBUTES.with_(REQUEST_HASH, request_hash)
    result = RingHashPicker(snapshot(states, connected)).pick(
        PickInfo("/s/m", attributes=attributes)
    )
    assert (details_of(result), connected) == expected


@given(all_states(), HASHES)
def test_random_picks_match_the_pseudo_code_of_a76(
    states: dict[str, State], random_hash: int
) -> None:
    has_requested = CONNECTING in states.values()
    expected: str | None = None
    expected_connected: list[str] = []
    owners = around(RING.find(random_hash))
    for owner in owners:
        if states[owner] is READY:
            expected = f"{owner} is READY"
            break
        if not has_requested and states[owner] is IDLE:
            expected_connected.append(owner)
            has_requested = True
    else:
        expected = None if has_requested else f"{owners[0]} fails"
    connected: list[str] = []
    picker = HeaderHashPicker(snapshot(states, connected), "user", lambda bits: random_hash)
    assert details_of(picker.pick(PickInfo("/s/m"))) == expected
    assert connected == expected_connected
    # The second pick uses the cached positions.
    assert details_of(picker.pick(PickInfo("/s/m"))) == expected


def test_random_hash_has_64_bits() -> None:
    requested_bits: list[int] = []

    def random_bits(bits: int) -> int:
        requested_bits.append(bits)
        return 0

    HeaderHashPicker(snapshot(dict.fromkeys(NAMES, READY), []), "user", random_bits).pick(
        PickInfo("/s/m")
    )
    assert requested_bits == [64]


def test_picker_has_the_status_of_the_snapshot() -> None:
    failing = snapshot(dict.fromkeys(NAMES, FAILURE), [])
    assert RingHashPicker(failing).status.is_ok
    why: Status = unavailable("no reachable endpoints")
    given_why = RingSnapshot(
        RING, {}, has_connecting=False, is_all_failing=False, connect=list[str]().append, status=why
    )
    assert RingHashPicker(given_why).status == why


@pytest.mark.parametrize("header", [False, True])
def test_picker_has_no_dict(header: bool) -> None:
    some = snapshot(dict.fromkeys(NAMES, READY), [])
    picker = HeaderHashPicker(some, "user", lambda bits: 0) if header else RingHashPicker(some)
    assert not hasattr(picker, "__dict__")


def test_positions_are_cyclic() -> None:
    places = RingPositions([2, 5], 8)
    assert [places.next_from(start) for start in range(8)] == [2, 2, 2, 5, 5, 5, 2, 2]
    assert [places.steps_from(start) for start in range(8)] == [2, 1, 0, 2, 1, 0, 4, 3]
    assert not RingPositions([], 8)
    assert RingPositions([], 8).steps_from(3) == 8


def test_header_values_are_joined_in_order() -> None:
    metadata = (("user", "x"), ("other", "1"), ("user", b"y"), ("user", ""))
    assert join_values(metadata, "user") == b"x,y,"
    assert join_values(metadata, "absent") == b""
