"""Unit tests of proxyless.observe.offline."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from proxyless.assembly import Registries
from proxyless.controlplane import (
    Resource,
    Snapshot,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    lb_endpoint,
    listener,
    route,
    route_config,
    socket_listener,
    virtual_host,
)
from proxyless.observe import (
    Explanation,
    OfflineMesh,
    ResourceRow,
    Rpc,
    explain_offline,
    unknown_bootstrap,
)
from proxyless.xds.view import ConfigTarget, DecodeContext, resource_types

if TYPE_CHECKING:
    from proxyless.protos import Proto

PATH = "/pkg.Service/Method"
TARGET = ConfigTarget("api", "api")
PLACE = "127.0.0.1:1"
LISTENER = listener("api", "routes")
ROUTES = route_config("routes", route(cluster="a"))


def mesh(*resources: Proto) -> OfflineMesh:
    known = Registries()
    types = resource_types(known.policies, known.filters)
    bootstrap = unknown_bootstrap()
    made = OfflineMesh(types, DecodeContext(bootstrap.servers[0], bootstrap))
    snapshot = Snapshot.of(resources, partial=True)
    made.add((each.type_url, each.name, each.value) for each in snapshot)
    return made


def explained(*resources: Proto) -> Explanation:
    return explain_offline(TARGET, mesh(*resources), Rpc(PATH, authority="api"))


def no_requests(cluster: Proto) -> Proto:
    cluster.circuit_breakers.thresholds.add().max_requests.value = 0
    return cluster


@pytest.mark.parametrize(
    ("resources", "cause"),
    [
        ((), 'listener "api": does not exist'),
        (
            (socket_listener("api", PLACE, "routes"),),
            'listener "api": is not an API listener, wanted one with api_listener',
        ),
        ((LISTENER,), 'route configuration "routes": does not exist'),
        (
            (LISTENER, route_config("routes", virtual_host(domains=["other"]))),
            'route configuration "routes": has no virtual host for "api"',
        ),
        (
            (LISTENER, route_config("routes", route("/x/", cluster="a"))),
            f'route configuration "routes": no route in virtual host "*" matches "{PATH}"',
        ),
        ((LISTENER, ROUTES), 'cluster "a": does not exist'),
        (
            (LISTENER, ROUTES, eds_cluster("a", lb_policy="MAGLEV")),
            ('cluster "a": [field:lb_policy error:is MAGLEV, which is not supported]'),
        ),
        (
            (LISTENER, ROUTES, eds_cluster("a")),
            'cluster "a": endpoints "a": does not exist',
        ),
        (
            (
                LISTENER,
                ROUTES,
                eds_cluster("a"),
                endpoints("a", [lb_endpoint(PLACE, health="UNHEALTHY")]),
            ),
            'cluster "a": endpoints "a": has no endpoint that may be used',
        ),
        (
            (LISTENER, ROUTES, eds_cluster("a"), endpoints("a", [PLACE], drops={"all": 1.0})),
            'cluster "a": drops every RPC, for "all"',
        ),
        (
            (LISTENER, ROUTES, no_requests(eds_cluster("a")), endpoints("a", [PLACE])),
            'cluster "a": circuit breaker lets no RPC through: max_requests is 0',
        ),
        (
            (LISTENER, ROUTES, aggregate_cluster("a", ["b"]), aggregate_cluster("b", ["a"])),
            'cluster "a": aggregate has no leaf cluster: "a" > "b" > "a" is a loop',
        ),
    ],
)
def test_first_line_names_the_cause(resources: tuple[Proto, ...], cause: str) -> None:
    explanation = explained(*resources)
    assert explanation.text == f"{PATH} fails: {cause}"
    assert explanation.problem == cause


def test_good_mesh_has_no_problem() -> None:
    made = mesh(LISTENER, ROUTES, eds_cluster("a"), endpoints("a", [PLACE]))
    explanation = explain_offline(TARGET, made, Rpc(PATH, authority="api"))
    assert explanation.text == f'{PATH} goes to cluster "a"'
    assert not explanation.problem


def test_dns_names_count_as_resolvable() -> None:
    explanation = explained(
        LISTENER,
        ROUTES,
        aggregate_cluster("a", ["b", "c"]),
        dns_cluster("b", "host", 80),
        eds_cluster("c"),
    )
    assert explanation.problem == ""
    assert [leaf.problem for leaf in explanation.find("leaf")] == [
        "",
        'cluster "c": endpoints "c": does not exist',
    ]


def test_default_timeout_is_a_parameter() -> None:
    made = mesh(LISTENER, ROUTES, eds_cluster("a"), endpoints("a", [PLACE]))
    explanation = explain_offline(TARGET, made, Rpc(PATH), default_timeout_s=0.0)
    (timeout,) = explanation.find("timeout")
    assert timeout.facts["timeout_s"] is None


# Resources of a process


def held(kind: Proto, name: str, status: str, error: str = "", *, has_value: bool) -> ResourceRow:
    resource = Resource.of(kind)
    value = resource.value if has_value else b""
    return ResourceRow(resource.type_url, name, status, "1", "", error, "", value)


def test_held_resources_are_used_with_their_errors() -> None:
    made = mesh()
    made.add_held(
        [
            held(LISTENER, "api", "ACKED", has_value=True),
            held(ROUTES, "routes", "NACKED", "newer one refused", has_value=True),
            held(eds_cluster("a"), "a", "REQUESTED", has_value=False),
        ]
    )
    explanation = explain_offline(TARGET, made, Rpc(PATH))
    assert explanation.text == (f'{PATH} fails: cluster "a": was requested and is not here yet')


@pytest.mark.parametrize(
    ("status", "error", "problem"),
    [
        ("DOES_NOT_EXIST", "", "does not exist"),
        ("NACKED", "is bad", "is bad"),
        ("NACKED", "", "was refused"),
        ("NEW_WORD", "", "is NEW_WORD"),
    ],
)
def test_missing_held_resource_has_its_reason(status: str, error: str, problem: str) -> None:
    made = mesh()
    made.add_held([held(LISTENER, "api", status, error, has_value=False)])
    assert explain_offline(TARGET, made, Rpc(PATH)).problem == f'listener "api": {problem}'


def test_resource_whose_contents_are_left_out_is_the_problem() -> None:
    made = mesh()
    row = held(LISTENER, "api", "ACKED", has_value=False)
    made.add_held([replace(row, updated="2026-01-01T00:00:00Z")])
    problem = explain_offline(TARGET, made, Rpc(PATH)).problem
    assert problem == 'listener "api": its contents are left out'


def test_resource_that_is_not_held_is_the_problem() -> None:
    made = mesh()
    made.add_held([held(LISTENER, "api", "ACKED", has_value=True)])
    explanation = explain_offline(TARGET, made, Rpc(PATH))
    assert explanation.problem == 'route configuration "routes": is not held by the process'
