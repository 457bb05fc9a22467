"""Unit tests of proxyless.xds.config.plan."""

from __future__ import annotations

import pytest

from proxyless.base import Status, StatusCode
from proxyless.xds.client.api import NoAnswer
from proxyless.xds.config.plan import MISSING, Missing, ResourceState
from tests.worlds.xds_resources import NOT_FOUND, cluster, unavailable

AWAY = NoAnswer(StatusCode.UNAVAILABLE, "does not answer")
SILENT = NoAnswer(StatusCode.NOT_FOUND, "does not exist (not sent)")


@pytest.mark.parametrize(
    ("state", "is_missing", "is_unanswered", "does_not_exist"),
    [
        (MISSING, True, False, False),
        (ResourceState(cluster("a")), False, False, False),
        (ResourceState(cluster("a"), ambient_error=AWAY), False, False, False),
        (ResourceState(error=AWAY), False, True, False),
        (ResourceState(error=SILENT), False, True, True),
        (ResourceState(error=NOT_FOUND), False, False, True),
        (ResourceState(error=unavailable("is invalid")), False, False, False),
    ],
)
def test_state_is_one_of_missing_unanswered_and_answered(
    state: ResourceState[object], is_missing: bool, is_unanswered: bool, does_not_exist: bool
) -> None:
    found = (state.is_missing, state.is_unanswered, state.does_not_exist)
    assert found == (is_missing, is_unanswered, does_not_exist)


def test_no_answer_differs_from_a_status_with_the_same_text() -> None:
    assert Status(AWAY.code, AWAY.details) != AWAY
    assert NoAnswer(AWAY.code, AWAY.details) == AWAY


def test_missing_resource_is_named_with_its_cluster() -> None:
    assert str(Missing('cluster "a"')) == 'cluster "a"'
    assert str(Missing('endpoints "e"', "a")) == 'endpoints "e" of cluster "a"'
