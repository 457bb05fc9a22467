"""Unit tests of proxyless.controlplane.route_builders."""

from __future__ import annotations

import pytest

from proxyless.base import StatusCode, ValidationErrors
from proxyless.controlplane import (
    CLUSTER,
    Resource,
    Snapshot,
    eds_cluster,
    endpoints,
    fault,
    hash_on,
    match_header,
    retry,
    route,
    service_resources,
    session_filter,
    without_session,
)
from proxyless.protos import Proto, message_class
from proxyless.xds.parsing.route_policies import parse_retry
from tests.worlds.lint import lint_errors


def test_retry_is_as_the_client_parses_it() -> None:
    made = retry(
        route(cluster="a"),
        ["unavailable", "internal"],
        times=3,
        backoff_s=0.1,
        max_backoff_s=0.4,
    )
    parsed = parse_retry(made.route.retry_policy, ValidationErrors())
    assert parsed.codes == {StatusCode.UNAVAILABLE, StatusCode.INTERNAL}
    assert (parsed.num_retries, parsed.backoff_base_s, parsed.backoff_max_s) == (3, 0.1, 0.4)


def test_service_has_the_fault_filter_only_if_a_route_has_a_fault() -> None:
    plain, _ = service_resources("api", route(cluster="a"))
    faulty, _ = service_resources(
        "api",
        fault(route(cluster="a"), delay_s=0.5, abort=StatusCode.INTERNAL, abort_share=0.25),
        filters=[session_filter("id")],
    )
    names = [_filter_names(each) for each in (plain, faulty)]
    assert names == [["router"], ["fault", "session", "router"]]


def _filter_names(listener: Proto) -> list[str]:
    packed = listener.api_listener.api_listener
    manager = message_class(packed.type_url.rpartition("/")[2]).FromString(packed.value)
    return [each.name for each in manager.http_filters]


@pytest.mark.parametrize("kind", ["exact", "prefix", "suffix", "contains", "regex", "present"])
def test_every_kind_of_header_match_is_valid(kind: str) -> None:
    made = match_header(route(cluster="a"), "x", kind, "v", is_inverted=True)
    assert made.match.headers[0].invert_match
    parts = service_resources("api", made)
    assert lint_errors(parts) == []


def test_everything_together_is_valid_for_the_client() -> None:
    made = route("/a.B/", weighted={"a": 1, "b": 2}, timeout_s=1.0)
    for change in (retry, hash_on, without_session):
        assert change(made) is made
    assert hash_on(made, "user") is made
    assert fault(made, delay_s=1.0, delay_share=0.5) is made
    parts = [
        *service_resources("api", made, domains=["api"], filters=[session_filter("id")]),
        eds_cluster("a"),
        eds_cluster("b"),
        endpoints("a", ["10.0.0.1:1"]),
        endpoints("b", ["10.0.0.2:1"]),
    ]
    assert lint_errors(parts) == []
    snapshot = Snapshot.of(map(Resource.of, parts))
    assert set(snapshot.resources(CLUSTER)) == {"a", "b"}
