"""Unit tests of proxyless.sim.rehearsal.inventory."""

from __future__ import annotations

from typing import Any

from proxyless.base import Locality as Place
from proxyless.controlplane import (
    CLUSTER,
    Locality,
    Resource,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    lb_endpoint,
    listener,
    route,
    socket_listener,
)
from proxyless.protos import message_class
from proxyless.sim.rehearsal.inventory import (
    CHANNELS_MAX,
    CONNECTIONS_MAX,
    MACHINES_MAX,
    Inventory,
    Member,
    Mesh,
)
from proxyless.sim.rehearsal.script import Selector
from tests.unit.sim.rehearsal.mesh import A1, A2, B1, mesh_of, problems, two_zones


def inventory(*meshes: Mesh, dns: dict[str, tuple[str, ...]] | None = None) -> Inventory:
    return Inventory.of(meshes or (two_zones(),), dns or {})


def select(found: Inventory, **parts: tuple[str, ...]) -> list[str]:
    return [machine.name for machine in found.select(Selector(**parts))]


def test_each_endpoint_is_a_machine_at_its_address() -> None:
    found = inventory()
    assert list(found.machines) == [A1, A2, B1]
    assert [list(map(str, each.addresses)) for each in found.machines.values()] == [
        [A1],
        [A2],
        [B1],
    ]
    assert found.zones == ["a", "b"]
    assert found.clusters == ["cart"]
    assert found.targets == ("xds:///shop",)


def test_machines_are_selected_by_all_parts_of_the_selector() -> None:
    found = inventory()
    assert select(found) == [A1, A2, B1]
    assert select(found, zones=("a",)) == [A1, A2]
    assert select(found, zones=("a", "b"), endpoints=(B1,)) == [B1]
    assert select(found, zones=("a",), clusters=("cart",)) == [A1, A2]
    assert select(found, zones=("a",), clusters=("other",)) == []
    assert select(found, regions=("eu",)) == []


def test_addresses_are_normalized() -> None:
    mesh = mesh_of(eds_cluster("six"), endpoints("six", ["[2001:db8::1]:80"]))
    assert select(inventory(mesh), endpoints=("[2001:db8:0::1]:80",)) == ["[2001:db8::1]:80"]


def test_endpoint_in_several_clusters_is_one_machine() -> None:
    endpoint = lb_endpoint("10.0.0.1:80")
    additional = endpoint.endpoint.additional_addresses.add().address.socket_address
    additional.address, additional.port_value = "2001:db8::1", 80
    mesh = mesh_of(
        eds_cluster("x"),
        eds_cluster("y", "shared"),
        eds_cluster("z", "shared"),
        endpoints("x", {Locality("a", "eu"): [endpoint]}),
        endpoints("shared", {Locality("b"): ["10.0.0.1:80", "10.0.0.2:80"]}),
    )
    found = inventory(mesh)
    first, second = found.machines.values()
    assert list(map(str, first.addresses)) == ["10.0.0.1:80", "[2001:db8::1]:80"]
    assert first.members == {
        0: [
            Member("x", Place("eu", "a")),
            Member("y", Place(zone="b")),
            Member("z", Place(zone="b")),
        ]
    }
    assert second.name == "10.0.0.2:80"
    assert select(found, endpoints=("[2001:db8::1]:80",)) == ["10.0.0.1:80"]


def test_member_depends_on_the_mesh_and_the_cluster() -> None:
    found = inventory(two_zones(), two_zones(c=[A1]), two_zones(b=[B1]))
    machine = found.machines[A1]
    zones = [machine.member_in(number, {"cart"}).locality.zone for number in range(3)]
    # A machine that is not in the third mesh has its member of an earlier one.
    assert zones == ["a", "c", "c"]
    assert found.machines[B1].member_in(1, {"cart"}).locality.zone == "b"


def test_selection_depends_on_the_mesh() -> None:
    found = inventory(two_zones(a=[A1], b=[B1]), two_zones(a=[B1]))
    names = [[each.name for each in found.select(Selector(zones=("a",)), n)] for n in range(2)]
    # A machine that left the mesh has its last member.
    assert names == [[A1], [A1, B1]]


def test_machine_of_a_later_mesh_has_a_member_before() -> None:
    found = inventory(two_zones(a=[A1]), two_zones(b=[B1]))
    assert found.machines[B1].member_in(0, {"cart"}).locality.zone == "b"


def test_aggregate_selects_its_leaves() -> None:
    mesh = mesh_of(
        aggregate_cluster("top", ["middle", "x"]),
        aggregate_cluster("middle", ["y", "top"]),
        eds_cluster("x"),
        eds_cluster("y"),
        endpoints("x", [A1]),
        endpoints("y", [B1]),
    )
    found = inventory(mesh)
    assert found.leaves(["top"]) == {"top", "middle", "x", "y"}
    assert select(found, clusters=("middle",)) == [A1, B1]
    assert found.clusters == ["middle", "top", "x", "y"]


