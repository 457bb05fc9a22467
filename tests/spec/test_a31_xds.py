"""A31, xDS part: config selector, cluster manager, lifetime of clusters, timeouts."""

from __future__ import annotations

from itertools import pairwise, permutations, product
from typing import TYPE_CHECKING, Any, cast

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, OK, State, Status, StatusCode, ValidationErrors
from proxyless.lb import Drop, GracefulSwitchPolicy, Picker, PickInfo, Update
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
from proxyless.xds.routing.route_table import RouteDefaults, choose_timeout
from tests.worlds.meshes import PATH, MeshWorld
from tests.worlds.xds_dependencies import CDS, LDS
from tests.worlds.xds_resources import (
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

    from proxyless.channel import CallConfig
    from proxyless.resolver import ResolverResult
    from proxyless.xds.lb.cluster_manager import ClusterManagerConfig

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
DOWN = StreamEnd(Status(StatusCode.UNAVAILABLE, "down"))


def two_clusters() -> tuple[object, ...]:
    return cluster("a"), cluster("b"), endpoints("a", A), endpoints("b", B)


def mesh(*clusters: str | dict[str, int]) -> MeshWorld:
    """A channel with routes to these clusters; clusters a at A and b at B exist."""
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
    assert world.send_rpc() == A
    assert world.send_rpc(metadata=(("x-canary", "yes"),)) == B
    assert world.send_rpc(metadata=(("x-canary", "no"),)) == A
    assert world.send_rpc("/pkg.Service/Special") == B


@pytest.mark.spec("A31-17", "A31-62")
def test_first_matching_route_is_selected_and_its_timeout_applies() -> None:
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
def test_first_matching_route_is_selected_for_each_pair_of_path_matchers(
    kinds: tuple[str, str],
) -> None:
    world = MeshWorld()
    first, second = (EVERY_KIND[kind] for kind in kinds)
    routes = (Route(path=first, action=action("a")), Route(path=second, action=action("b")))
    world.start(hosts(host(*routes)), *two_clusters())
    assert world.send_rpc() == A


@pytest.mark.spec("A31-18", "A31-25")
def test_child_of_the_cluster_picks_whatever_the_state_of_other_children() -> None:
    world = MeshWorld()
    world.backend(B).is_up = False
    world.start(
        hosts(host(route("b", "/to.B/"), route("a"))),
        *two_clusters(),
    )
    assert world.channel.state is State.READY
    assert world.send_rpc() == A
    _, observer = world.call("/to.B/Method")
    assert observer.status.code is StatusCode.UNAVAILABLE
    world.backend(A).down()
    world.backend(B).up()
    world.clock.advance(1.0)
    assert world.send_rpc("/to.B/Method") == B


@pytest.mark.spec("A31-19")
def test_weighted_cluster_is_chosen_for_each_rpc_in_proportion() -> None:
    world = mesh({"a": 3, "b": 1})
    count = 6000
    served = [world.send_rpc() for _ in range(count)]
    expected = {A: count * 3 / 4, B: count / 4}
    chi_square = sum((served.count(at) - mean) ** 2 / mean for at, mean in expected.items())
    # One degree of freedom: 10.8 is exceeded once in a thousand seeds.
    assert chi_square < 10.8
    # The choices are independent: the share of A after an A is the same.
    after_a = [after for before, after in pairwise(served) if before == A]
    assert after_a.count(A) / len(after_a) == pytest.approx(0.75, abs=0.03)


@pytest.mark.spec("A31-20")
def test_weighted_choice_ignores_connectivity() -> None:
    world = MeshWorld()
    world.backend(B).is_up = False
    world.start(route_config({"a": 1, "b": 1}), *two_clusters())
    failed = 0
    for _ in range(1000):
        _, observer = world.call()
        world.respond_to_all()
        failed += observer.status.code is StatusCode.UNAVAILABLE
    assert 440 < failed < 560


@pytest.mark.spec("A31-21")
def test_cluster_is_fixed_for_the_life_of_an_rpc() -> None:
    world = MeshWorld()
    world.start(hosts(host(route("a", retry=_retry(4)))), *two_clusters())
    _, observer = world.call()
    world.publish(hosts(host(route("b", retry=_retry(4)))))
    for _ in range(3):
        [stream] = world.streams(A)
        stream.end(DOWN)
        world.clock.advance(1.0)
        assert world.streams(B) == []
    [stream] = world.streams(A)
    stream.respond()
    assert observer.status == OK
    assert world.send_rpc() == B


@pytest.mark.spec("A31-21")
def test_retry_does_not_choose_among_weighted_clusters_again() -> None:
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
        stream.respond()
        assert observer.status == OK


def _retry(count: int) -> RetryOnPolicy:
    codes = frozenset({StatusCode.UNAVAILABLE})
    return RetryOnPolicy(codes, count, 0.1, 0.1)


@pytest.mark.spec("A31-22")
def test_cluster_manager_is_the_top_policy_with_a_cds_child_for_each_cluster() -> None:
    world = MeshWorld()
    world.start(hosts(host(route({"a": 1, "b": 1}, "/w"), route("a"))), *two_clusters())
    config = world.channel.config.service_config
    assert config is not None
    assert config.policy is not None
    assert config.policy.name == "xds_cluster_manager_experimental"
    children = cast("ClusterManagerConfig", config.policy.config).children
    # Each child is a cds policy: no weighted_target among the clusters of a route.
    assert {key: child.name for key, child in children.items()} == {
        "cluster:a": "cds_experimental",
        "cluster:b": "cds_experimental",
    }
    tree = world.channel.view().lb_tree()
    assert tree is not None
    assert tree.policy == "xds_cluster_manager_experimental"
    assert [child.policy for child in tree.children] == ["cds_experimental"] * 2
    assert not any("routing" in name for name in world.registries.policies.names)


# ---------------------------------------------------------------------------------------------
# xds_cluster_manager


@pytest.mark.spec("A31-23")
@pytest.mark.parametrize("name", ["xds_cluster_manager", "xds_cluster_manager_experimental"])
def test_config_of_cluster_manager_may_be_a_map_of_children(name: str) -> None:
    registry = MeshWorld().registries.policies
    factory = registry.find(name)
    assert factory is not None
    errors = ValidationErrors()
    children = {key: {"childPolicy": [{"cds_experimental": {"cluster": key}}]} for key in "ab"}
    by_map = factory.parse_config({"children": children}, errors, registry)
    by_list = factory.parse_config(
        {"cdsConfig": [{"cluster": "a"}, {"cluster": "b"}]}, errors, registry
    )
    assert errors.ok, errors
    assert by_map == by_list


@pytest.mark.spec("A31-23")
def test_resolver_publishes_the_map_of_children() -> None:
    world = mesh("a", "b")
    results: list[ResolverResult] = []
    on_result = world.channel.on_result

    def record(result: ResolverResult) -> Status:
        results.append(result)
        return on_result(result)

    world.resolver._listener.on_result = record  # type: ignore[method-assign]  # noqa: SLF001
    world.publish(route_config("a"))
    children = {"cluster:a": {"childPolicy": [{"cds_experimental": {"cluster": "a"}}]}}
    expected = [{"xds_cluster_manager_experimental": {"children": children}}]
    assert results[-1].service_config == {"loadBalancingConfig": expected}


@pytest.mark.spec("A31-23", "A31-24")
@pytest.mark.parametrize("name", ["xds_cluster_manager", "xds_cluster_manager_experimental"])
@pytest.mark.parametrize("spelling", ["cdsConfig", "cds_config"])
def test_config_of_cluster_manager_may_be_a_list_of_cds_configs(name: str, spelling: str) -> None:
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
    assert world.send_rpc() == A
    world.publish(route_config("b", "a"))
    world.publish(route_config("a", "b"))
    assert world.send_rpc() == A
    assert (world.backend(A).accepts, world.backend(B).accepts) == (1, 1)


@pytest.mark.spec("A31-27", "A31-15")
def test_child_without_picker_queues_only_its_own_rpcs() -> None:
    world = MeshWorld()
    world.start(hosts(host(route("b", "/to.B/"), route("a"))), *two_clusters())
    assert world.send_rpc() == A
    # A new cluster whose backend does not connect yet.
    world.publish(cluster("c"), endpoints("c", C))
    world.backend(C).connect = lambda: None  # type: ignore[method-assign]
    world.publish(hosts(host(route("c", "/to.C/"), route("a"))))
    _, waiting = world.call("/to.C/Method")
    assert waiting.is_running
    assert world.send_rpc() == A
    del world.backend(C).connect
    world.backend(C).connect()
    world.settle()
    world.respond_to_all()
    assert waiting.status == OK


@pytest.mark.spec("A31-28", "A31-29")
@pytest.mark.parametrize("named", [True, False])
def test_unknown_cluster_is_dropped_with_internal(named: bool) -> None:
    world = mesh("a")
    attributes = EMPTY_ATTRIBUTES.with_(CLUSTER, "cluster:gone") if named else EMPTY_ATTRIBUTES
    result = world.channel.picker.pick(PickInfo(PATH, (), attributes))
    assert isinstance(result, Drop), "a wait-for-ready RPC would be queued"
    assert result.status.code is StatusCode.INTERNAL
    assert ("cluster:gone" in result.status.details) is named


@pytest.mark.spec("A31-30")
def test_added_cluster_is_in_selector_and_config_within_one_update() -> None:
    world = mesh("a")
    seen: list[tuple[Any, set[str]]] = []
    on_result = world.channel.on_result

    def record(result: object) -> Status:
        status = on_result(result)  # type: ignore[arg-type]
        seen.append((world.channel.config.selector, world.children))
        return status

    world.resolver._listener.on_result = record  # type: ignore[method-assign]  # noqa: SLF001
    before = world.channel.config.selector
    world.publish(route_config({"a": 1, "b": 1}))
    selector, children = seen[0]
    assert selector is not before
    assert children == {"a", "b"}
    chosen = {cast("CallConfig", selector.select(PATH, ())) for _ in range(50)}
    assert {each.attributes.get(CLUSTER) for each in chosen} == {"cluster:a", "cluster:b"}


@pytest.mark.spec("A31-31", "A31-15")
def test_reports_during_an_update_become_one_picker_before_it_returns() -> None:
    world = mesh("a")
    policy = world.channel._policy  # noqa: SLF001 - the spy is between channel and policy tree
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
    world.publish(cluster("c"), endpoints("c", C), route_config("a", "b", "c"))
    [picker] = seen[0]
    for name in ("a", "b", "c"):
        attributes = EMPTY_ATTRIBUTES.with_(CLUSTER, f"cluster:{name}")
        assert not isinstance(picker.pick(PickInfo(PATH, (), attributes)), Drop)


class _Spy:
    """A policy that calls `update` of the test."""

    def __init__(self, policy: GracefulSwitchPolicy, update: Callable[[Update], Status]) -> None:
        self.update = update
        self.exit_idle = policy.exit_idle
        self.close = policy.close


# ---------------------------------------------------------------------------------------------
# Lifetime of clusters


@pytest.mark.spec("A31-32")
def test_in_use_count_is_the_selector_plus_uncommitted_rpcs() -> None:
    world = mesh("a")
    assert world.in_use("a") == 1
    calls = [world.call() for _ in range(3)]
    assert world.in_use("a") == 4
    first, second, _ = world.streams(A)
    first.head()
    assert world.in_use("a") == 3
    second.respond()
    assert world.in_use("a") == 2
    calls[2][0].cancel()
    assert world.in_use("a") == 1


@pytest.mark.spec("A31-12")
def test_rpc_without_a_route_holds_no_cluster_reference() -> None:
    world = MeshWorld()
    world.start(hosts(host(route("a", "/only.This/"))), *two_clusters())
    before = world.in_use("a")
    _, observer = world.call("/another.Service/Method", wait_for_ready=True)
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert world.in_use("a") == before


@pytest.mark.spec(
    "A31-33", "A31-35", "A31-36", "A31-37", "A74-48", reason="one removal goes through all steps"
)
def test_cluster_is_removed_in_two_steps() -> None:
    world = mesh("a")
    call, observer = world.call()
    world.publish(route_config("b"))
    # Step 1: new RPCs do not use it, but it is still in the config, and watched.
    assert world.children == {"a", "b"}
    assert world.watches.names(CDS) == {"a", "b"}
    assert world.send_rpc() == B
    world.clock.advance(10.0)
    assert world.children == {"a", "b"}, "one RPC still uses it"
    # Step 2 follows when the last RPC commits.
    world.streams(A)[0].respond()
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
    world.publish(route_config("b"))
    assert world.send_rpc() == B
    world.clock.advance(5.0)
    assert observer.is_running
    assert world.children == {"a", "b"}
    world.backend(A).up()
    world.settle()
    world.streams(A)[0].respond()
    world.settle()
    assert observer.status == OK
    assert world.children == {"b"}


@pytest.mark.spec("A74-49")
def test_endpoints_added_to_a_removed_cluster_reach_the_rpc_that_waits_there() -> None:
    world = MeshWorld()
    world.backend(A).is_up = False
    world.start(route_config("a"), *two_clusters())
    _, observer = world.call(wait_for_ready=True)
    world.publish(route_config("b"))
    world.publish(endpoints("a", A, C))
    world.settle()
    world.streams(C)[0].respond()
    assert observer.status == OK


@pytest.mark.spec("A31-38")
def test_committed_stream_does_not_delay_the_second_step() -> None:
    world = mesh("a")
    _, observer = world.call()
    [stream] = world.streams(A)
    stream.head()
    world.publish(route_config("b"))
    assert world.children == {"b"}
    assert observer.is_running
    stream.listener.on_message(b"late")
    stream.end(StreamEnd(OK))
    assert observer.status == OK


@pytest.mark.spec("A31-39")
def test_cluster_is_kept_when_it_is_routed_to_again_before_its_removal() -> None:
    world = mesh("a")
    world.call()
    world.publish(route_config("b"))
    opened = world.watches.opened.count(("CDS", "a"))
    world.publish(route_config("a"))
    world.respond_to_all()
    assert "a" in world.children
    assert world.watches.opened.count(("CDS", "a")) == opened, "its subscription ended"
    assert world.send_rpc() == A
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
    world.publish(route_config("b"))
    assert world.children == {"b"}
    assert world.in_use("a") == 0
    assert world.watches.names(CDS) == {"b"}


@pytest.mark.spec("A31-43")
def test_rpcs_are_not_dropped_when_a_cluster_resource_is_only_unavailable() -> None:
    world = MeshWorld()
    world.watches.put(CDS, "a", unavailable("no server"))
    world.start(route_config("a"))
    _, plain = world.call()
    _, waiting = world.call(wait_for_ready=True)
    assert plain.status.code is StatusCode.UNAVAILABLE
    assert "no server" in plain.status.details
    assert waiting.is_running
    world.publish(*two_clusters())
    world.settle()
    world.respond_to_all()
    assert waiting.status == OK


@pytest.mark.spec("A31-44", "A31-32")
def test_no_rpc_fails_when_routes_alternate_between_two_clusters() -> None:
    world = mesh("a")
    observers = []
    for flip in range(1000):
        observers += [world.call(wait_for_ready=True)[1] for _ in range(5)]
        world.publish(route_config("b" if flip % 2 == 0 else "a"))
        if flip % 3 == 0:
            world.respond_to_all()
    world.respond_to_all()
    assert {observer.status.code for observer in observers} == {StatusCode.OK}
    assert world.children == {"a"}
    assert (world.in_use("a"), world.in_use("b")) == (1, 0)


# ---------------------------------------------------------------------------------------------
# Timeouts


def test_timeout_of_a_route_follows_the_table() -> None:
    """The table whose rows the tests below check end to end."""
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
        assert choose_timeout(found, RouteDefaults()).timeout_s == cap_s


def duration_s(application_s: float | None, **settings: Any) -> float | None:  # noqa: ANN401
    """Time until an unanswered RPC ends; None if it is still open after an hour."""
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
def test_timeout_is_15_s_when_nothing_is_set() -> None:
    assert duration_s(None) == 15.0


@pytest.mark.spec("A31-46", "A31-51")
def test_timeout_is_that_of_the_route() -> None:
    assert duration_s(None, timeout_s=10.0) == 10.0


@pytest.mark.spec("A31-47", "A31-48", "A31-52")
@pytest.mark.parametrize("timeout_s", ANY_TIMEOUT)
def test_there_is_no_timeout_when_max_grpc_timeout_is_0(timeout_s: float | None) -> None:
    assert duration_s(None, max_grpc_timeout_s=0.0, timeout_s=timeout_s) is None


@pytest.mark.spec("A31-47", "A31-53")
@pytest.mark.parametrize("timeout_s", ANY_TIMEOUT)
def test_timeout_is_max_grpc_timeout(timeout_s: float | None) -> None:
    assert duration_s(None, max_grpc_timeout_s=10.0, timeout_s=timeout_s) == 10.0


@pytest.mark.spec("A31-49", "A31-54")
def test_timeout_is_that_of_the_application_when_it_is_below_15_s() -> None:
    assert duration_s(10.0) == 10.0


@pytest.mark.spec("A31-49", "A31-55")
def test_timeout_is_15_s_when_that_of_the_application_is_above() -> None:
    assert duration_s(20.0) == 15.0


@pytest.mark.spec("A31-49", "A31-56")
def test_timeout_is_that_of_the_route_when_that_of_the_application_is_above() -> None:
    assert duration_s(20.0, timeout_s=10.0) == 10.0


@pytest.mark.spec("A31-49", "A31-57")
@pytest.mark.parametrize("timeout_s", ANY_TIMEOUT)
def test_timeout_is_that_of_the_application_when_max_grpc_timeout_is_0(
    timeout_s: float | None,
) -> None:
    assert duration_s(20.0, max_grpc_timeout_s=0.0, timeout_s=timeout_s) == 20.0


@pytest.mark.spec("A31-49", "A31-58")
@pytest.mark.parametrize("timeout_s", ANY_TIMEOUT)
def test_timeout_is_max_grpc_timeout_when_that_of_the_application_is_above(
    timeout_s: float | None,
) -> None:
    assert duration_s(20.0, max_grpc_timeout_s=10.0, timeout_s=timeout_s) == 10.0


@pytest.mark.spec("A31-60")
def test_there_is_no_timeout_when_that_of_the_route_is_0() -> None:
    assert duration_s(None, timeout_s=0.0) is None


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
def test_only_timeout_and_max_grpc_timeout_are_used() -> None:
    """Other duration fields, such as grpc_timeout_offset, are ignored."""
    for fields, cap_s in (
        ({"grpc_timeout_offset": 3}, 15.0),
        ({"grpc_timeout_offset": 3, "timeout": 7}, 7.0),
        ({"grpc_timeout_offset": 3, "timeout": 7, "max_grpc_timeout": 9}, 9.0),
        ({"idle_timeout": 2, "timeout": 7}, 7.0),
    ):
        found = _parsed_action(fields)
        assert choose_timeout(found, RouteDefaults()).timeout_s == cap_s
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
def test_max_stream_duration_table_applies_when_it_is_set(
    header_max_s: float | None, route_s: float | None, manager_s: float | None
) -> None:
    """D20: presence of the message in the route or in the connection manager decides."""
    is_set = header_max_s is not None or route_s is not None
    found = action(
        "a",
        timeout_s=1.0,
        max_grpc_timeout_s=2.0,
        has_max_stream_duration=is_set,
        max_stream_duration_s=route_s,
        grpc_timeout_header_max_s=header_max_s,
    )
    cap_s = choose_timeout(found, RouteDefaults(manager_s)).timeout_s
    if not is_set and manager_s is None:
        assert cap_s == 2.0, "not A31's table"
        return
    first = next(time for time in (header_max_s, route_s, manager_s) if time is not None)
    assert cap_s == (first or float("inf"))


def test_default_timeout_is_that_of_the_environment_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRPC_XDS_DEFAULT_ROUTE_TIMEOUT", "0")
    assert duration_s(None) is None
    monkeypatch.setenv("GRPC_XDS_DEFAULT_ROUTE_TIMEOUT", "2.5s")
    assert duration_s(None) == 2.5


# ---------------------------------------------------------------------------------------------
# Loss of the listener or the routes


@pytest.mark.spec("A74-29", "A74-30")
def test_lost_listener_fails_new_rpcs_and_queues_wait_for_ready_rpcs() -> None:
    world = mesh("a")
    _, running = world.call()
    world.remove(LDS, SERVICE)
    assert world.channel.state is State.TRANSIENT_FAILURE
    _, plain = world.call()
    _, waiting = world.call(wait_for_ready=True)
    assert plain.status.code is StatusCode.UNAVAILABLE
    assert f'listener "{SERVICE}": does not exist' in plain.status.details
    assert waiting.is_running
    world.streams(A)[0].respond()
    assert running.status == OK
    world.publish(listener())
    world.settle()
    world.respond_to_all()
    assert waiting.status == OK
    assert world.send_rpc() == A


def test_channel_is_ready_again_when_its_listener_returns() -> None:
    world = mesh("a")
    assert world.send_rpc() == A
    world.remove(LDS, SERVICE)
    world.publish(listener())
    world.settle()
    assert world.channel.state is State.READY


@pytest.mark.spec("A74-30")
def test_rpcs_fail_when_the_listener_is_unavailable() -> None:
    world = MeshWorld()
    world.watches.put(LDS, SERVICE, unavailable("no server"))
    _, observer = world.call()
    assert observer.status.code is StatusCode.UNAVAILABLE
    assert "no server" in observer.status.details


def test_connection_is_kept_when_the_eds_service_is_renamed() -> None:
    world = mesh("a")
    assert world.send_rpc() == A
    world.publish(eds("a", "renamed"), endpoints("renamed", A))
    assert world.send_rpc() == A
    assert world.backend(A).accepts == 1


def test_waiting_rpc_is_served_when_its_cluster_changes_to_ring_hash() -> None:
    world = MeshWorld()
    world.backend(A).is_up = False
    world.start(route_config("a"), cluster("a"), endpoints("a", A))
    _, waiting = world.call(wait_for_ready=True)
    world.publish(cluster("a", lb_config=({"ring_hash_experimental": {}},)))
    assert waiting.is_running
    world.backend(A).up()
    world.clock.advance(1.0)
    world.respond_to_all()
    assert waiting.status == OK
