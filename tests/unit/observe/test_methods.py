"""Unit tests of proxyless.observe.methods."""

from __future__ import annotations

from proxyless.controlplane import listener, match_header, route, route_config
from proxyless.observe.methods import METHODS_MAX, sample_methods


def test_each_path_has_a_method() -> None:
    config = route_config(
        "r",
        route(path="/a.B/C", cluster="x"),
        route("/a.B/", cluster="x"),
        route("/a.", cluster="x"),
        route("/a.B/Get", cluster="x"),
        match_header(route("/beta.B/", cluster="x"), "ring", "exact", "beta"),
        route(cluster="x"),
    )
    wanted = ["/a.B/C", "/a.B/Method", "/a./Method", "/a.B/Get", "/example.Service/Method"]
    assert sample_methods([config]) == wanted
    assert sample_methods([listener("l", config), listener("m", "r")]) == wanted


def test_mesh_without_paths_has_one_method() -> None:
    regex = route(cluster="x")
    regex.match.safe_regex.regex = "/a.*"
    assert sample_methods([route_config("r", regex)]) == ["/example.Service/Method"]


def test_number_of_methods_is_bounded() -> None:
    routes = [route(path=f"/a.B/{number}", cluster="x") for number in range(METHODS_MAX + 1)]
    assert len(sample_methods([route_config("r", *routes)])) == METHODS_MAX
