"""Unit tests of proxyless.observe.explain_filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxyless.base import Metadata, StatusCode
from proxyless.observe.explain_filters import explain_filter, find_aborts
from proxyless.xds.filters.fault import FaultAbort, FaultConfig, FaultDelay, Percentage
from proxyless.xds.filters.router import RouterConfig
from proxyless.xds.filters.stateful_session import SessionCookie, StatefulSessionConfig
from proxyless.xds.resources import HttpFilter
from proxyless.xds.resources.filter import FilterOverride
from proxyless.xds.view import FilterView

if TYPE_CHECKING:
    from proxyless.observe import Explanation

ALWAYS, HALF, NEVER = (Percentage(each, 100) for each in (100, 50, 0))
ABORT = "x-envoy-fault-abort-grpc-request"
ABORT_SHARE = "x-envoy-fault-abort-request-percentage"
DELAY = "x-envoy-fault-delay-request"


def explained(config: object, metadata: Metadata = ()) -> Explanation:
    return explain_filter(FilterView("mine", "pkg.Kind", config), metadata)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (RouterConfig(), "ends the chain"),
        (StatefulSessionConfig(SessionCookie("sid", "/")), 'keeps sessions by cookie "sid"'),
        (StatefulSessionConfig(), "does nothing to the RPC"),
        ("an application's", "an application's"),
        (FaultConfig(), "does nothing to the RPC"),
        (FaultConfig(abort=FaultAbort(StatusCode.ABORTED, NEVER)), "does nothing to the RPC"),
        (
            FaultConfig(FaultDelay(2.5, HALF), FaultAbort(StatusCode.UNAVAILABLE, ALWAYS)),
            "delays 50 % of RPCs by 2.5 s; aborts every RPC with UNAVAILABLE",
        ),
        (
            FaultConfig(FaultDelay(1.0, ALWAYS), max_active_faults=3),
            "delays every RPC by 1 s; as long as fewer than 3 RPCs are delayed",
        ),
        (FaultConfig(FaultDelay(1.0, ALWAYS), max_active_faults=0), "does nothing to the RPC"),
    ],
)
def test_filter_effect_is_described(config: object, text: str) -> None:
    assert explained(config).text == f'filter "mine" (Kind): {text}'


def test_fault_headers_of_the_rpc_are_used() -> None:
    config = FaultConfig(FaultDelay(None, ALWAYS), FaultAbort(None, HALF))
    assert explained(config).text.endswith("does nothing to the RPC")
    explanation = explained(config, ((ABORT, "10"), (ABORT_SHARE, "7"), (DELAY, "1500")))
    assert explanation.text.endswith("delays every RPC by 1.5 s; aborts 7 % of RPCs with ABORTED")


def test_override_is_shown() -> None:
    config = FaultConfig(abort=FaultAbort(StatusCode.ABORTED, ALWAYS))
    chain = HttpFilter("mine", "pkg.Kind", config)
    view = FilterView.of(chain, ({}, {"mine": FilterOverride(is_disabled=True)}))
    off = explain_filter(view, ())
    assert off.text == 'filter "mine" (Kind): off, overridden by the route'
    assert find_aborts([off]) == ("", "")


def test_first_filter_that_aborts_every_rpc_is_found() -> None:
    def fault(name: str, share: Percentage, limit: int | None = None) -> Explanation:
        config = FaultConfig(abort=FaultAbort(StatusCode.ABORTED, share), max_active_faults=limit)
        return explain_filter(FilterView(name, "pkg.Kind", config), ())

    quiet, half, limited = fault("a", NEVER), fault("b", HALF), fault("c", ALWAYS, 5)
    all_of_them, later = fault("d", ALWAYS), fault("e", ALWAYS)
    some = 'filter "b" aborts 50 % of RPCs with ABORTED'
    every = 'filter "d" aborts every RPC with ABORTED'
    assert find_aborts([quiet, half, limited, all_of_them, later]) == (every, some)
    assert find_aborts([quiet, limited]) == ("", 'filter "c" aborts every RPC with ABORTED')
    assert find_aborts([quiet]) == ("", "")
