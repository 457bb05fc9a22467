"""Unit tests of the incremental ADS protocol state."""

import pytest

from proxyless.xds.bootstrap import Node
from proxyless.xds.client.codec import DeltaRequest
from proxyless.xds.client.delta import DeltaState
from proxyless.xds.client.response import Outcome

NODE = Node("me")


def opened(*names: str) -> DeltaState:
    """A state with a stream and these subscriptions, which were sent."""
    state = DeltaState(NODE)
    for name in names:
        state.subscribe("T", name)
    state.open_stream(find_held)
    state.take_changes()
    return state


def find_held(type_url: str, name: str) -> bool | None:
    """Other names than these have no resource."""
    return {"first": True, "kept": True, "removed": True, "replaced": False}.get(name)


def answered(nonce: str, error: str = "", **versions: str) -> Outcome:
    """Outcome of a response of the type T."""
    return Outcome("T", "", nonce, (), (), 1, 0, error, versions)


def requests(state: DeltaState) -> list[DeltaRequest]:
    return [change.request for change in state.take_changes()]  # type: ignore[misc]


def test_first_request_has_the_node_and_all_names() -> None:
    state = DeltaState(NODE)
    state.subscribe("T", "x")
    state.subscribe("T", "y")
    state.subscribe("U", "u")
    assert state.take_changes() == []
    state.open_stream(find_held)
    assert requests(state) == [
        DeltaRequest("T", ("x", "y"), node=NODE),
        DeltaRequest("U", ("u",)),
    ]
    assert state.take_changes() == []


def test_later_requests_have_only_changes_and_no_nonce() -> None:
    state = opened("x", "y")
    state.answer(answered("n1", x="1"))
    state.subscribe("T", "z")
    state.unsubscribe("T", "x")
    (change,) = state.take_changes()
    assert change.request == DeltaRequest("T", ("z",), ("x",))
    assert change.added == ("z",)


def test_name_is_not_sent_when_it_is_added_and_removed_in_one_turn() -> None:
    state = opened("x")
    state.subscribe("T", "y")
    state.unsubscribe("T", "y")
    assert state.take_changes() == []


def test_name_is_removed_and_subscribed_again_when_both_happen_in_one_turn() -> None:
    """go-control-plane does not send a resource again because of the subscription alone."""
    state = opened("x", "y")
    state.unsubscribe("T", "x")
    state.unsubscribe("T", "y")
    state.subscribe("T", "x")
    state.answer_later(answered("n1"))
    assert requests(state) == [
        DeltaRequest("T", (), ("x", "y"), nonce="n1"),
        DeltaRequest("T", ("x",)),
    ]
    assert state.take_changes() == []
    state.unsubscribe("T", "x")
    assert requests(state) == [DeltaRequest("T", (), ("x",))]


@pytest.mark.spec("DX-03")
def test_type_is_never_requested_without_names() -> None:
    """An empty first request would subscribe to the wildcard."""
    state = opened("x")
    state.unsubscribe("T", "x")
    assert requests(state) == [DeltaRequest("T", (), ("x",))]
    state.close_stream()
    state.open_stream(find_held)
    assert state.take_changes() == []
    assert not state.is_expected("T")


def test_answer_has_the_nonce_and_the_error() -> None:
    state = opened("x")
    assert state.is_expected("T")
    assert state.answer(answered("n1", x="1")) == DeltaRequest("T", nonce="n1")
    nack = state.answer(answered("n2", "bad"))
    assert nack == DeltaRequest("T", nonce="n2", error="bad")


def test_new_stream_starts_with_the_versions_of_resources_in_use_but_for_the_first() -> None:
    """Empty versions: servers do not remove a resource that a client does not name."""
    state = opened("unknown", "first", "kept", "removed", "replaced", "left", "rejected")
    versions = {"first": "0", "kept": "1", "removed": "2", "replaced": "3", "left": "4"}
    state.answer(answered("n1", **versions, unwatched="5"))
    state.answer(answered("n2", kept="6", removed=""))
    state.unsubscribe("T", "left")
    state.close_stream()
    state.open_stream(find_held)
    names = ("unknown", "first", "kept", "removed", "replaced", "rejected")
    initial = {"first": "", "kept": "6", "removed": "", "replaced": ""}
    assert requests(state) == [DeltaRequest("T", names, (), initial, node=NODE)]
    state.subscribe("T", "left")
    assert requests(state) == [DeltaRequest("T", ("left",))]


def test_version_is_not_sent_when_its_name_is_removed_before_the_first_request() -> None:
    state = opened("first", "kept")
    state.answer(answered("n1", first="0", kept="1"))
    state.open_stream(find_held)
    state.unsubscribe("T", "kept")
    assert requests(state) == [DeltaRequest("T", ("first",), (), {"first": ""}, node=NODE)]


def test_versions_count_when_their_stream_has_ended() -> None:
    state = opened("first", "kept")
    state.close_stream()
    state.accept(answered("n1", kept="7"))
    state.open_stream(find_held)
    initial = {"first": "", "kept": "7"}
    assert requests(state) == [DeltaRequest("T", ("first", "kept"), (), initial, node=NODE)]


def test_last_late_answer_is_part_of_the_next_changes() -> None:
    state = opened("first", "kept")
    state.answer_later(answered("n1", kept="1"))
    state.answer_later(answered("n2", "bad"))
    state.subscribe("T", "y")
    assert requests(state) == [DeltaRequest("T", ("y",), nonce="n2", error="bad")]
    state.answer_later(answered("n3"))
    state.open_stream(find_held)
    names, initial = ("first", "kept", "y"), {"first": "", "kept": "1"}
    assert requests(state) == [DeltaRequest("T", names, (), initial, node=NODE)]


def test_subscriptions_are_all_subscribed_names() -> None:
    state = opened("x", "y")
    state.subscribe("U", "u")
    state.unsubscribe("T", "x")
    state.unsubscribe("V", "v")
    assert list(state.subscriptions) == [("T", "y"), ("U", "u")]
