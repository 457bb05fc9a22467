"""Unit tests of proxyless.observe.live.messages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from proxyless.base import State
from proxyless.lb import LbNode
from proxyless.observe.live import messages
from proxyless.observe.live.messages import SnapshotEncoder, encode_event, live_class
from proxyless.observe.live.views import CountsView, LiveChannel

if TYPE_CHECKING:
    import pytest

CHANNEL = LiveChannel(
    7, "dns:///api", State.READY, "", 3, CountsView(5, 3, 1, 1, 1e9), 0, {}, None, {}, None, ()
)


def fan(count: int) -> LbNode:
    leaves = tuple(LbNode(f"10.0.0.{number}:80", "", "READY") for number in range(count))
    return LbNode("dns:///api", "round_robin", "READY", children=leaves)


def encode(channel: LiveChannel, *, has_trees: bool = True) -> object:
    into = live_class("Channel")()
    SnapshotEncoder(has_trees=has_trees).add_channel(channel, into)
    return into


def test_channel_has_its_counts_and_state() -> None:
    found: object = encode(CHANNEL)
    expected = live_class("Channel")(
        id=7,
        target="dns:///api",
        state="READY",
        config_generation=3,
        rpcs={"started": 5, "succeeded": 3, "failed": 1, "in_flight": 1,
              "last_started": {"seconds": 10**9}},
    )  # fmt: skip
    assert found == expected


def test_texts_of_peers_are_escaped_and_cut() -> None:
    found = encode(replace(CHANNEL, problem="\x1b[31m" + "x" * 5000))
    text = found.problem  # type: ignore[attr-defined]
    assert text.startswith(r"\x1b[31mxxx")
    assert len(text) == 300
    assert text.isprintable()


def test_endpoints_and_nodes_past_the_limit_are_left_out_with_a_flag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "ENDPOINTS_MAX", 2)
    monkeypatch.setattr(messages, "NODES_MAX", 2)
    encoder, whole = SnapshotEncoder(has_trees=True), live_class("Snapshot")()
    for _ in range(2):
        encoder.add_channel(replace(CHANNEL, tree=fan(3)), whole.channels.add())
    first, second = whole.channels
    assert (len(first.clusters[0].endpoints), first.clusters[0].endpoints_truncated) == (2, True)
    assert first.clusters[0].endpoints_total == 3
    # The limits are those of the message.
    assert (len(second.clusters[0].endpoints), second.clusters[0].endpoints_truncated) == (0, True)
    assert (len(first.lb_tree.children), first.lb_tree_truncated) == (1, True)


def test_deep_tree_is_cut() -> None:
    node = LbNode("leaf")
    for _ in range(200):
        node = LbNode("", "delegate", "READY", children=(node,))
    found = encode(replace(CHANNEL, tree=node))
    assert found.lb_tree_truncated  # type: ignore[attr-defined]


def test_tree_is_left_out_on_request() -> None:
    found = encode(replace(CHANNEL, tree=fan(1)), has_trees=False)
    assert not found.HasField("lb_tree")  # type: ignore[attr-defined]
    assert len(found.clusters) == 1  # type: ignore[attr-defined]


def test_event_has_its_fields_as_texts() -> None:
    fields = {
        "status": {"code": "UNAVAILABLE", "details": "down"},
        "names": ["a", "b"],
        "address": None,
        "took_s": 0.5,
    }
    event = live_class("Event")()
    encode_event({"number": 4, "time": 1.5, "event": "rpc", "fields": fields}, event)
    assert (event.number, event.name, event.time.ToMilliseconds()) == (4, "rpc", 1500)
    assert dict(event.fields) == {
        "status": "UNAVAILABLE: down",
        "names": "a, b",
        "address": "",
        "took_s": "0.5",
    }
