"""Unit tests of proxyless.xds.view.sessions."""

from __future__ import annotations

import pytest

from proxyless.base import State
from proxyless.xds.config import ClusterConfig
from proxyless.xds.filters.session_filter import SessionEndpoint, format_cookie_value
from proxyless.xds.filters.stateful_session import SessionCookie, StatefulSessionConfig
from proxyless.xds.resources import HealthStatus
from proxyless.xds.view import Session, Verdict
from proxyless.xds.view.sessions import SessionHost, find_session
from tests.worlds.xds_resources import cluster, endpoints

HERE, THERE = "127.0.0.1:1", "127.0.0.1:2"
CONFIG = StatefulSessionConfig(SessionCookie("sid", "/shop"))


def test_cookie_is_read_when_the_path_matches() -> None:
    metadata = (("cookie", f"other=1; sid={format_cookie_value(SessionEndpoint((HERE,), 'a'))}"),)
    assert find_session([object(), CONFIG], "/shop/Add", metadata) == Session("sid", (HERE,), "a")
    assert find_session([CONFIG], "/shop/Add", ()) == Session("sid")
    assert find_session([CONFIG], "/bank/Add", metadata) is None
    assert find_session([StatefulSessionConfig()], "/shop/Add", metadata) is None


@pytest.mark.parametrize(
    ("state", "verdict", "address"),
    [
        (State.READY, Verdict.USE, HERE),
        (State.IDLE, Verdict.CONNECT, HERE),
        (State.CONNECTING, Verdict.WAIT, ""),
        (State.TRANSIENT_FAILURE, Verdict.DELEGATE, ""),
        (None, Verdict.CREATE, HERE),
    ],
)
def test_host_is_chosen_by_the_state_of_its_subchannel(
    state: State | None, verdict: Verdict, address: str
) -> None:
    entry = ClusterConfig("a", cluster("a"), endpoints("a", HERE))
    states = {} if state is None else {HERE: state}
    chosen = Session("sid", (THERE, HERE), "a").choose_host(entry, states)
    assert chosen == SessionHost(verdict, address, HealthStatus.UNKNOWN)


def test_no_host_is_chosen_when_the_cluster_has_none_of_the_session() -> None:
    nothing = SessionHost(Verdict.DELEGATE, "", None)
    listed = ClusterConfig("a", cluster("a"), endpoints("a", THERE))
    for entry in (None, listed, ClusterConfig("a", cluster("a"))):
        assert Session("sid", (HERE,), "a").choose_host(entry, {}) == nothing
