"""Unit tests of proxyless.observe.explain_lb."""

from __future__ import annotations

from dataclasses import replace

from proxyless.lb import LbNode
from proxyless.observe.explain_lb import (
    ADDRESSES_SHOWN_MAX,
    CHILDREN_SHOWN_MAX,
    explain_node,
    explain_pick,
    why_waiting,
)


def connection(number: int, state: str = "READY") -> LbNode:
    name = f"10.0.0.{number}:80"
    return LbNode(name, "pick_first", state, "", (LbNode(name, "", state),))


def spread(state: str, *children: LbNode) -> LbNode:
    return LbNode("", "round_robin", state, "", children)


def test_ready_policy_picks_ready_addresses() -> None:
    pick = explain_pick(spread("READY", connection(1), connection(2, "CONNECTING")))
    assert pick.text == "now: goes to 10.0.0.1:80"
    assert pick.facts == {"result": "complete", "addresses": ["10.0.0.1:80"]}
    assert not pick.problem


def test_ring_may_pick_unconnected_endpoints() -> None:
    ring = replace(
        spread("READY", connection(1), connection(2, "IDLE"), connection(3, "CONNECTING")),
        policy="ring_hash_experimental",
    )
    pick = explain_pick(LbNode("a", "cds_experimental", "READY", children=(ring,)))
    assert pick.text == (
        "now: goes to 10.0.0.1:80, or by its hash waits for one of 2 more to connect"
    )


def test_many_addresses_are_counted() -> None:
    shown = [connection(number) for number in range(ADDRESSES_SHOWN_MAX + 2)]
    assert explain_pick(spread("READY", *shown)).text.endswith("10.0.0.4:80 or 2 more")


def test_custom_policy_without_addresses_chooses_itself() -> None:
    pick = explain_pick(LbNode("", "mine", "READY"))
    assert pick.text == "now: goes to what the policy chooses"


def test_problem_of_the_policy_is_the_problem_of_the_pick() -> None:
    pick = explain_pick(LbNode("", "p", "READY", problem="circuit breaker open"))
    assert (pick.text, pick.problem) == ("now: fails: circuit breaker open", "circuit breaker open")


def test_pick_waits_without_a_policy_or_a_connection() -> None:
    assert explain_pick(None).facts["result"] == "queue"
    assert explain_pick(LbNode("", "p", "IDLE")).text == (
        "now: waits: nothing is connected, an RPC changes that"
    )
    assert explain_pick(LbNode("", "mine", "CONNECTING")).text == "now: waits: CONNECTING"


def test_reason_for_waiting_has_the_priority_and_connections() -> None:
    used = replace(spread("CONNECTING", connection(1, "CONNECTING")), name="p0", detail="7 s left")
    other = replace(spread("READY", connection(2)), name="p1", in_use=False)
    tree = LbNode("", "priority_experimental", "CONNECTING", "uses p0", (used, other))
    assert why_waiting(tree) == "uses p0; 7 s left; 10.0.0.1:80 is CONNECTING"


def test_policies_with_one_child_share_a_line() -> None:
    inner = spread("READY", connection(1), connection(2))
    tree = LbNode("cluster:a", "cds", "READY", "", (LbNode("", "od", "READY", "off", (inner,)),))
    explanation = explain_node(tree)
    assert explanation.text == "cluster:a: READY: cds > od (off) > round_robin"
    assert [part.text for part in explanation.parts] == [
        "10.0.0.1:80: READY: pick_first",
        "10.0.0.2:80: READY: pick_first",
    ]


def test_line_has_an_error_once_and_other_states() -> None:
    leaf = LbNode("a", "", "TRANSIENT_FAILURE", "refused")
    first = LbNode("a", "pick_first", "TRANSIENT_FAILURE", "last error: refused", (leaf,))
    assert explain_node(first).text == "a: TRANSIENT_FAILURE: pick_first (last error: refused)"
    trying = replace(first, children=(LbNode("a", "", "CONNECTING"),))
    assert explain_node(trying).text.endswith("> connection (CONNECTING)")


def test_unused_or_missing_child_is_marked() -> None:
    assert explain_node(LbNode("p1", "rr", "", "", in_use=False)).text == (
        "p1: not there, not in use: rr"
    )


def test_children_that_are_not_ready_are_shown_first() -> None:
    many = [connection(number) for number in range(CHILDREN_SHOWN_MAX + 5)]
    many.append(connection(99, "TRANSIENT_FAILURE"))
    explanation = explain_node(spread("READY", *many))
    assert explanation.parts[0].facts["name"] == "10.0.0.99:80"
    assert explanation.parts[-1].text == "and 6 more"
    assert len(explanation.parts) == CHILDREN_SHOWN_MAX + 1
