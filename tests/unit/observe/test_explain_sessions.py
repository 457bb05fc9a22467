"""Unit tests of proxyless.observe.explain_sessions."""

from __future__ import annotations

import pytest

from proxyless.base import Locality, parse_address
from proxyless.lb import LbNode
from proxyless.observe.explain_lb import explain_pick
from proxyless.observe.explain_sessions import (
    explain_session,
    find_leaf,
    override_pick,
    stays,
)
from proxyless.xds.config import ClusterConfig
from proxyless.xds.resources import EndpointInfo, HealthStatus, LocalityEndpoints
from proxyless.xds.view import Session
from tests.worlds.xds_resources import cluster, endpoints, prioritized

HERE = "127.0.0.1:1"
ENTRY = ClusterConfig("a", cluster("a"), endpoints("a", HERE))
SESSION = Session("sid", (HERE,), "a")


def test_policies_pick_without_a_cookie() -> None:
    explanation = explain_session(Session("sid"), ENTRY, None)
    assert explanation.text == 'session: the RPC has no cookie "sid", so the policies pick'


def test_host_is_used_without_a_channel_if_it_is_listed() -> None:
    assert explain_session(SESSION, ENTRY, None).text == (
        f"session lives at {HERE}, which is UNKNOWN: it stays there"
    )
    gone = Session("sid", ("127.0.0.1:2",), "a")
    explanation = explain_session(gone, ENTRY, None).text
    assert explanation.endswith(
        "which is not listed: sessions do not stay there, so the policies pick"
    )


@pytest.mark.parametrize("is_usable", [False, True])
def test_draining_host_keeps_sessions_if_the_cluster_allows_it(
    is_usable: bool,
) -> None:
    usable = {HealthStatus.HEALTHY, *([HealthStatus.DRAINING] if is_usable else [])}
    made = cluster("a", override_host_status=frozenset(usable))
    info = EndpointInfo((parse_address(HERE),), 1, HealthStatus.DRAINING)
    drained = prioritized("a", [LocalityEndpoints(Locality(), 1, (info,))])
    explanation = explain_session(SESSION, ClusterConfig("a", made, drained), None)
    assert stays(explanation) is is_usable
    assert explanation.text.startswith(f"session lives at {HERE}, which is DRAINING: ")
    assert explanation.text.endswith("it stays there") is is_usable


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        ("READY", "the session's host is READY"),
        ("IDLE", "the session's host is IDLE and is connected"),
        ("CONNECTING", "the session's host is CONNECTING"),
        ("TRANSIENT_FAILURE", "no host of the session is usable: the child picks"),
        ("", "the session's host has no subchannel and gets one"),
    ],
)
def test_state_of_the_host_decides(state: str, verdict: str) -> None:
    node = LbNode("cluster:a", "cds", "READY", "", (LbNode(HERE, "", state),))
    assert explain_session(SESSION, ENTRY, node).text == f"session lives at {HERE}: {verdict}"


def below(*hosts: LbNode, problem: str = "", breaker: str = "") -> LbNode:
    """Policies of a cluster with sessions."""
    state = "TRANSIENT_FAILURE" if problem else "READY"
    chooser = LbNode("", "xds_override_host_experimental", state, "", hosts, problem)
    limit = LbNode(
        "", "xds_cluster_impl_experimental", state, "", (chooser,), breaker, barrier=breaker
    )
    # The parents are in TRANSIENT_FAILURE, with or without the barrier.
    return LbNode("cluster:a", "cds_experimental", state, "", (limit,), problem or breaker)


@pytest.mark.parametrize(
    ("node", "text", "problem"),
    [
        (
            below(LbNode(HERE, "", "READY"), problem="all fail"),
            f"now: goes to {HERE}, where its session lives",
            "",
        ),
        (
            below(LbNode(HERE, "", "CONNECTING"), problem="all fail"),
            "now: waits: the session's host is CONNECTING",
            "",
        ),
        (
            below(LbNode(HERE, "", "TRANSIENT_FAILURE"), problem="all fail"),
            "now: fails: all fail",
            "all fail",
        ),
        (
            below(LbNode(HERE, "", "READY"), breaker="breaker open"),
            "now: fails: breaker open",
            "breaker open",
        ),
        (
            below(LbNode(HERE, "", "READY"), problem="all fail", breaker="breaker open"),
            "now: fails: breaker open; without that: all fail",
            "breaker open; without that: all fail",
        ),
    ],
)
def test_session_decides_unless_the_cluster_has_a_barrier(
    node: LbNode, text: str, problem: str
) -> None:
    explanation = explain_session(SESSION, ENTRY, node)
    pick = override_pick(explain_pick(node), explanation, node)
    assert (pick.text, pick.problem) == (text, problem)


def test_leaf_of_an_aggregate_is_the_one_in_use() -> None:
    leaves = [ClusterConfig(name, cluster(name), endpoints(name, HERE)) for name in "xy"]
    result = (ClusterConfig("a", cluster("a"), None), *leaves)
    resting = LbNode("x", "cds_experimental", "READY", in_use=False)
    node = LbNode("cluster:a", "p", "READY", "", (resting, LbNode("y", "p", "READY")))
    assert find_leaf(result, node) is leaves[1]
    assert find_leaf(result, None) is leaves[0]
    assert find_leaf((ENTRY,), node) is ENTRY
    assert find_leaf(None, node) is None
