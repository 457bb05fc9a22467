"""Unit tests of proxyless.demo.mesh."""

from proxyless.controlplane import CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG
from proxyless.demo.mesh import DNS, EDS, NEW, OLD, PLACES, Plan, build, names_in, names_of

PLAN = Plan({place.name: 5000 + index for index, place in enumerate(PLACES)})


def priorities(plan: Plan) -> dict[int, list[int]]:
    """The ports of the EDS cluster by priority."""
    resource = build(plan).get(ENDPOINTS, EDS)
    assert resource is not None
    found: dict[int, list[int]] = {}
    for group in resource.message().endpoints:
        ports = [each.endpoint.address.socket_address.port_value for each in group.lb_endpoints]
        found.setdefault(group.priority, []).extend(ports)
    return {priority: sorted(ports) for priority, ports in found.items()}


def test_priority_is_that_of_the_zone_unless_the_endpoint_is_moved() -> None:
    assert priorities(PLAN) == {0: [5000, 5001], 1: [5002, 5003]}
    assert priorities(PLAN.with_moved("a2")) == {0: [5000], 1: [5001, 5002, 5003]}
    assert priorities(PLAN.with_moved("b1")) == {0: [5000, 5001, 5002], 1: [5003]}


def test_first_choice_is_priority_0_of_the_routes_cluster() -> None:
    assert PLAN.first_choice() == names_in("a") == {"a1", "a2"}
    assert PLAN.with_moved("b1").first_choice() == {"a1", "a2", "b1"}
    assert PLAN.with_moved("a1").first_choice() == {"a2"}
    assert PLAN.with_route_to(NEW).first_choice() == names_of(NEW) == {"c2"}


def test_types_without_changes_keep_their_version() -> None:
    first = build(PLAN)
    moved = build(PLAN.with_moved("a1"), first)
    versions = {kind: moved.version_of(kind) for kind in (LISTENER, ROUTE_CONFIG, CLUSTER)}
    assert versions == {LISTENER: "1", ROUTE_CONFIG: "1", CLUSTER: "1"}
    assert moved.version_of(ENDPOINTS) == "2"


def test_new_cluster_stays_when_the_route_leaves_it() -> None:
    there = PLAN.with_route_to(NEW)
    back = there.with_route_to(OLD)
    assert (back.cluster, back.generation) == (OLD, 3)
    assert build(PLAN).get(CLUSTER, NEW) is None
    assert build(back, build(there)).get(CLUSTER, NEW) is not None


def test_leaf_clusters_have_all_backends_and_addresses_have_names() -> None:
    assert names_of(EDS) | names_of(DNS) | names_of(NEW) == {place.name for place in PLACES}
    assert PLAN.name_at("127.0.0.1:5004") == "c1"
    assert PLAN.name_at("127.0.0.1:1") == ""
