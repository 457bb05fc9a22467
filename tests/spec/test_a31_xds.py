"""A31, the xDS part: selection, the cluster manager, cluster lifetime, timeouts."""

from __future__ import annotations

from itertools import pairwise, permutations, product
from typing import TYPE_CHECKING, Any

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, OK, State, Status, StatusCode, ValidationErrors
from proxyless.lb import Drop, GracefulSwitch, Picker, PickInfo, Update
from proxyless.protos import message_class
from proxyless.wire import StreamEnd
from proxyless.xds.filters import FILTER_FACTORIES, FilterRegistry
from proxyless.xds.filters.attributes import CLUSTER
from proxyless.xds.parsing import RouteContext, parse_route_configuration
from proxyless.xds.resources import (
    HeaderMatcher,
    PathMatcher,
    RetryOnPolicy,
    Route,
    RouteAction,
    StringMatcher,
)
from proxyless.xds.routing.route_table import RouteDefaults, route_timeout_s
from tests.spec.mesh_world import PATH, MeshWorld
from tests.spec.xds_world import (
    CDS,
    LDS,
    SERVICE,
    action,
    cluster,
    eds,
    endpoints,
    host,
    hosts,
    listener,
    route,
    route_config,
    unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
DOWN = StreamEnd(Status(StatusCode.UNAVAILABLE, "down"))


def two_clusters() -> tuple[object, ...]:
    return cluster("a"), cluster("b"), endpoints("a", A), endpoints("b", B)


def mesh(*clusters: str | dict[str, int]) -> MeshWorld:
    """Routes to these; clusters a at A and b at B exist."""
    world = MeshWorld()
    world.start(route_config(*clusters), *two_clusters())
    return world


# ---------------------------------------------------------------------------------------------
# The selector


@pytest.mark.spec("A31-16")
def test_selector_matches_path_and_headers_of_the_chosen_virtual_host() -> None:
    world = MeshWorld()
    canary = HeaderMatcher("x-canary", StringMatcher("exact", "yes"))
    world.start(
        hosts(
            host(route("b"), domains=("elsewhere",)),
            host(
                Route(path=PathMatcher("prefix", "/pkg."), headers=(canary,), action=action("b")),
                Route(path=PathMatcher("path", "/pkg.Service/Special"), action=action("b")),
                route("a"),
                domains=(SERVICE,),
            ),
        ),
        *two_clusters(),
    )
    assert world.serve() == A
    assert world.serve(metadata=(("x-canary", "yes"),)) == B
    assert world.serve(metadata=(("x-canary", "no"),)) == A
    assert world.serve("/pkg.Service/Special") == B


@pytest.mark.spec("A31-17", "A31-62")
def test_first_match_decides_and_its_settings_hold() -> None:
    world = MeshWorld()
    world.start(
        hosts(
            host(
                route("a", "/pkg.Service/M", timeout_s=3.0),
                route("a", "/pkg.Service/", timeout_s=7.0),
                route("b", "/", timeout_s=9.0),
            )
        ),
        *two_clusters(),
    )
    for path, cap_s in (("/pkg.Service/M", 3.0), ("/pkg.Service/Z", 7.0)):
        _, observer = world.call(path)
        assert len(world.streams(A)) == 1
        world.clock.advance(cap_s - 0.1)
        assert observer.is_running
        world.clock.advance(0.2)
        assert observer.status.code is StatusCode.DEADLINE_EXCEEDED


EVERY_KIND = {
    "prefix": PathMatcher("prefix", "/pkg."),
    "path": PathMatcher("path", PATH),
    "any case": PathMatcher("path", PATH.upper(), case_sensitive=False),
    "regex": PathMatcher("regex", "/pkg.*"),
}


@pytest.mark.spec("A31-17")
@pytest.mark.parametrize("kinds", list(permutations(EVERY_KIND, 2)))
def test_first_match_decides_of_whatever_kind_it_is(kinds: tuple[str, str]) -> None:
    world = MeshWorld()
    first, second = (EVERY_KIND[kind] for kind in kinds)
    routes = (Route(path=first, action=action("a")), Route(path=second, action=action("b")))
    world.start(hosts(host(*routes)), *two_clusters())
    assert world.serve() == A


@pytest.mark.spec("A31-18", "A31-25")
def test_cluster_decides_which_child_picks_whatever_its_siblings_do() -> None:
    world = MeshWorld()
    world.backend(B).is_up = False
    world.start(
        hosts(host(route("b", "/to.B/"), route("a"))),
        *two_clusters(),
    )
    assert world.channel.state is State.READY
    assert world.serve() == A
    _, observer = world.call("/to.B/Method")
    assert observer.status.code is StatusCode.UNAVAILABLE
    world.backend(A).down()
    world.backend(B).up()
    world.clock.advance(1.0)
    assert world.serve("/to.B/Method") == B


@pytest.mark.spec("A31-19")
def test_weighted_clusters_are_drawn_for_each_rpc_in_proportion() -> None:
    world = mesh({"a": 3, "b": 1})
    count = 6000
    served = [world.serve() for _ in range(count)]
    expected = {A: count * 3 / 4, B: count / 4}
    chi_square = sum((served.count(at) - want) ** 2 / want for at, want in expected.items())
    # One degree of freedom: 10.8 is exceeded once in a thousand seeds.
    assert chi_square < 10.8
    # Independent: what follows an A does not depend on it.
    after_a = [after for before, after in pairwise(served) if before == A]
    assert after_a.count(A) / len(after_a) == pytest.approx(0.75, abs=0.03)


@pytest.mark.spec("A31-20")
def test_draw_ignores_connectivity() -> None:
    world = MeshWorld()
    world.backend(B).is_up = False
    world.start(route_config({"a": 1, "b": 1}), *two_clusters())
    failed = 0
    for _ in range(1000):
        _, observer = world.call()
        world.answer_all()
        failed += observer.status.code is StatusCode.UNAVAILABLE
    assert 440 < failed < 560


@pytest.mark.spec("A31-21")
def test_cluster_is_fixed_for_the_life_of_an_rpc() -> None:
    world = MeshWorld()
    world.start(hosts(host(route("a", retry=_retry(4)))), *two_clusters())
    _, observer = world.call()
    world.say(hosts(host(route("b", retry=_retry(4)))))
    for _ in range(3):
        [stream] = world.streams(A)
        stream.end(DOWN)
        world.clock.advance(1.0)
        assert world.streams(B) == []
    [stream] = world.streams(A)
    stream.answer()
    assert observer.status == OK
    assert world.serve() == B


@pytest.mark.spec("A31-21")
def test_no_attempt_draws_among_weighted_clusters_again() -> None:
    world = MeshWorld()
    world.start(hosts(host(route({"a": 1, "b": 1}, retry=_retry(4)))), *two_clusters())
    for _ in range(20):
        _, observer = world.call()
        [address] = [at for at in (A, B) if world.streams(at)]
        for _ in range(4):
            [stream] = world.streams(address)
            stream.end(DOWN)
            world.clock.advance(1.0)
        [stream] = world.streams(address)
        stream.answer()
        assert observer.status == OK


def _retry(count: int) -> RetryOnPolicy:
    codes = frozenset({StatusCode.UNAVAILABLE})
    return RetryOnPolicy(codes, count, 0.1, 0.1)


@pytest.mark.spec("A31-22")
def test_cluster_manager_is_the_top_level_policy() -> None:
    world = mesh({"a": 1, "b": 1})
    config = world.channel.config.service_config
    assert config is not None
    assert config.policy is not None
    assert config.policy.name == "xds_cluster_manager_experimental"
    assert world.registries.policies.find("xds_routing") is None
    assert world.registries.policies.find("xds_routing_experimental") is None


# ---------------------------------------------------------------------------------------------
# xds_cluster_manager


@pytest.mark.spec("A31-23", "A31-24")
@pytest.mark.parametrize("name", ["xds_cluster_manager", "xds_cluster_manager_experimental"])
@pytest.mark.parametrize("spelling", ["cdsConfig", "cds_config"])
def test_seed_form_is_a_list_of_cds_configs(name: str, spelling: str) -> None:
    registry = MeshWorld().registries.policies
    factory = registry.find(name)
    assert factory is not None
    errors = ValidationErrors()
    listed = [{"cluster": "a"}, {"cluster": "b"}, {"cluster": "a"}]
    config = factory.parse_config({spelling: listed}, errors, registry)
    assert errors.ok, errors
    assert list(config.children) == ["a", "b"]  # type: ignore[attr-defined]
    bad = ValidationErrors()
    factory.parse_config({spelling: [{"cluster": ""}, 3]}, bad, registry)
    assert "field:cdsConfig[0].cluster error:is missing or empty" in str(bad)
    assert "field:cdsConfig[1] error:is 3, wanted an object" in str(bad)


@pytest.mark.spec("A31-26")
def test_child_in_both_configs_keeps_its_connection_whatever_the_order() -> None:
    world = mesh("a", "b")
    assert world.serve() == A
    world.say(route_config("b", "a"))
    world.say(route_config("a", "b"))
    assert world.serve() == A
    assert (world.backend(A).accepts, world.backend(B).accepts) == (1, 1)


@pytest.mark.spec("A31-27", "A31-15")
def test_child_without_picker_queues_its_own_rpcs_only() -> None:
    world = MeshWorld()
    world.start(hosts(host(route("b", "/to.B/"), route("a"))), *two_clusters())
    assert world.serve() == A
    # A new cluster whose backend takes its time.
    world.say(cluster("c"), endpoints("c", C))
    world.backend(C).connect = lambda: None  # type: ignore[method-assign]
    world.say(hosts(host(route("c", "/to.C/"), route("a"))))
    _, waiting = world.call("/to.C/Method")
    assert waiting.is_running
    assert world.serve() == A
    del world.backend(C).connect
    world.backend(C).connect()
    world.settle()
    world.answer_all()
    assert waiting.status == OK


@pytest.mark.spec("A31-28", "A31-29")
@pytest.mark.parametrize("named", [True, False])
def test_unknown_cluster_is_dropped_with_internal(named: bool) -> None:
    world = mesh("a")
    attributes = EMPTY_ATTRIBUTES.with_(CLUSTER, "cluster:gone") if named else EMPTY_ATTRIBUTES
    result = world.channel.picker.pick(PickInfo(PATH, (), attributes))
    assert isinstance(result, Drop), "wait-for-ready does not help"
    assert result.status.code is StatusCode.INTERNAL
    assert ("cluster:gone" in result.status.details) is named


@pytest.mark.spec("A31-30")
def test_added_cluster_is_in_selector_and_config_within_one_update() -> None:
    world = mesh("a")
    seen: list[tuple[object, set[str]]] = []
    on_result = world.channel.on_result

    def look(result: object) -> Status:
        status = on_result(result)  # type: ignore[arg-type]
        seen.append((world.channel.selector, world.children))
        return status

    world.resolver._listener.on_result = look  # type: ignore[method-assign]  # noqa: SLF001
    before = world.channel.selector
    world.say(route_config({"a": 1, "b": 1}))
    assert seen[0][0] is not before
    assert seen[0][1] == {"a", "b"}


@pytest.mark.spec("A31-31", "A31-15")
def test_reports_during_an_update_become_one_picker_before_it_returns() -> None:
    world = mesh("a")
    policy = world.channel._policy  # noqa: SLF001 - what is between channel and tree
    assert policy is not None
    reports: list[Picker] = []
    seen: list[list[Picker]] = []
    on_report, update_policy = world.channel.on_report, policy.update

    def on_each_report(state: State, picker: Picker) -> None:
        reports.append(picker)
        on_report(state, picker)

    def on_each_update(update: Update) -> Status:
        del reports[:]
        status = update_policy(update)
        seen.append(list(reports))
        return status

    world.channel.on_report = on_each_report  # type: ignore[method-assign]
    policy_of_channel: Any = world.channel
    policy_of_channel._policy = _Spy(policy, on_each_update)  # noqa: SLF001
    world.say(cluster("c"), endpoints("c", C), route_config("a", "b", "c"))
    [picker] = seen[0]
    for name in ("a", "b", "c"):
        attributes = EMPTY_ATTRIBUTES.with_(CLUSTER, f"cluster:{name}")
        assert not isinstance(picker.pick(PickInfo(PATH, (), attributes)), Drop)


class _Spy:
    """A policy whose updates are looked at."""

    def __init__(self, policy: GracefulSwitch, update: Callable[[Update], Status]) -> None:
        self.update = update
        self.exit_idle = policy.exit_idle
        self.close = policy.close


# ---------------------------------------------------------------------------------------------
# Lifetime of clusters


@pytest.mark.spec("A31-32")
def test_in_use_count_is_the_selector_and_the_rpcs_that_may_be_picked_for() -> None:
    world = mesh("a")
    assert world.in_use("a") == 1
    calls = [world.call() for _ in range(3)]
    assert world.in_use("a") == 4
    first, second, _ = world.streams(A)
    first.head()
    assert world.in_use("a") == 3
    second.answer()
    assert world.in_use("a") == 2
    calls[2][0].cancel()
    assert world.in_use("a") == 1


@pytest.mark.spec("A31-12")
def test_rpc_that_is_not_routed_marks_nothing() -> None:
    world = MeshWorld()
    world.start(hosts(host(route("a", "/only.This/"))), *two_clusters())
    before = world.in_use("a")
    _, observer = world.call("/another.Service/Method", wait_for_ready=True)
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert world.in_use("a") == before


@pytest.mark.spec("A31-33", "A31-35", "A31-36", "A31-37", "A74-48")
def test_removal_takes_two_steps() -> None:
    world = mesh("a")
    call, observer = world.call()
    world.say(route_config("b"))
    # Step 1: nobody new goes there, but it is still in the config, and watched.
    assert world.children == {"a", "b"}
    assert world.watches.names(CDS) == {"a", "b"}
    assert world.serve() == B
    world.clock.advance(10.0)
    assert world.children == {"a", "b"}, "one RPC is still on it"
    # Step 2 comes by itself.
    world.streams(A)[0].answer()
    world.settle()
    assert observer.status == OK
    assert world.children == {"b"}
    assert world.watches.names(CDS) == {"b"}
    assert world.in_use("a") == 0
    assert call.is_ended


@pytest.mark.spec("A31-34", "A31-37", "A31-40")
def test_rpc_queued_on_a_removed_cluster_is_still_picked_there() -> None:
    world = MeshWorld()
    world.backend(A).is_up = False
    world.start(route_config("a"), *two_clusters())
    _, observer = world.call(wait_for_ready=True)
    world.say(route_config("b"))
    assert world.serve() == B
    world.clock.advance(5.0)
    assert observer.is_running
    assert world.children == {"a", "b"}
    world.backend(A).up()
    world.settle()
    world.streams(A)[0].answer()
    world.settle()
    assert observer.status == OK
    assert world.children == {"b"}


@pytest.mark.spec("A74-49")
def test_endpoints_added_to_a_removed_cluster_reach_the_rpc_that_waits_there() -> None:
    world = MeshWorld()
    world.backend(A).is_up = False
    world.start(route_config("a"), *two_clusters())
    _, observer = world.call(wait_for_ready=True)
    world.say(route_config("b"))
    world.say(endpoints("a", A, C))
    world.settle()
    world.streams(C)[0].answer()
    assert observer.status == OK


@pytest.mark.spec("A31-38")
def test_committed_stream_does_not_delay_the_second_step() -> None:
    world = mesh("a")
    _, observer = world.call()
    [stream] = world.streams(A)
    stream.head()
    world.say(route_config("b"))
    assert world.children == {"b"}
    assert observer.is_running
    stream.listener.on_message(b"late")
    stream.end(StreamEnd(OK))
    assert observer.status == OK


@pytest.mark.spec("A31-39")
def test_cluster_that_comes_back_in_between_is_kept() -> None:
    world = mesh("a")
    world.call()
    world.say(route_config("b"))
    opened = world.watches.opened.count(("CDS", "a"))
    world.say(route_config("a"))
    world.answer_all()
    assert "a" in world.children
    assert world.watches.opened.count(("CDS", "a")) == opened, "its subscription never ended"
    assert world.serve() == A
    assert world.backend(A).accepts == 1


@pytest.mark.spec("A31-41", "A31-42")
@pytest.mark.parametrize("wait_for_ready", [True, False])
def test_deleted_cluster_drops_new_and_queued_rpcs(wait_for_ready: bool) -> None:
    world = MeshWorld()
    world.backend(A).connect = lambda: None  # type: ignore[method-assign]
    world.start(route_config("a"), *two_clusters())
    _, queued = world.call(wait_for_ready=wait_for_ready)
    assert queued.is_running
    world.remove(CDS, "a")
    assert queued.status.code is StatusCode.UNAVAILABLE
    assert "a" in queued.status.details
    _, late = world.call(wait_for_ready=wait_for_ready)
    assert late.status.code is StatusCode.UNAVAILABLE
    world.say(route_config("b"))
    assert world.children == {"b"}
    assert world.in_use("a") == 0
    assert world.watches.names(CDS) == {"b"}


@pytest.mark.spec("A31-43")
def test_cluster_that_is_only_unreachable_does_not_drop() -> None:
    world = MeshWorld()
    world.watches.put(CDS, "a", unavailable("no server"))
    world.start(route_config("a"))
    _, plain = world.call()
    _, patient = world.call(wait_for_ready=True)
    assert plain.status.code is StatusCode.UNAVAILABLE
    assert "no server" in plain.status.details
    assert patient.is_running
    world.say(*two_clusters())
    world.settle()
    world.answer_all()
    assert patient.status == OK


@pytest.mark.spec("A31-44", "A31-32")
def test_churn_between_two_clusters_loses_nothing() -> None:
    world = mesh("a")
    observers = []
    for flip in range(1000):
        observers += [world.call(wait_for_ready=True)[1] for _ in range(5)]
        world.say(route_config("b" if flip % 2 == 0 else "a"))
        if flip % 3 == 0:
            world.answer_all()
    world.answer_all()
    assert {observer.status.code for observer in observers} == {StatusCode.OK}
    assert world.children == {"a"}
    assert (world.in_use("a"), world.in_use("b")) == (1, 0)


# ---------------------------------------------------------------------------------------------
# Timeouts


def test_the_table_of_the_seed_row_by_row() -> None:
    """The rows below, as pairs, so that the whole table stands in one place."""
    unset, zero = None, 0.0
    table = [
        # max_grpc_timeout, timeout, cap
        (unset, unset, 15.0),
        (unset, 10.0, 10.0),
        (zero, unset, float("inf")),
        (zero, 5.0, float("inf")),
        (10.0, unset, 10.0),
        (10.0, 3.0, 10.0),
        (unset, zero, float("inf")),
    ]
    for max_grpc_timeout_s, timeout_s, cap_s in table:
        found = action("a", max_grpc_timeout_s=max_grpc_timeout_s, timeout_s=timeout_s)
        assert route_timeout_s(found, RouteDefaults()) == cap_s


def lasts_s(application_s: float | None, **settings: Any) -> float | None:  # noqa: ANN401
    """How long an RPC lasts that nobody answers; None if an hour is not enough."""
    world = MeshWorld()
    world.start(hosts(host(route("a", **settings))), *two_clusters())
    _, observer = world.call(timeout_s=application_s)
    start_s = world.clock.now_s()
    while observer.is_running and world.clock.now_s() < start_s + 3600:
        world.clock.advance(0.5)
    if observer.is_running:
        return None
    assert observer.status.code is StatusCode.DEADLINE_EXCEEDED
    return world.clock.now_s() - start_s


ANY_TIMEOUT = (None, 5.0, 0.0)


@pytest.mark.spec("A31-46", "A31-50")
def test_row_1() -> None:
    assert lasts_s(None) == 15.0


@pytest.mark.spec("A31-46", "A31-51")
def test_row_2() -> None:
    assert lasts_s(None, timeout_s=10.0) == 10.0


@pytest.mark.spec("A31-47", "A31-48", "A31-52")
@pytest.mark.parametrize("timeout_s", ANY_TIMEOUT)
def test_row_3(timeout_s: float | None) -> None:
    assert lasts_s(None, max_grpc_timeout_s=0.0, timeout_s=timeout_s) is None


@pytest.mark.spec("A31-47", "A31-53")
@pytest.mark.parametrize("timeout_s", ANY_TIMEOUT)
def test_row_4(timeout_s: float | None) -> None:
    assert lasts_s(None, max_grpc_timeout_s=10.0, timeout_s=timeout_s) == 10.0


@pytest.mark.spec("A31-49", "A31-54")
def test_row_5() -> None:
    assert lasts_s(10.0) == 10.0


@pytest.mark.spec("A31-49", "A31-55")
def test_row_6() -> None:
    assert lasts_s(20.0) == 15.0


@pytest.mark.spec("A31-49", "A31-56")
def test_row_7() -> None:
    assert lasts_s(20.0, timeout_s=10.0) == 10.0


@pytest.mark.spec("A31-49", "A31-57")
@pytest.mark.parametrize("timeout_s", ANY_TIMEOUT)
def test_row_8(timeout_s: float | None) -> None:
    assert lasts_s(20.0, max_grpc_timeout_s=0.0, timeout_s=timeout_s) == 20.0


@pytest.mark.spec("A31-49", "A31-58")
@pytest.mark.parametrize("timeout_s", ANY_TIMEOUT)
def test_row_9(timeout_s: float | None) -> None:
    assert lasts_s(20.0, max_grpc_timeout_s=10.0, timeout_s=timeout_s) == 10.0


@pytest.mark.spec("A31-60")
def test_zero_timeout_alone_is_no_cap() -> None:
    assert lasts_s(None, timeout_s=0.0) is None


@pytest.mark.spec("A31-59")
def test_deadline_counts_from_the_start_and_covers_retries_and_streams() -> None:
    world = MeshWorld()
    world.backend(A).is_up = False
    world.start(hosts(host(route("a", timeout_s=10.0, retry=_retry(4)))), *two_clusters())
    _, observer = world.call(wait_for_ready=True)
    world.clock.advance(4.0)
    world.backend(A).up()
    world.settle()
    [stream] = world.streams(A)
    assert b"grpc-timeout" in stream.block
    assert b"6S" in stream.block or b"6000" in stream.block, "what is left of 10 s"
    stream.end(DOWN)
    world.clock.advance(3.0)
    [stream] = world.streams(A)
    stream.head()
    stream.listener.on_message(b"first")
    world.clock.advance(2.9)
    assert observer.is_running
    world.clock.advance(0.2)
    assert observer.status.code is StatusCode.DEADLINE_EXCEEDED


@pytest.mark.spec("A31-45")
def test_only_the_two_fields_of_the_seed_matter_in_its_dialect() -> None:
    """As the control plane says it: grpc_timeout_offset is there and is not looked at."""
    for fields, cap_s in (
        ({"grpc_timeout_offset": 3}, 15.0),
        ({"grpc_timeout_offset": 3, "timeout": 7}, 7.0),
        ({"grpc_timeout_offset": 3, "timeout": 7, "max_grpc_timeout": 9}, 9.0),
        ({"idle_timeout": 2, "timeout": 7}, 7.0),
    ):
        found = _parsed_action(fields)
        assert route_timeout_s(found, RouteDefaults()) == cap_s
        world = MeshWorld()
        routes = hosts(host(Route(path=PathMatcher("prefix", "/"), action=found)))
        world.start(routes, *two_clusters())
        _, observer = world.call()
        world.clock.advance(cap_s - 0.1)
        assert observer.is_running
        world.clock.advance(0.2)
        assert observer.status.code is StatusCode.DEADLINE_EXCEEDED


def _parsed_action(durations: dict[str, int]) -> RouteAction:
    """An action to cluster a with these fields, through the parser."""
    message = message_class("envoy.config.route.v3.RouteConfiguration")(name="routes")
    route_message = message.virtual_hosts.add(name="all", domains=["*"]).routes.add()
    route_message.match.prefix = "/"
    route_message.route.cluster = "a"
    for name, seconds in durations.items():
        getattr(route_message.route, name).seconds = seconds
    context = RouteContext(FilterRegistry(FILTER_FACTORIES), {}, False)
    errors = ValidationErrors()
    parsed = parse_route_configuration(message, context, errors)
    assert errors.ok, errors
    assert parsed is not None
    found = parsed.virtual_hosts[0].routes[0].action
    assert isinstance(found, RouteAction)
    return found


FINAL_TABLE = list(product((None, 0.0, 4.0), (None, 0.0, 6.0), (None, 0.0, 8.0)))


@pytest.mark.parametrize(("header_max_s", "route_s", "manager_s"), FINAL_TABLE)
def test_final_table_applies_where_max_stream_duration_is_set(
    header_max_s: float | None, route_s: float | None, manager_s: float | None
) -> None:
    """D20: by presence of the message, in the route or in the connection manager."""
    is_set = header_max_s is not None or route_s is not None
    found = action(
        "a",
        timeout_s=1.0,
        max_grpc_timeout_s=2.0,
        has_max_stream_duration=is_set,
        max_stream_duration_s=route_s,
        grpc_timeout_header_max_s=header_max_s,
    )
    cap_s = route_timeout_s(found, RouteDefaults(manager_s))
    if not is_set and manager_s is None:
        assert cap_s == 2.0, "the seed's table"
        return
    first = next(time for time in (header_max_s, route_s, manager_s) if time is not None)
    assert cap_s == (first or float("inf"))


def test_default_of_the_seed_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_XDS_DEFAULT_ROUTE_TIMEOUT", "0")
    assert lasts_s(None) is None
    monkeypatch.setenv("GRPC_XDS_DEFAULT_ROUTE_TIMEOUT", "2.5s")
    assert lasts_s(None) == 2.5


# ---------------------------------------------------------------------------------------------
# Listener and routes lost


@pytest.mark.spec("A74-29", "A74-30")
def test_lost_listener_fails_new_rpcs_and_holds_patient_ones_until_it_returns() -> None:
    world = mesh("a")
    _, running = world.call()
    world.remove(LDS, SERVICE)
    assert world.channel.state is State.TRANSIENT_FAILURE
    _, plain = world.call()
    _, patient = world.call(wait_for_ready=True)
    assert plain.status.code is StatusCode.UNAVAILABLE
    assert f'listener "{SERVICE}": does not exist' in plain.status.details
    assert patient.is_running
    world.streams(A)[0].answer()
    assert running.status == OK
    world.say(listener())
    world.settle()
    world.answer_all()
    assert patient.status == OK
    assert world.serve() == A


def test_channel_is_ready_again_when_its_listener_returns() -> None:
    world = mesh("a")
    assert world.serve() == A
    world.remove(LDS, SERVICE)
    world.say(listener())
    world.settle()
    assert world.channel.state is State.READY


@pytest.mark.spec("A74-30")
def test_listener_that_cannot_be_had_fails_rpcs() -> None:
    world = MeshWorld()
    world.watches.put(LDS, SERVICE, unavailable("no server"))
    _, observer = world.call()
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert "no server" in observer.status.details


def test_shared_eds_and_renamed_service_keep_serving() -> None:
    world = mesh("a")
    assert world.serve() == A
    world.say(eds("a", "renamed"), endpoints("renamed", A))
    assert world.serve() == A
    assert world.backend(A).accepts == 1


def test_rpc_that_waits_while_its_cluster_becomes_balanced_by_hash_is_served() -> None:
    world = MeshWorld()
    world.backend(A).is_up = False
    world.start(route_config("a"), cluster("a"), endpoints("a", A))
    _, waiting = world.call(wait_for_ready=True)
    world.say(cluster("a", lb_config=({"ring_hash_experimental": {}},)))
    assert waiting.is_running
    world.backend(A).up()
    world.clock.advance(1.0)
    world.answer_all()
    assert waiting.status == OK
