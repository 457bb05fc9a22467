"""Unit tests of proxyless.controlplane.snapshot."""

import pytest

from proxyless.base import ValidationError
from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTE_CONFIG,
    Snapshot,
    aggregate_cluster,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
)
from tests.worlds.ads_clients import mesh


def versions(snapshot: Snapshot) -> dict[str, str]:
    types = {"LDS": LISTENER, "RDS": ROUTE_CONFIG, "CDS": CLUSTER, "EDS": ENDPOINTS}
    return {short: snapshot.version_of(type_url) for short, type_url in types.items()}


def test_resources_are_found_by_type_and_name() -> None:
    snapshot = mesh("a", "b")
    assert list(snapshot.resources(CLUSTER)) == ["a", "b"]
    assert snapshot.get(ENDPOINTS, "a") is not None
    assert snapshot.get(ENDPOINTS, "z") is None
    assert len(snapshot) == 6
    assert {resource.name for resource in snapshot} == {"api", "routes", "a", "b"}


def test_repeated_name_of_a_type_is_rejected() -> None:
    with pytest.raises(ValueError, match="cluster 'a' is there twice"):
        Snapshot.of([eds_cluster("a"), eds_cluster("a")], partial=True)


def test_only_changed_types_get_a_new_version() -> None:
    before = mesh("a")
    after = before.with_(endpoints("a", ["10.0.0.9:1"]))
    assert versions(before) == {"LDS": "1", "RDS": "1", "CDS": "1", "EDS": "1"}
    assert versions(after) == {"LDS": "1", "RDS": "1", "CDS": "1", "EDS": "2"}
    assert after.version == "2"


def test_unchanged_types_are_shared() -> None:
    before = mesh("a")
    after = before.with_(endpoints("a", ["10.0.0.9:1"]))
    assert after.resources(CLUSTER) is before.resources(CLUSTER)
    assert after.resources(ENDPOINTS) is not before.resources(ENDPOINTS)


def test_equal_resource_is_no_change() -> None:
    before = mesh("a")
    after = before.with_(eds_cluster("a"), version="9")
    assert after.version == "1"
    assert after.resources(CLUSTER) is before.resources(CLUSTER)


def test_snapshot_is_immutable() -> None:
    before = mesh("a")
    before.with_(eds_cluster("b"), endpoints("b", []))
    assert list(before.resources(CLUSTER)) == ["a"]
    with pytest.raises(TypeError):
        before.resources(CLUSTER)["x"] = before.get(CLUSTER, "a")  # type: ignore[index]


def test_without_removes_resources_and_rejects_missing_ones() -> None:
    snapshot = mesh("a").with_(endpoints("b", []))
    assert list(snapshot.without(ENDPOINTS, "b").resources(ENDPOINTS)) == ["a"]
    with pytest.raises(KeyError):
        snapshot.without(ENDPOINTS, "z")


def test_replaced_snapshot_has_only_the_given_resources() -> None:
    after = mesh("a").replaced(mesh("b"))
    assert list(after.resources(CLUSTER)) == ["b"]
    assert versions(after) == {"LDS": "1", "RDS": "2", "CDS": "2", "EDS": "2"}
    emptied = after.replaced([])
    assert len(emptied) == 0
    assert emptied.types == ()
    assert versions(emptied)["LDS"] == "3"


@pytest.mark.parametrize(
    ("version", "following"), [("1", "2"), ("v9", "v10"), ("blue", "blue.1"), ("2026-1", "2026-2")]
)
def test_next_version_increments_the_last_number(version: str, following: str) -> None:
    snapshot = Snapshot.of([endpoints("a", [])], version=version)
    assert snapshot.with_(endpoints("b", [])).version == following
    assert snapshot.with_(endpoints("b", []), version="x").version == "x"


# Completeness


def test_error_has_the_path_of_each_reference_without_a_resource() -> None:
    with pytest.raises(ValidationError) as caught:
        Snapshot.of(
            [
                listener("api", "r"),
                route_config("s", route(cluster="x")),
                aggregate_cluster("g", ["y"]),
                eds_cluster("c"),
            ]
        )
    assert str(caught.value) == (
        "snapshot '1': ["
        'field:listener["api"].api_listener.api_listener.rds.route_config_name '
        "error:there is no route config 'r'; "
        'field:route config["s"].virtual_hosts[0].routes[0].route.cluster '
        "error:there is no cluster 'x'; "
        'field:cluster["g"].cluster_type.typed_config.clusters[0] '
        "error:there is no cluster 'y'; "
        'field:cluster["c"].eds_cluster_config.service_name '
        "error:there are no endpoints 'c']"
    )


def test_snapshot_is_partial_only_when_requested() -> None:
    partial = Snapshot.of([listener("api", "r")], partial=True)
    assert partial.check().count == 1
    # A snapshot derived from it is partial by default.
    assert partial.with_(listener("b", "r")).is_partial
    with pytest.raises(ValidationError):
        partial.with_(listener("b", "r"), partial=False)
    assert not partial.with_(route_config("r"), partial=False).is_partial


def test_removal_of_a_referenced_resource_is_rejected() -> None:
    with pytest.raises(ValidationError, match="there is no cluster 'a'"):
        mesh("a").without(CLUSTER, "a")
    assert mesh("a").without(CLUSTER, "a", partial=True).get(CLUSTER, "a") is None


def test_references_of_added_resources_are_checked() -> None:
    snapshot = mesh("a")
    with pytest.raises(ValidationError, match="there is no cluster 'z'"):
        snapshot.with_(route_config("more", route(cluster="z")))
    assert snapshot.with_(route_config("more", route(cluster="a"))).check().ok
    # A partial snapshot may be incomplete, so all references are checked.
    partial = Snapshot.of([listener("api", "r")], partial=True)
    with pytest.raises(ValidationError, match="there is no route config 'r'"):
        partial.with_(endpoints("a", []), partial=False)


def test_repr_has_version_and_counts() -> None:
    shown = "<Snapshot '1' listener: 1, route config: 1, cluster: 2, endpoints: 2>"
    assert repr(mesh("a", "b")) == shown
    assert repr(Snapshot.of(())) == "<Snapshot '1' empty>"
