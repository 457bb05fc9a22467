"""A62 with xDS: pick_first as the policy of a cluster, and below an aggregate."""

from __future__ import annotations

import pytest

from proxyless.base import OK, State, StatusCode
from proxyless.channel.options import IDLE_TIMEOUT_S
from tests.worlds.meshes import MeshWorld, spying
from tests.worlds.xds_resources import (
    aggregate,
    cluster,
    dns,
    endpoints,
    locality,
    prioritized,
    route_config,
)

A, B, C, D = (f"10.0.0.{number}:80" for number in range(1, 5))
PICK_FIRST: tuple[dict[str, object], ...] = ({"pick_first": {}},)
GUARD = "GRPC_EXPERIMENTAL_PICKFIRST_LB_CONFIG"


@pytest.mark.spec("A62-14")
def test_rpcs_stay_on_the_second_leaf_when_the_first_cannot_connect() -> None:
    world = MeshWorld()
    world.backend(A).is_up = world.backend(B).is_up = False
    world.start(
        route_config("top"),
        aggregate("top", "dead", "alive"),
        dns("dead", "backend.example", lb_config=PICK_FIRST),
        cluster("alive"),
        endpoints("alive", C),
    )
    world.dns.respond("backend.example:80", A, B)
    world.settle()
    for _ in range(50):
        assert world.send_rpc() == C
        assert world.channel.state is State.READY
        # Attempts to the dead addresses are repeated, and RPCs never use them.
        world.backend(A).up()
        world.backend(A).is_up = False
        world.clock.advance(2.0)


@pytest.mark.spec("A62-04")
def test_rpcs_fail_and_wait_for_ready_ones_stay_queued_when_all_addresses_failed() -> None:
    world = MeshWorld()
    world.backend(A).is_up = world.backend(B).is_up = False
    world.start(route_config("a"), cluster("a", lb_config=PICK_FIRST), endpoints("a", A, B))
    world.clock.advance(1.0)
    _, failing = world.call()
    assert failing.status.code is StatusCode.UNAVAILABLE
    assert f"{B}: connection refused" in failing.status.details
    _, waiting = world.call(wait_for_ready=True)
    world.clock.advance(10.0)
    assert waiting.is_running
    world.backend(B).up()
    world.settle()
    world.respond_to_all()
    assert waiting.status == OK


@pytest.mark.spec("A62-26")
def test_pick_first_gets_all_localities_of_a_priority_as_one_list() -> None:
    names = ("weighted_target_experimental", "xds_wrr_locality_experimental", "pick_first")
    registries, spies = spying(*names)
    world = MeshWorld(registries)
    world.start(
        route_config("a"),
        cluster("a", lb_config=PICK_FIRST),
        prioritized("a", [locality("x", A, B), locality("y", C, weight=9)], [locality("z", D)]),
    )
    assert {world.send_rpc() for _ in range(10)} == {A}
    assert spies["weighted_target_experimental"].created == []
    assert spies["xds_wrr_locality_experimental"].created == []
    found = spies["pick_first"].updates[0].endpoints
    assert isinstance(found, tuple)
    assert [str(endpoint) for endpoint in found] == [A, B, C]
    world.backend(A).down()
    world.backend(B).is_up = False
    world.clock.advance(1.0)
    world.call(wait_for_ready=True)
    world.clock.advance(1.0)
    world.respond_to_all()
    assert world.send_rpc() == C, "only one locality is used"


@pytest.mark.spec("A62-28")
@pytest.mark.parametrize("value", [None, "true", "false"])
def test_guard_does_not_affect_sticky_failure_and_idle_timeout(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(GUARD, raising=False)
    if value is not None:
        monkeypatch.setenv(GUARD, value)
    world = MeshWorld()
    world.backend(A).is_up = False
    world.start(route_config("a"), cluster("a", lb_config=PICK_FIRST), endpoints("a", A))
    world.clock.advance(1.0)
    # TRANSIENT_FAILURE is sticky: RPCs fail instead of waiting while it reconnects.
    world.backend(A).up()
    world.backend(A).connect = lambda: None  # type: ignore[method-assign]
    world.settle()
    _, observer = world.call()
    assert observer.status.code is StatusCode.UNAVAILABLE
    del world.backend(A).connect
    world.backend(A).connect()
    world.settle()
    assert world.send_rpc() == A
    world.clock.advance(IDLE_TIMEOUT_S + 1.0)
    assert world.channel.state is State.IDLE
