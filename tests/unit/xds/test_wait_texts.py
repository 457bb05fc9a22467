"""Unit tests of proxyless.xds.wait_texts."""

from __future__ import annotations

import pytest

from proxyless.base import OK, Status, StatusCode
from proxyless.xds.client.api import ResourceDump, ResourceStatus, ServerView
from proxyless.xds.config.plan import Missing, Plan
from proxyless.xds.wait_texts import describe_source

TYPE_URL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
DUMP = ResourceDump(TYPE_URL, "a", ResourceStatus.REQUESTED, "", b"", 0.0, OK, "")
MISSING = Missing('cluster "a"')
DOWN = Status(StatusCode.UNAVAILABLE, 'xds server "td:443": does not answer: refused')


def view(
    status: Status = OK, waits: dict[tuple[str, str], float] | None = None, *, ready: bool = True
) -> ServerView:
    return ServerView("td:443", status, status, ready, False, None, waits or {})


@pytest.mark.parametrize(
    ("servers", "text"),
    [
        ([view(waits={(TYPE_URL, "a"): 12.0})], ', xds server "td:443" has 12 s left to send it'),
        (
            [view(waits={(TYPE_URL, "a"): 0.0})],
            ', xds server "td:443" has not sent it in time, nor answered a ping yet',
        ),
        ([view(DOWN)], f": {DOWN.details}"),
        ([view()], ', xds server "td:443" is connected and has not sent it'),
        ([view(ready=False)], ', xds server "td:443" is being connected'),
        ([], ", there is no server"),
    ],
)
def test_source_of_a_resource_is_its_server(servers: list[ServerView], text: str) -> None:
    assert describe_source(MISSING, Plan(), [DUMP], servers) == text


def test_source_of_a_dns_name_is_dns() -> None:
    plan = Plan(dns={("db.example", 5432): None})
    missing = Missing('dns name "db.example:5432"', "a")
    assert describe_source(missing, plan, [], []) == ", no answer from DNS yet"


def test_resource_that_is_not_watched_yet_has_no_source() -> None:
    assert describe_source(MISSING, Plan(), [], [view()]) == ", not requested yet"
