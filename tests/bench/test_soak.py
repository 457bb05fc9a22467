"""Soak: its parameters, its output, and a short run of it."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import TYPE_CHECKING

from bench import soak
from bench.soak import (
    Load,
    Outcome,
    Plane,
    change_steadily,
    format_outcomes,
    is_good,
    parse_arguments,
    to_json,
)
from bench.soak_plane import CLUSTERS, STEPS_PER_ROUTES, resources_of
from proxyless.controlplane import CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIG, Snapshot

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PORTS = [5001, 5002]


def outcome(client: str = "proxyless", failed: int = 0, newest_s: float | None = 0.5) -> Outcome:
    texts = {"UNAVAILABLE: gone": failed} if failed else {}
    codes = {"UNAVAILABLE": failed} if failed else {}
    return Outcome(client, 1_000, failed, codes, texts, 0.5, 2.0, 20.0, newest_s)


def changed_types(before: int, after: int) -> set[str]:
    old = Snapshot.of(resources_of(before, PORTS))
    new = old.replaced(resources_of(after, PORTS))
    types = (LISTENER, ROUTE_CONFIG, CLUSTER, ENDPOINTS)
    return {each for each in types if old.version_of(each) != new.version_of(each)}


def test_every_third_step_replaces_listener_and_routes_and_the_others_do_not() -> None:
    for step in range(2 * STEPS_PER_ROUTES):
        changed = changed_types(step, step + 1)
        assert ENDPOINTS in changed
        assert (LISTENER in changed) == ((step + 1) % STEPS_PER_ROUTES == 0)
        # No cluster is deleted: a client that reconnects may still have old routes.
        assert CLUSTER not in changed


def test_new_routes_lead_to_a_cluster_that_the_old_ones_do_not_name() -> None:
    def routed(step: int) -> set[str]:
        (found,) = [each for each in resources_of(step, PORTS) if "virtual_hosts" in str(each)]
        (route,) = found.virtual_hosts[0].routes
        return {each.name for each in route.route.weighted_clusters.clusters}

    eras = [routed(era * STEPS_PER_ROUTES) for era in range(CLUSTERS)]
    assert all(len(after - before) == 1 for before, after in pairwise(eras))


def test_run_is_good_only_if_none_of_our_rpcs_failed_and_the_last_config_came() -> None:
    assert is_good([outcome(), outcome("grpcio", failed=5)])
    assert not is_good([outcome(failed=1), outcome("grpcio")])
    assert not is_good([outcome(newest_s=None)])


def test_output_has_a_row_per_client_and_the_texts_of_failures() -> None:
    lines = format_outcomes([outcome(), outcome("grpcio", failed=5, newest_s=None)]).splitlines()
    assert lines[1].split()[:3] == ["proxyless", "1,000", "0"]
    assert lines[2].split()[-1] == "never"
    assert lines[3] == "grpcio: 5 times UNAVAILABLE: gone"
    assert json.dumps(to_json(Load(), [outcome()]))


def test_mixed_mode_has_every_mode_in_turn() -> None:
    load, _ = parse_arguments(["--mode", "mixed"])
    assert [load.mode_of(each) for each in range(5)] == [*soak.MODES, soak.MODES[0]]
    assert parse_arguments(["--mode", "kill"])[0].mode_of(3) == "kill"


class SlowPlane(Plane):
    """Control plane whose answers to orders the test releases."""

    def __init__(self) -> None:
        super().__init__(PORTS)
        self.is_ordered, self.may_answer = asyncio.Event(), asyncio.Event()
        self.answered = 0

    async def change(self) -> None:
        self.is_ordered.set()
        await self.may_answer.wait()
        self.answered += 1


async def test_end_of_the_churn_waits_for_the_answer_to_the_last_order() -> None:
    plane, is_over = SlowPlane(), asyncio.Event()
    churn = asyncio.create_task(change_steadily(plane, Load(changes_per_s=1e6), is_over))
    await plane.is_ordered.wait()
    is_over.set()
    plane.may_answer.set()
    await churn
    assert plane.answered == 1


def test_none_of_our_rpcs_fails_in_a_short_soak(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "soak.json"
    code = soak.main(["--quick", "--clients", "proxyless", "--json", str(path)])
    assert code == 0, capfd.readouterr().out
    (result,) = json.loads(path.read_text())["clients"]
    assert (result["client"], result["failed"]) == ("proxyless", 0)
    assert result["rpcs"] > 1_000
