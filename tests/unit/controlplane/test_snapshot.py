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
from tests.unit.controlplane.ads_world import mesh


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


def test_a_name_may_be_there_once_per_type() -> None:
    with pytest.raises(ValueError, match="cluster 'a' is there twice"):
        Snapshot.of([eds_cluster("a"), eds_cluster("a")], partial=True)


def test_only_types_that_change_get_a_new_version() -> None:
    before = mesh("a")
    after = before.with_(endpoints("a", ["10.0.0.9:1"]))
    assert versions(before) == {"LDS": "1", "RDS": "1", "CDS": "1", "EDS": "1"}
    assert versions(after) == {"LDS": "1", "RDS": "1", "CDS": "1", "EDS": "2"}
    assert after.version == "2"


def test_types_that_do_not_change_are_shared() -> None:
    before = mesh("a")
    after = before.with_(endpoints("a", ["10.0.0.9:1"]))
    assert after.resources(CLUSTER) is before.resources(CLUSTER)
    assert after.resources(ENDPOINTS) is not before.resources(ENDPOINTS)


def test_the_same_again_is_no_change() -> None:
    before = mesh("a")
    after = before.with_(eds_cluster("a"), version="9")
    assert after.version == "1"
    assert after.resources(CLUSTER) is before.resources(CLUSTER)


def test_the_old_snapshot_stays_as_it_was() -> None:
    before = mesh("a")
    before.with_(eds_cluster("b"), endpoints("b", []))
    assert list(before.resources(CLUSTER)) == ["a"]
    with pytest.raises(TypeError):
        before.resources(CLUSTER)["x"] = before.get(CLUSTER, "a")  # type: ignore[index]


def test_without_takes_away_and_refuses_what_is_not_there() -> None:
    snapshot = mesh("a").with_(endpoints("b", []))
    assert list(snapshot.without(ENDPOINTS, "b").resources(ENDPOINTS)) == ["a"]
    with pytest.raises(KeyError):
        snapshot.without(ENDPOINTS, "z")


def test_replaced_has_no_others() -> None:
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
def test_versions_are_counted_on(version: str, following: str) -> None:
    snapshot = Snapshot.of([endpoints("a", [])], version=version)
    assert snapshot.with_(endpoints("b", [])).version == following
    assert snapshot.with_(endpoints("b", []), version="x").version == "x"


# Completeness


def test_every_reference_that_leads_nowhere_is_named_by_its_path() -> None:
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
        "error:there is no endpoints 'c']"
    )


def test_a_partial_snapshot_must_be_asked_for() -> None:
    partial = Snapshot.of([listener("api", "r")], partial=True)
    assert partial.check().count == 1
    # What is made of it is as partial, unless told otherwise.
    assert partial.with_(listener("b", "r")).is_partial
    with pytest.raises(ValidationError):
        partial.with_(listener("b", "r"), partial=False)
    assert not partial.with_(route_config("r"), partial=False).is_partial


def test_taking_away_what_is_needed_is_refused() -> None:
    with pytest.raises(ValidationError, match="there is no cluster 'a'"):
        mesh("a").without(CLUSTER, "a")
    assert mesh("a").without(CLUSTER, "a", partial=True).get(CLUSTER, "a") is None


def test_what_is_added_is_checked_and_what_was_complete_stays_so() -> None:
    snapshot = mesh("a")
    with pytest.raises(ValidationError, match="there is no cluster 'z'"):
        snapshot.with_(route_config("more", route(cluster="z")))
    assert snapshot.with_(route_config("more", route(cluster="a"))).check().ok
    # A partial one is not known to be complete: then all of it counts.
    partial = Snapshot.of([listener("api", "r")], partial=True)
    with pytest.raises(ValidationError, match="there is no route config 'r'"):
        partial.with_(endpoints("a", []), partial=False)


def test_a_snapshot_shows_its_version_and_counts() -> None:
    shown = "<Snapshot '1' listener: 1, route config: 1, cluster: 2, endpoints: 2>"
    assert repr(mesh("a", "b")) == shown
    assert repr(Snapshot.of(())) == "<Snapshot '1' empty>"
