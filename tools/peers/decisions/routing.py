"""Cases: virtual hosts, routes, and matchers."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from proxyless.controlplane import (
    listener,
    match_header,
    route,
    route_config,
    virtual_host,
)
from tools.peers.decisions.case import case
from tools.peers.decisions.mesh import SERVICE, WHERE

if TYPE_CHECKING:
    from proxyless.protos import Proto
    from tools.peers.decisions.mesh import Mesh

# Of 1,000 RPCs with the share 0.3: more than five standard deviations.
_SHARE_COUNT: Final = 1_000
_SHARE_SPREAD: Final = 75


@case("domains: exact, then suffix, then prefix, then `*`", "a, b, c, a", "A31")
async def domain_order(mesh: Mesh) -> str:
    await mesh.serve(
        virtual_host(route(cluster="a"), domains=["*"]),
        virtual_host(route(cluster="c"), domains=["one.*"]),
        virtual_host(route(cluster="b"), domains=["*.example"]),
        virtual_host(route(cluster="a"), domains=["one.example"]),
    )
    names = ("one.example", "two.example", "one.other", "other")
    await mesh.put(*(listener(name, SERVICE) for name in names))
    return ", ".join([await mesh.results(service=name) for name in names])


@case("domains: the longer suffix, and the longer prefix", "b, b", "A31")
async def domain_length(mesh: Mesh) -> str:
    await mesh.serve(
        virtual_host(route(cluster="a"), domains=["*.example", "one.*"]),
        virtual_host(route(cluster="b"), domains=["*.shop.example", "one.two.*"]),
    )
    names = ("one.shop.example", "one.two.three")
    await mesh.put(*(listener(name, SERVICE) for name in names))
    return ", ".join([await mesh.results(service=name) for name in names])


@case("domains: upper case in the config", "a", "A31")
async def domain_case(mesh: Mesh) -> str:
    await mesh.serve(virtual_host(route(cluster="a"), domains=["SHOP.Example"]))
    return await mesh.results()


@case("domains: the same one in two virtual hosts", "a", "A31")
async def domain_twice(mesh: Mesh) -> str:
    await mesh.serve(
        virtual_host(route(cluster="a"), domains=[SERVICE], name="first"),
        virtual_host(route(cluster="b"), domains=[SERVICE], name="second"),
    )
    return await mesh.verdict()


@case("no virtual host for the target", "UNAVAILABLE", "A31")
async def no_virtual_host(mesh: Mesh) -> str:
    await mesh.serve(virtual_host(route(cluster="a"), domains=["other.example"]))
    return await mesh.verdict()


@case("no route matches", "UNAVAILABLE", "A31")
async def no_route(mesh: Mesh) -> str:
    await mesh.serve(route("/other.Service/", cluster="a"))
    return await mesh.verdict()


@case("path with `case_sensitive: false`", "a", "A31")
async def path_case(mesh: Mesh) -> str:
    insensitive = route(path=WHERE.upper(), cluster="a")
    insensitive.match.case_sensitive.value = False
    await mesh.serve(insensitive, route(cluster="b"))
    return await mesh.results()


@case("regular expression must match the whole path", "b", "A31")
async def path_regex(mesh: Mesh) -> str:
    partial = route(cluster="a")
    partial.match.safe_regex.regex = "/peers.Echo/Wh"
    await mesh.serve(partial, route(cluster="b"))
    return await mesh.results()


@case("route with `query_parameters`", "b", "A31: ignored")
async def query_parameters(mesh: Mesh) -> str:
    first = route(cluster="a")
    first.match.query_parameters.add(name="x").present_match = True
    await mesh.serve(first, route(cluster="b"))
    return await mesh.results()


@case("route with `cluster_header`", "b", "A31: ignored")
async def cluster_header(mesh: Mesh) -> str:
    first = route(cluster="a")
    first.route.cluster_header = "x-cluster"
    await mesh.serve(first, route(cluster="b"))
    return await mesh.results(metadata=[("x-cluster", "a")])


@case("matching route with a redirect", "UNAVAILABLE", "A31")
async def redirect(mesh: Mesh) -> str:
    first = route(cluster="a")
    first.redirect.host_redirect = "other.example"
    await mesh.serve(first, route(cluster="b"))
    return await mesh.verdict()


@case("header: present, and absent", "a, b", "A31")
async def header_present(mesh: Mesh) -> str:
    await mesh.serve(match_header(route(cluster="a"), "x", "present"), route(cluster="b"))
    return await _with_and_without(mesh, "anything")


@case("header: `present_match: false`", "b, a", "A31")
async def header_absent(mesh: Mesh) -> str:
    first = route(cluster="a")
    first.match.headers.add(name="x").present_match = False
    await mesh.serve(first, route(cluster="b"))
    return await _with_and_without(mesh, "anything")


@case("header: inverted exact match, and no such header", "b, b", "A31")
async def header_inverted(mesh: Mesh) -> str:
    first = match_header(route(cluster="a"), "x", "exact", "1", is_inverted=True)
    await mesh.serve(first, route(cluster="b"))
    return await _with_and_without(mesh, "1")


@case("header: range [1, 10): 1, 9, 10, `5x`", "a, a, b, b", "A31")
async def header_range(mesh: Mesh) -> str:
    first = _route_with_range(1, 10)
    await mesh.serve(first, route(cluster="b"))
    values = ("1", "9", "10", "5x")
    return ", ".join([await mesh.results(metadata=[("x", value)]) for value in values])


@case("header: range [-10, 0): -1, +1 with a sign", "a, b", "A31")
async def header_range_signs(mesh: Mesh) -> str:
    first = _route_with_range(-10, 0)
    await mesh.serve(first, route(cluster="b"))
    values = ("-1", "+1")
    return ", ".join([await mesh.results(metadata=[("x", value)]) for value in values])


@case("header sent twice: values are joined by a comma", "a", "A31")
async def header_twice(mesh: Mesh) -> str:
    await mesh.serve(match_header(route(cluster="a"), "x", "exact", "1,2"), route(cluster="b"))
    return await mesh.results(metadata=[("x", "1"), ("x", "2")])


@case("header: suffix", "a", "A31")
async def header_suffix(mesh: Mesh) -> str:
    await mesh.serve(match_header(route(cluster="a"), "x", "suffix", "mobile"), route(cluster="b"))
    return await mesh.results(metadata=[("x", "app-mobile")])


@case("header: a `-bin` header, in base64", "b", "A31: never matches")
async def header_binary(mesh: Mesh) -> str:
    value = base64.b64encode(b"value").decode().rstrip("=")
    first = match_header(route(cluster="a"), "x-bin", "prefix", value)
    await mesh.serve(first, route(cluster="b"))
    return await mesh.results(metadata=[("x-bin", base64.b64encode(b"value").decode())])


@case("header: `content-type` is `application/grpc`", "a", "A31")
async def header_content_type(mesh: Mesh) -> str:
    first = match_header(route(cluster="a"), "content-type", "exact", "application/grpc")
    await mesh.serve(first, route(cluster="b"))
    return await mesh.results()


@case("header: `user-agent`, which the client sets itself", "b", "A31")
async def header_user_agent(mesh: Mesh) -> str:
    await mesh.serve(match_header(route(cluster="a"), "user-agent", "present"), route(cluster="b"))
    return await mesh.results()


@case("header: `:path`", "b", "A31")
async def header_path(mesh: Mesh) -> str:
    await mesh.serve(match_header(route(cluster="a"), ":path", "exact", WHERE), route(cluster="b"))
    return await mesh.results()


@case("`runtime_fraction` of 30 %", "30 % a, 70 % b", "A31")
async def fraction(mesh: Mesh) -> str:
    first = route(cluster="a")
    first.match.runtime_fraction.default_value.numerator = 30
    await mesh.serve(first, route(cluster="b"))
    return await _share(mesh)


@case("weighted clusters, 30 and 70", "30 % a, 70 % b", "A31")
async def weights(mesh: Mesh) -> str:
    await mesh.serve(route(weighted={"a": 30, "b": 70}))
    return await _share(mesh)


@case("weighted clusters, 0 and 1", "b", "A31")
async def weight_zero(mesh: Mesh) -> str:
    await mesh.serve(route(weighted={"a": 0, "b": 1}))
    return await mesh.results(count=30)


@case("weighted clusters, both 0", "NACK, UNAVAILABLE", "A31")
async def weights_zero(mesh: Mesh) -> str:
    await mesh.serve(route(weighted={"a": 0, "b": 0}))
    return await mesh.verdict()


@case("route without an action", "UNAVAILABLE", "A31")
async def no_action(mesh: Mesh) -> str:
    first = route(cluster="a")
    first.ClearField("route")
    await mesh.serve(first, route(cluster="b"))
    return await mesh.verdict()


@case("routes inside the listener", "a", "A27")
async def inline_routes(mesh: Mesh) -> str:
    await mesh.serve(route(cluster="b"))
    await mesh.put(listener(SERVICE, route_config("inline", route(cluster="a"))))
    return await mesh.results()


async def _with_and_without(mesh: Mesh, value: str) -> str:
    return f"{await mesh.results(metadata=[('x', value)])}, {await mesh.results()}"


def _route_with_range(start: int, end: int) -> Proto:
    made = route(cluster="a")
    made.match.headers.add(name="x").range_match.start = start
    made.match.headers[0].range_match.end = end
    return made


async def _share(mesh: Mesh) -> str:
    rpcs = await mesh.call(count=_SHARE_COUNT)
    count = sum(rpc.reply == "a" for rpc in rpcs)
    wanted = 0.3 * _SHARE_COUNT
    others = {rpc.reply or rpc.code for rpc in rpcs} - {"a"}
    if abs(count - wanted) < _SHARE_SPREAD and others == {"b"}:
        return "30 % a, 70 % b"
    return f"{count} of {_SHARE_COUNT} a, others {', '.join(sorted(others))}"
