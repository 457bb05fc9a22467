"""Random scripts of `proxyless simulate`: RPCs end, invariants hold, runs are repeatable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from proxyless.base import ValidationErrors
from proxyless.controlplane import (
    Locality,
    Resource,
    aggregate_cluster,
    dns_cluster,
    eds_cluster,
    endpoints,
    keep_sessions,
    listener,
    route,
    session_filter,
)
from proxyless.runtime import seeded_random
from proxyless.sim.random_choices import choose
from proxyless.sim.rehearsal import Mesh, Report, parse_script, rehearse
from proxyless.sim.rehearsal.script import ControlFault, Fault

if TYPE_CHECKING:
    from proxyless.runtime import Random

DURATION_S = 60
EVENTS = 12

WHERE: tuple[dict[str, object], ...] = (
    {"zone": "a"},
    {"zone": "b"},
    {"cluster": "cart"},
    {"endpoint": "10.1.0.1:80"},
    {"all": True},
)
EXTRA: dict[Fault, dict[str, object]] = {
    Fault.THROTTLE: {"bytes_per_s": 500},
    Fault.SLOW: {"by": "300ms"},
    Fault.FAIL: {"with": "UNAVAILABLE"},
}
CONTROL: dict[ControlFault, object] = {
    ControlFault.DELAY: {"delay": "3s"},
    ControlFault.WITHHOLD: {"withhold": "endpoints"},
}


def make_mesh(zone_a: list[str], zone_b: list[str], policy: str) -> Mesh:
    where: dict[Any, Any] = {Locality("a"): zone_a, Locality("b", priority=1): zone_b}
    cart = keep_sessions(eds_cluster("cart", lb_policy=policy))
    messages = [
        listener("shop", [route(cluster="top")], filters=[session_filter("s")]),
        aggregate_cluster("top", ["cart", "last"]),
        cart,
        dns_cluster("last", "last.example", 80),
        endpoints("cart", where),
    ]
    return Mesh.of(map(Resource.of, messages))


def random_event(random: Random) -> dict[str, object]:
    at_s = random.randrange(DURATION_S)
    match random.randrange(10):
        case 0 | 1:
            return {"at": at_s, "push": "next"}
        case 2 | 3 | 4:
            fault = choose(random, list(ControlFault))
            return {"at": at_s, "control_plane": CONTROL.get(fault, fault.value)}
        case _:
            endpoint_fault = choose(random, list(Fault))
            return {
                "at": at_s,
                endpoint_fault.value: choose(random, WHERE) | EXTRA.get(endpoint_fault, {}),
            }


def rehearse_seed(seed: int) -> Report:
    random = seeded_random(seed)
    document = {
        "duration": DURATION_S,
        "seed": seed,
        "clients": 2,
        "timeout": choose(random, ("200ms", "2s", "10s")),
        "traffic": [{"rate": 5}, {"rate": 5, "session": True}, {"rate": 2, "wait_for_ready": True}],
        "events": [random_event(random) for _ in range(EVENTS)],
    }
    errors = ValidationErrors()
    script = parse_script(document, errors)
    policy = choose(random, ("ROUND_ROBIN", "LEAST_REQUEST", "RING_HASH"))
    near, far = ["10.1.0.1:80", "10.1.0.2:80"], ["10.2.0.1:80", "10.2.0.2:80"]
    meshes = [make_mesh(near, far, policy)]
    for number in range(len(script.pushes)):
        zones = (near, far) if number % 2 else (far, near)
        meshes.append(make_mesh(*zones, policy))
    report = rehearse(script, meshes, errors)
    assert report is not None, str(errors)
    return report


@pytest.mark.parametrize("seed", range(12))
def test_random_script_holds_all_invariants(seed: int) -> None:
    report = rehearse_seed(seed)
    assert report.is_good, report.verdicts
    assert sum(phase.rpcs for phase in report.phases) == 12 * DURATION_S
    arrived = sum(share.rpcs for phase in report.phases for share in phase.shares)
    assert arrived >= sum(phase.rpcs - phase.failed for phase in report.phases)


def test_reports_of_the_same_seed_are_equal() -> None:
    assert rehearse_seed(3) == rehearse_seed(3)