def test_dns_name_has_a_made_up_address_or_those_of_the_script() -> None:
    mesh = mesh_of(
        dns_cluster("db", "db.example", 5432),
        dns_cluster("db-too", "db.example", 5433),
        dns_cluster("ip", "10.9.9.9", 1),
        dns_cluster("gone", "gone.example", 1),
        dns_cluster("two", "two.example", 80),
    )
    dns = {"two.example": ("10.8.0.1", "10.8.0.2"), "gone.example": ()}
    found = inventory(mesh, dns=dns)
    (made_up,) = found.names["db.example"]
    assert list(found.machines) == [
        f"{made_up}:5432",
        f"{made_up}:5433",
        "10.9.9.9:1",
        "10.8.0.1:80",
        "10.8.0.2:80",
    ]
    assert found.names == {"db.example": [made_up], "two.example": ["10.8.0.1", "10.8.0.2"]}


def test_tls_is_removed_and_noted() -> None:
    cluster = eds_cluster("cart")
    tls = message_class("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext")()
    cluster.transport_socket.name = "tls"
    cluster.transport_socket.typed_config.type_url = f"x/{tls.DESCRIPTOR.full_name}"
    mesh = mesh_of(cluster, endpoints("cart", [A1]))
    (served,) = [each for each in mesh.resources if each.type_url == CLUSTER]
    assert served == Resource.of(eds_cluster("cart"))
    (note,) = mesh.notes
    assert note.startswith("cluster 'cart': transport_socket is left out")


def test_resource_that_clients_reject_is_noted_and_served() -> None:
    cluster = eds_cluster("cart")
    cluster.type = cluster.STATIC
    mesh = mesh_of(cluster, endpoints("cart", [A1]))
    (note,) = mesh.notes
    assert note.startswith("clients will refuse ")
    assert 'cluster "cart"' in note
    assert "STATIC" in note
    assert len(mesh.resources) == 2


def test_targets_are_the_api_listeners() -> None:
    mesh = mesh_of(
        listener("a b", [route(cluster="x")]),
        socket_listener("proxy", "0.0.0.0:80", [route(cluster="x")]),
        listener("xdstp://other/envoy.config.listener.v3.Listener/x", [route(cluster="x")]),
    )
    assert mesh.targets == ("xds:///a%20b",)


# Check of scripts


def test_unknown_names_are_errors_at_their_paths() -> None:
    found = problems(
        """
        dns: {db: 10.0.0.1}
        events:
          - {at: 1s, kill: {zone: c}}
          - {at: 2s, control_plane: {withhold: {clusters: [cart, card]}}}
        expect:
          - {only_zones: [a, d], only_clusters: [cat], only_endpoints: ["10.1.0.1:80", "x"]}
        """
    )
    known = "there are zones a, b; clusters cart"
    assert found == [
        ("events[0].kill", f"no endpoint fits zone c: {known}"),
        ("events[1].control_plane", "there is no 'card', wanted one of cart"),
        ("expect[0].only_zones", f"there is no 'd': {known}"),
        ("expect[0].only_clusters", f"there is no 'cat': {known}"),
        ("expect[0].only_endpoints", f"there is no 'x': {known}"),
        ('dns["db"]', "no LOGICAL_DNS cluster has this name"),
    ]


def test_sizes_have_limits() -> None:
    many = [f"10.{n // 250}.{n % 250}.1:80" for n in range(MACHINES_MAX + 1)]
    texts = [text for _, text in problems("clients: 11", two_zones(a=many))]
    pair = f"11 clients and {MACHINES_MAX + 1} endpoints"
    assert texts == [
        f"the mesh has {MACHINES_MAX + 1} endpoints, wanted at most {MACHINES_MAX}",
        f"{pair} make too many connections, wanted at most {CONNECTIONS_MAX}",
    ]
    targets: Any = [f"xds:///{n}" for n in range(CHANNELS_MAX // 100 + 1)]
    ((_, text),) = problems(f"{{clients: 100, target: {targets}}}")
    assert (
        text == f"100 clients and 6 targets make too many channels, wanted at most {CHANNELS_MAX}"
    )


def test_mesh_without_a_target_is_an_error() -> None:
    mesh = mesh_of(eds_cluster("cart"), endpoints("cart", [A1]))
    assert problems("", mesh) == [
        ("", "there is no listener with an api_listener, wanted one, or a target")
    ]


def test_collections_of_endpoints_are_noted() -> None:
    name = "xdstp://mesh/envoy.config.endpoint.v3.LbEndpoint/web/*"
    mesh = Mesh.of([Resource.of(eds_cluster("web")), Resource.of(endpoints("web", {0: name}))])
    (note,) = mesh.notes
    assert "collections of endpoints are left out" in note
