"""Unit tests of the ADS protocol state."""

from proxyless.xds.bootstrap import Node
from proxyless.xds.client.ads import NACK_TEXT_MAX, AdsState, AdsVariant, join_errors
from proxyless.xds.client.codec import AnyRequest, DiscoveryRequest
from proxyless.xds.client.response import Outcome

NODE = Node("me")


def requests(state: AdsVariant) -> list[AnyRequest]:
    return [change.request for change in state.take_changes()]


def answered(*, version: str, nonce: str, error: str = "", is_used: bool = True) -> Outcome:
    """Outcome of a response of the type T."""
    return Outcome("T", version, nonce, (), (), int(is_used), int(bool(error)), error)


def test_state_has_no_requests_when_there_is_no_stream() -> None:
    state = AdsState(NODE)
    state.subscribe("T", "x")
    assert state.take_changes() == []
    state.open_stream()
    assert requests(state) == [DiscoveryRequest("T", ("x",), node=NODE)]
    assert state.take_changes() == []


def test_changes_have_the_names_that_are_new_on_the_stream() -> None:
    state = AdsState(NODE)
    state.subscribe("T", "x")
    state.open_stream()
    assert [change.added for change in state.take_changes()] == [["x"]]
    state.subscribe("T", "y")
    state.subscribe("T", "y")
    assert [change.added for change in state.take_changes()] == [["y"]]
    state.unsubscribe("T", "x")
    (change,) = state.take_changes()
    assert (change.added, change.request.resource_names) == ([], ("y",))
    state.close_stream()
    state.open_stream()
    assert [change.added for change in state.take_changes()] == [["y"]]


def test_name_is_not_new_when_it_is_removed_in_the_same_turn() -> None:
    state = AdsState(NODE)
    state.open_stream()
    state.subscribe("T", "x")
    state.unsubscribe("T", "x")
    assert state.take_changes() == []
    state.subscribe("T", "y")
    state.subscribe("T", "x")
    state.unsubscribe("T", "x")
    assert [change.added for change in state.take_changes()] == [["y"]]


def test_type_is_not_requested_on_a_new_stream_when_it_has_no_names() -> None:
    state = AdsState(NODE)
    state.open_stream()
    state.subscribe("T", "x")
    state.subscribe("U", "u")
    state.take_changes()
    state.unsubscribe("T", "x")
    assert [each.resource_names for each in requests(state)] == [()]
    state.open_stream()
    assert [each.type_url for each in requests(state)] == ["U"]
    assert not state.is_expected("T")


def test_answers_have_the_accepted_version() -> None:
    state = AdsState(NODE)
    state.subscribe("T", "x")
    state.open_stream()
    assert not state.is_expected("T")
    state.take_changes()
    assert state.is_expected("T")
    ack = state.answer(answered(version="1", nonce="a"))
    assert ack == DiscoveryRequest("T", ("x",), "1", "a")
    nack = state.answer(answered(version="2", nonce="b", error="bad", is_used=False))
    assert nack == DiscoveryRequest("T", ("x",), "1", "b", "bad")
    partial = state.answer(answered(version="3", nonce="c", error="bad", is_used=True))
    assert partial == DiscoveryRequest("T", ("x",), "3", "c", "bad")
    state.open_stream()
    assert requests(state) == [DiscoveryRequest("T", ("x",), "3", "", node=NODE)]


def test_last_late_answer_is_part_of_the_next_changes() -> None:
    state = AdsState(NODE)
    state.subscribe("T", "x")
    state.open_stream()
    state.take_changes()
    state.answer_later(answered(version="1", nonce="n1", error="bad", is_used=False))
    state.answer_later(answered(version="2", nonce="n2"))
    state.answer_later(answered(version="3", nonce="n3", error="worse", is_used=False))
    (change,) = state.take_changes()
    request = change.request
    assert (request.version, request.nonce, request.error) == ("2", "n3", "worse")
    assert state.take_changes() == []
    state.answer_later(answered(version="4", nonce="n4", error="bad"))
    state.open_stream()
    (change,) = state.take_changes()
    assert (change.request.nonce, change.request.error) == ("", "")


def test_subscriptions_are_all_subscribed_names() -> None:
    state = AdsState(NODE)
    state.subscribe("T", "x")
    state.subscribe("U", "x")
    state.subscribe("T", "y")
    state.unsubscribe("T", "x")
    state.unsubscribe("V", "x")
    assert list(state.subscriptions) == [("T", "y"), ("U", "x")]


def test_errors_are_joined_up_to_a_limit() -> None:
    assert join_errors(["one", "two"]) == "one; two"
    many = ["e" * 100] * 1000
    joined = join_errors(many)
    assert len(joined) < NACK_TEXT_MAX + 100
    count = joined.count("eee; ")
    assert joined.endswith(f"; and {1000 - count} more errors")


def test_each_error_is_one_line_of_bounded_length() -> None:
    assert join_errors(["a\nb", "c\x1b"]) == r"a b; c\x1b"
    cut = "... (5000 characters)"
    assert join_errors(["x" * 5_000]) == f"{'x' * (4_096 - len(cut))}{cut}"
