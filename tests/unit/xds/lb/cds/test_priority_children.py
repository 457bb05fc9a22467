"""Children of the priority policy: stable numbers, and endpoints."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import HTTP_PROXY, HttpProxy, IpAddress, Locality, parse_address
from proxyless.lb import ENDPOINT_WEIGHT, HASH_KEY
from proxyless.lb.attributes import WEIGHTED_SHUFFLING_GUARD
from proxyless.xds.config.attributes import HOSTNAME
from proxyless.xds.lb.cds.endpoint_weights import ONE
from proxyless.xds.lb.cds.priority_children import ChildNumbers, EndpointBuilder, assign_numbers
from proxyless.xds.resources import EndpointInfo, EndpointResource, LocalityEndpoints

# Localities by priority; each locality has one priority.
LAYOUTS = st.lists(st.integers(0, 3), min_size=4, max_size=4).map(
    lambda priorities: [
        [zone for zone, own in zip("abcd", priorities, strict=True) if own == priority]
        for priority in sorted(set(priorities))
    ]
)


def priority(zones: list[str]) -> tuple[LocalityEndpoints, ...]:
    return tuple(LocalityEndpoints(Locality(zone=zone), 1, ()) for zone in zones)


@given(st.lists(LAYOUTS, max_size=6))
def test_numbers_are_distinct_and_never_reused(layouts: list[list[list[str]]]) -> None:
    state = ChildNumbers()
    used: set[int] = set()
    for layout in layouts:
        before = set(state.numbers)
        state = assign_numbers(state, [priority(zones) for zones in layout])
        assert len(set(state.numbers)) == len(layout)
        assert not (set(state.numbers) - before) & used, "a number was reused"
        used |= set(state.numbers)


@given(LAYOUTS)
def test_numbers_stay_the_same_when_localities_change_their_order(layout: list[list[str]]) -> None:
    first = assign_numbers(ChildNumbers(), [priority(zones) for zones in layout])
    again = assign_numbers(first, [priority(zones[::-1]) for zones in layout])
    assert again.numbers == first.numbers


# Localities by priority; a locality may have several priorities.
OVERLAPPING = st.lists(st.sets(st.sampled_from("abcd"), min_size=1).map(sorted), max_size=4)


def numbers_after(layouts: list[list[list[str]]]) -> ChildNumbers:
    state = ChildNumbers()
    for layout in layouts:
        state = assign_numbers(state, [priority(zones) for zones in layout])
    return state


@given(st.lists(OVERLAPPING, max_size=4), OVERLAPPING)
def test_numbers_stay_the_same_when_an_update_is_repeated(
    earlier: list[list[list[str]]], layout: list[list[str]]
) -> None:
    once = numbers_after([*earlier, layout])
    assert numbers_after([*earlier, layout, layout]) == once


@given(st.lists(OVERLAPPING, max_size=6))
def test_numbers_are_distinct_and_never_reused_when_localities_have_several_priorities(
    layouts: list[list[list[str]]],
) -> None:
    state = ChildNumbers()
    used: set[int] = set()
    for layout in layouts:
        before = set(state.numbers)
        state = assign_numbers(state, [priority(zones) for zones in layout])
        assert len(set(state.numbers)) == len(layout)
        assert not (set(state.numbers) - before) & used, "a number was reused"
        used |= set(state.numbers)


@given(st.lists(OVERLAPPING, max_size=4), OVERLAPPING, st.sampled_from("abcd"))
def test_numbers_stay_the_same_when_a_new_locality_joins_a_priority(
    earlier: list[list[list[str]]], layout: list[list[str]], zone: str
) -> None:
    joined = [[*layout[0], f"{zone}-new"], *layout[1:]] if layout else []
    once = numbers_after([*earlier, layout])
    assert numbers_after([*earlier, layout, joined]).numbers == once.numbers


INFO = EndpointInfo((parse_address("10.0.0.1:80"),), weight=2, hostname="h", hash_key="k")


def resource(info: EndpointInfo, weight: int = 3) -> EndpointResource:
    entry = LocalityEndpoints(Locality(zone="z"), weight, (info,))
    return EndpointResource(name="e", priorities=((entry,),))


def test_endpoint_is_the_same_object_when_nothing_changed() -> None:
    builder = EndpointBuilder()
    [first] = builder.build(resource(INFO), ("p0",))
    [same] = builder.build(resource(INFO), ("p0",))
    assert same is first
    [moved] = builder.build(resource(INFO), ("p1",))
    assert moved is not first
    [weighed] = builder.build(resource(INFO, weight=4), ("p1",))
    assert weighed.attributes.get(ENDPOINT_WEIGHT) == 8


def test_endpoint_has_the_attributes_of_its_resource() -> None:
    [endpoint] = EndpointBuilder().build(resource(INFO), ("p0",))
    assert endpoint.attributes.get(ENDPOINT_WEIGHT) == 6
    assert endpoint.attributes.get(HOSTNAME) == "h"
    assert endpoint.attributes.get(HASH_KEY) == "k"


def proxy_of(info: EndpointInfo, of_locality: IpAddress | None) -> HttpProxy | None:
    entry = LocalityEndpoints(Locality(zone="z"), 1, (info,), of_locality)
    found = EndpointResource(name="e", priorities=((entry,),))
    [endpoint] = EndpointBuilder().build(found, ("p0",), has_http_proxies=True)
    return endpoint.attributes.get(HTTP_PROXY)


def test_proxy_of_endpoint_is_its_own_or_that_of_its_locality() -> None:
    own, of_locality = IpAddress("192.0.2.1", 1), IpAddress("192.0.2.2", 2)
    proxied = replace(INFO, http_proxy=own)
    assert proxy_of(proxied, of_locality) == HttpProxy(own)
    assert proxy_of(INFO, of_locality) == HttpProxy(of_locality)
    assert proxy_of(INFO, None) is None


def test_endpoint_is_rebuilt_when_its_proxy_changes() -> None:
    builder, proxy = EndpointBuilder(), IpAddress("192.0.2.2", 2)
    info = replace(INFO, http_proxy=proxy)
    [direct] = builder.build(resource(info), ("p0",))
    assert direct.attributes.get(HTTP_PROXY) is None
    [through] = builder.build(resource(info), ("p0",), has_http_proxies=True)
    assert through.attributes.get(HTTP_PROXY) == HttpProxy(proxy)
    [same] = builder.build(resource(info), ("p0",), has_http_proxies=True)
    assert same is through
    [again] = builder.build(resource(info), ("p0",))
    assert again == direct


@pytest.mark.spec("A113-02", "A113-03")
@pytest.mark.parametrize(
    ("guard", "weights"),
    [("false", [1, 1, 3]), ("true", [ONE // 8, ONE // 8, ONE * 3 // 4])],
)
def test_weights_are_normalized_when_the_guard_is_true(
    monkeypatch: pytest.MonkeyPatch, guard: str, weights: list[int]
) -> None:
    monkeypatch.setenv(WEIGHTED_SHUFFLING_GUARD, guard)
    localities = (
        LocalityEndpoints(Locality(zone="a"), 1, (info(1), info(2))),
        LocalityEndpoints(Locality(zone="b"), 3, (info(3),)),
    )
    found = EndpointBuilder().build(EndpointResource(name="x", priorities=(localities,)), ("p0",))
    assert [each.attributes.get(ENDPOINT_WEIGHT) for each in found] == weights


@pytest.mark.spec("A113-02")
def test_weights_change_when_the_guard_is_true_and_an_endpoint_is_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(WEIGHTED_SHUFFLING_GUARD, "true")
    builder, old = EndpointBuilder(), info(1)
    for infos, weight in (((old,), ONE), ((old, info(2)), ONE // 2)):
        priorities = ((LocalityEndpoints(Locality(zone="a"), 1, infos),),)
        found = builder.build(EndpointResource(name="x", priorities=priorities), ("p0",))
        assert {each.attributes.get(ENDPOINT_WEIGHT) for each in found} == {weight}


def info(number: int) -> EndpointInfo:
    return EndpointInfo((parse_address(f"10.0.0.{number}:80"),))
