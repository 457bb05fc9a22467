"""Unit tests of proxyless.xds.view.routing."""

from __future__ import annotations

import pytest

from proxyless.base import StatusCode
from proxyless.xds.config import XdsConfig
from proxyless.xds.filters.fault import FaultAbort, FaultConfig, Percentage
from proxyless.xds.filters.session_filter import SessionEndpoint, format_cookie_value
from proxyless.xds.filters.stateful_session import SessionCookie, StatefulSessionConfig
from proxyless.xds.resources import HttpFilter, NonForwardingAction, Route, WeightedCluster
from proxyless.xds.resources.filter import FilterOverride
from proxyless.xds.resources.matcher import HeaderMatcher, PathMatcher, PresentMatcher
from proxyless.xds.view import FilterView, RoutingView, Session, cluster_key, plugin_key
from tests.worlds.xds_resources import action, host, hosts, listener

PATH = "/pkg.Service/Method"
PREFIX = PathMatcher("prefix", "/pkg.Service/")
ABORT_ALL = FaultConfig(abort=FaultAbort(StatusCode.ABORTED, Percentage(100, 100)))


def view_of(*routes: Route, filters: tuple[HttpFilter, ...] = ()) -> RoutingView:
    chosen = host(*routes, name="vh")
    return RoutingView(XdsConfig(listener(http_filters=filters), hosts(chosen), chosen, {}))


def test_route_has_mismatch_when_path_or_header_differs() -> None:
    header = HeaderMatcher("k", PresentMatcher(True))
    (entry,) = view_of(Route(path=PREFIX, headers=(header,), action=action("a"))).routes
    assert entry.find_mismatch("/x/y", (("k", "1"),)) is PREFIX
    assert entry.find_mismatch(PATH, ()) is header
    assert entry.find_mismatch(PATH, (("k", "1"),)) is None


def test_errors_name_the_virtual_host_and_the_route() -> None:
    redirect = NonForwardingAction("redirect")
    route = Route(path=PREFIX, action=redirect, name="away")
    view = view_of(route)
    no_route = 'no route in virtual host "vh" matches "/x/y"'
    assert view.describe_no_route("/x/y").endswith(no_route)
    not_forwarding = 'route "away" has the action redirect, wanted route'
    assert view.describe_not_forwarding(route, redirect).endswith(not_forwarding)


def test_timeout_is_the_default_of_the_view_when_no_field_is_set() -> None:
    view = RoutingView(view_of().config, 2.0)
    assert view.timeout(action("a")).timeout_s == 2.0
    assert view.retry_policy(action("a")) is None


@pytest.mark.parametrize(
    ("layers", "override", "config"),
    [
        ((), None, ABORT_ALL),
        (({},), None, ABORT_ALL),
        (({"f": FilterOverride("host's")}, {}), "virtual host", "host's"),
        (({"f": FilterOverride("host's")}, {"f": FilterOverride()}), "route", ABORT_ALL),
        (({}, {}, {"f": FilterOverride(is_disabled=True)}), "weighted cluster", None),
    ],
)
def test_filter_has_config_of_the_most_specific_layer(
    layers: tuple[dict[str, FilterOverride], ...], override: str | None, config: object
) -> None:
    view = FilterView.of(HttpFilter("f", "pkg.Kind", ABORT_ALL), layers)
    assert view == FilterView("f", "pkg.Kind", config, override)


def test_filter_is_off_when_the_listener_disables_it() -> None:
    view = FilterView.of(HttpFilter("f", "pkg.Kind", ABORT_ALL, is_disabled=True), ())
    assert view.describe(()) == "off"
    assert not view.aborts_every_rpc(())
    assert view.describe_abort(()) == ""


def test_filters_of_a_cluster_include_its_overrides() -> None:
    view = view_of(filters=(HttpFilter("f", "pkg.Kind", ABORT_ALL),))
    route = Route(path=PREFIX, action=action("a"))
    cluster = WeightedCluster("a", 1, {"f": FilterOverride("cluster's")})
    assert [each.config for each in view.filters(route)] == [ABORT_ALL]
    assert [each.config for each in view.filters(route, cluster)] == ["cluster's"]


def test_session_is_that_of_the_override_when_the_route_has_one() -> None:
    kept = StatefulSessionConfig(SessionCookie("sid"))
    view = view_of(filters=(HttpFilter("f", "pkg.Kind", kept),))
    metadata = (("cookie", f"sid={format_cookie_value(SessionEndpoint(('1.2.3.4:5',), 'a'))}"),)
    route = Route(path=PREFIX, action=action("a"))
    assert view.session(route, PATH, metadata) == Session("sid", ("1.2.3.4:5",), "a")
    off = Route(path=PREFIX, action=action("a"), filter_overrides={"f": FilterOverride(None, True)})
    assert view.session(off, PATH, metadata) is None


def test_cluster_and_plugin_of_one_name_have_different_keys() -> None:
    assert (cluster_key("a"), plugin_key("a")) == ("cluster:a", "cluster_specifier_plugin:a")
