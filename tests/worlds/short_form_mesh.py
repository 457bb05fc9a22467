"""The mesh of tests/fixtures/short_form/every_key.yaml, made with the builders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.base import StatusCode
from proxyless.controlplane import (
    Ejection,
    FailurePercentage,
    Locality,
    SuccessRate,
    aggregate_cluster,
    circuit_breaker,
    dns_cluster,
    eds_cluster,
    endpoints,
    fault,
    hash_on,
    keep_sessions,
    lb_endpoint,
    lb_policy,
    least_request,
    match_header,
    outlier_detection,
    retry,
    ring_hash,
    route,
    service_resources,
    session_filter,
    tls,
    without_session,
)
from proxyless.controlplane.builders import set_share

if TYPE_CHECKING:
    from proxyless.protos import Proto


def _make_routes() -> list[Proto]:
    beta = route("/shop.Cart/", cluster="cart", timeout_s=90.0)
    beta.name = "beta"
    match_header(beta, "ring", "exact", "beta")
    match_header(beta, "team", "prefix", "a")
    match_header(beta, "user", "suffix", "z")
    match_header(beta, "tag", "contains", "x")
    match_header(beta, "id", "regex", "[0-9]+")
    match_header(beta, "kind", "exact", "big")
    match_header(beta, "debug", "present")
    match_header(beta, "old", "present", is_inverted=True)
    match_header(beta, "zone", "exact", "b", is_inverted=True)
    set_share(beta.match.runtime_fraction.default_value, 0.125)
    codes = ["unavailable", "deadline-exceeded"]
    retry(beta, codes, times=2, backoff_s=0.01, max_backoff_s=0.1)
    abort = StatusCode.RESOURCE_EXHAUSTED
    fault(beta, delay_s=0.1, delay_share=0.005, abort=abort, abort_share=0.02)
    hash_on(beta, "user-id")
    without_session(beta)
    add = hash_on(route(path="/shop.Cart/Add", weighted={"cart": 3, "web": 1}))
    get = route(cluster="all")
    get.match.safe_regex.regex = r"/shop\..*/Get.*"
    return [beta, add, get, route(cluster="fallback")]


def _make_cart() -> list[Proto]:
    cart = ring_hash(eds_cluster("cart", "cart-endpoints"), min_size=64, max_size=4096)
    outlier_detection(
        cart,
        interval_s=5.0,
        failure_percentage=FailurePercentage(40, 2, 20, 90),
        success_rate=SuccessRate(1500, 3, 30, 80),
        ejection=Ejection(10.0, 60.0, 30),
    )
    circuit_breaker(cart, max_requests=100)
    keep_sessions(cart, ["HEALTHY", "DRAINING"], idle_timeout_s=600.0)
    names: list[str | tuple[str, str]] = [
        "cart.example",
        ("prefix", "a"),
        ("suffix", ".z"),
        ("contains", "b"),
        ("regex", "c.*"),
    ]
    tls(cart, "ca", certificate="own", names=names, sni="cart.example")
    draining = lb_endpoint("10.1.0.2:80", weight=2, health="DRAINING", hostname="two.example")
    where: dict[int | Locality, list[str | Proto]] = {
        Locality("a", "eu", "r1", weight=3): ["10.1.0.1:80", draining],
        Locality("b", priority=1): ["[2001:db8::1]:80"],
    }
    return [cart, endpoints("cart-endpoints", where, drops={"lb": 0.01, "throttle": 0.0025})]


def make_mesh() -> list[Proto]:
    """The mesh of every_key.yaml."""
    session = session_filter("id", path="/shop.", ttl_s=3600.0)
    domains = ["shop", "*.shop"]
    return [
        *service_resources("shop", *_make_routes(), domains=domains, filters=[session]),
        *_make_cart(),
        least_request(eds_cluster("web"), choices=3),
        endpoints("web", ["10.2.0.1:80", "10.2.0.2:80"]),
        aggregate_cluster("all", ["cart", "fallback"]),
        lb_policy(dns_cluster("fallback", "shop.example", 443), "weighted_round_robin"),
    ]
