"""Unit tests of proxyless.lb.policies.ring_hash.picker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import EMPTY_ATTRIBUTES, State, Status
from proxyless.lb import QUEUE, REQUEST_HASH, Fail, FailPicker, Picker, PickInfo, PickResult
from proxyless.lb.pickers import QUEUE_PICKER
from proxyless.lb.policies.ring_hash.picker import (
    HeaderPicker,
    Places,
    RingPicker,
    Snapshot,
    View,
    join_values,
)
from proxyless.lb.policies.ring_hash.ring import Member, RingSize, build_ring
from tests.spec.lb_world import CONNECTING, FAILURE, IDLE, READY, unavailable

NAMES = "abcde"
RING = build_ring([Member(name, name) for name in NAMES], RingSize(15, 15))
STATES = st.sampled_from([IDLE, CONNECTING, READY, FAILURE])
HASHES = st.integers(0, 2**64 - 1)


class ReadyPicker(Picker):
    """Answers with a failure that says whose it is: there are no subchannels here."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def pick(self, info: PickInfo) -> PickResult:
        return Fail(unavailable(f"{self.name} is READY"))


def view(name: str, state: State) -> View:
    match state:
        case State.READY:
            return View(state, ReadyPicker(name))
        case State.TRANSIENT_FAILURE:
            return View(state, FailPicker(unavailable(f"{name} fails")))
        case _:
            return View(state, QUEUE_PICKER)


def snapshot(states: dict[str, State], woken: list[str]) -> Snapshot[str]:
    return Snapshot(
        RING,
        {name: view(name, state) for name, state in states.items() if state is not IDLE},
        has_connecting=CONNECTING in states.values(),
        is_all_failing=set(states.values()) == {FAILURE},
        wake=woken.append,
    )


def all_states() -> st.SearchStrategy[dict[str, State]]:
    return st.fixed_dictionaries(dict.fromkeys(NAMES, STATES))


def around(first: int) -> list[str]:
    """The owners of all entries from there on."""
    owners = [member.owner for member in RING.members]
    return owners[first:] + owners[:first]


def told(result: PickResult) -> str | None:
    if result is QUEUE:
        return None
    assert isinstance(result, Fail)
    return result.status.details


@given(all_states(), HASHES)
def test_picks_follow_the_pseudo_code_of_a61(states: dict[str, State], request_hash: int) -> None:
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
    woken: list[str] = []
    attributes = EMPTY_ATTRIBUTES.with_(REQUEST_HASH, request_hash)
    result = RingPicker(snapshot(states, woken)).pick(PickInfo("/s/m", attributes=attributes))
    assert (told(result), woken) == expected


@given(all_states(), HASHES)
def test_picks_by_chance_follow_the_pseudo_code_of_a76(
    states: dict[str, State], drawn: int
) -> None:
    has_requested = CONNECTING in states.values()
    expected: str | None = None
    expected_woken: list[str] = []
    owners = around(RING.find(drawn))
    for owner in owners:
        if states[owner] is READY:
            expected = f"{owner} is READY"
            break
        if not has_requested and states[owner] is IDLE:
            expected_woken.append(owner)
            has_requested = True
    else:
        expected = None if has_requested else f"{owners[0]} fails"
    woken: list[str] = []
    picker = HeaderPicker(snapshot(states, woken), "user", lambda bits: drawn)
    assert told(picker.pick(PickInfo("/s/m"))) == expected
    assert woken == expected_woken
    # The second one remembers where things are.
    assert told(picker.pick(PickInfo("/s/m"))) == expected


def test_a_random_hash_has_64_bits() -> None:
    asked: list[int] = []

    def draw(bits: int) -> int:
        asked.append(bits)
        return 0

    HeaderPicker(snapshot(dict.fromkeys(NAMES, READY), []), "user", draw).pick(PickInfo("/s/m"))
    assert asked == [64]


def test_the_status_is_that_of_the_snapshot() -> None:
    failing = snapshot(dict.fromkeys(NAMES, FAILURE), [])
    assert RingPicker(failing).status.is_ok
    why: Status = unavailable("no reachable endpoints")
    given_why = Snapshot(
        RING, {}, has_connecting=False, is_all_failing=False, wake=list[str]().append, status=why
    )
    assert RingPicker(given_why).status == why


@pytest.mark.parametrize("header", [False, True])
def test_pickers_have_no_dictionary(header: bool) -> None:
    some = snapshot(dict.fromkeys(NAMES, READY), [])
    picker = HeaderPicker(some, "user", lambda bits: 0) if header else RingPicker(some)
    assert not hasattr(picker, "__dict__")


def test_places_go_around() -> None:
    places = Places([2, 5], 8)
    assert [places.next_from(start) for start in range(8)] == [2, 2, 2, 5, 5, 5, 2, 2]
    assert [places.steps_from(start) for start in range(8)] == [2, 1, 0, 2, 1, 0, 4, 3]
    assert not Places([], 8)
    assert Places([], 8).steps_from(3) == 8


def test_values_are_joined_in_their_order() -> None:
    metadata = (("user", "x"), ("other", "1"), ("user", b"y"), ("user", ""))
    assert join_values(metadata, "user") == b"x,y,"
    assert join_values(metadata, "absent") == b""
