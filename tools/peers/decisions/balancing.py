"""Cases: hashes, drops, circuit breakers, outlier detection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from proxyless.controlplane import (
    Ejection,
    FailurePercentage,
    circuit_breaker,
    eds_cluster,
    endpoints,
    hash_on,
    lb_endpoint,
    outlier_detection,
    ring_hash,
    route,
)
from tools.peers.decisions.case import case
from tools.peers.decisions.mesh import FAIL_AT, SLOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyless.protos import Proto
    from tools.peers.clients.stacks import Untyped
    from tools.peers.decisions.mesh import Mesh

_KEYS: Final = tuple(f"user-{number}" for number in range(32))
_RING_MAX: Final = 8 * 2**20
_EJECTION_TIMEOUT_S: Final = 15.0


@case("ring_hash by a header: backends of 32 keys", "the same ring", "A42")
async def ring_keys(mesh: Mesh) -> str:
    return await _compare_rings(mesh)


@case("ring_hash: min_ring_size of 4, max_ring_size of 8", "the same ring", "A42")
async def ring_small(mesh: Mesh) -> str:
    return await _compare_rings(mesh, min_size=4, max_size=8)


@case("ring_hash: endpoints with a `hash_key`", "the same ring", "D31, A76")
async def ring_endpoint_keys(mesh: Mesh) -> str:
    return await _compare_rings(mesh, has_keys=True)


@case("ring_hash: a header that is sent twice", "1 backend", "A42")
async def ring_header_twice(mesh: Mesh) -> str:
    await _serve_ring(mesh, hash_on(route(cluster="ring"), "x"))
    metadata = [("x", "1"), ("x", "2")]
    return _count(await mesh.results(count=20, metadata=metadata))


@case("ring_hash: the RPC has no such header", "3 backends", "A42")
async def ring_no_header(mesh: Mesh) -> str:
    await _serve_ring(mesh, hash_on(route(cluster="ring"), "x"))
    return _count(await mesh.results(count=60))


@case("ring_hash: no hash policy", "3 backends", "A42")
async def ring_no_policy(mesh: Mesh) -> str:
    await _serve_ring(mesh, route(cluster="ring"))
    return _count(await mesh.results(count=60))


@case("ring_hash by the channel's id", "1 backend", "A42")
async def ring_channel(mesh: Mesh) -> str:
    await _serve_ring(mesh, hash_on(route(cluster="ring")))
    return _count(await mesh.results(count=20))


@case("ring_hash: a terminal policy, then another header", "1 backend", "A42")
async def ring_terminal(mesh: Mesh) -> str:
    made = hash_on(hash_on(route(cluster="ring"), "x"), "y")
    made.route.hash_policy[0].terminal = True
    await _serve_ring(mesh, made)
    found = {await mesh.results(metadata=[("x", "1"), ("y", str(number))]) for number in range(20)}
    return _count(", ".join(found))


@case("ring_hash: min_ring_size over 8 M", "NACK, UNAVAILABLE", "A42")
async def ring_too_large(mesh: Mesh) -> str:
    await _serve_ring(mesh, route(cluster="ring"), min_size=_RING_MAX + 1)
    return _count(await mesh.verdict())


@case("ring_hash: min_ring_size over max_ring_size", "NACK, UNAVAILABLE", "A42")
async def ring_min_over_max(mesh: Mesh) -> str:
    await _serve_ring(mesh, route(cluster="ring"), min_size=64, max_size=32)
    return _count(await mesh.verdict())


@case("`drop_overloads` of 100 %", "UNAVAILABLE", "A32")
async def drops(mesh: Mesh) -> str:
    return await _drop(mesh, {"all": 1.0})


@case("the same, a wait-for-ready RPC", "UNAVAILABLE", "A32")
async def drops_wait(mesh: Mesh) -> str:
    return await _drop(mesh, {"all": 1.0}, wait_for_ready=True, timeout_s=12.0)


@case("circuit breaker of 2, 5 RPCs at once", "3 UNAVAILABLE, 2 a", "A32")
async def breaker(mesh: Mesh) -> str:
    return await _break(mesh, 2)


@case("the same, and `lrs_server` is set", "3 UNAVAILABLE, 2 a", "A32")
async def breaker_with_reports(mesh: Mesh) -> str:
    return await _break(mesh, 2, has_reports=True)


@case("circuit breaker of 0", "5 UNAVAILABLE", "A32")
async def breaker_zero(mesh: Mesh) -> str:
    return await _break(mesh, 0)


@case("outlier detection by failure percentage", "the failing backend is ejected", "A50")
async def outlier(mesh: Mesh) -> str:
    made = outlier_detection(
        eds_cluster("two"),
        failure_percentage=FailurePercentage(threshold=50, minimum_hosts=2, request_volume=5),
        interval_s=1.0,
        ejection=Ejection(time_s=60.0, max_percent=60),
    )
    await mesh.serve(
        route(cluster="two"),
        more=[made, endpoints("two", [mesh.addresses["a"], mesh.addresses["b"]])],
    )
    await mesh.settle()
    async with asyncio.timeout(_EJECTION_TIMEOUT_S * 2):
        for _ in range(int(_EJECTION_TIMEOUT_S)):
            await mesh.call(FAIL_AT, count=40, body="b")
            if await mesh.results(count=20) == "a":
                return "the failing backend is ejected"
            await asyncio.sleep(1.0)
    return "no ejection"


async def _serve_ring(mesh: Mesh, made: Proto, *, has_keys: bool = False, **sizes: int) -> None:
    cluster = ring_hash(eds_cluster("ring", lb_policy="RING_HASH"), **sizes)
    found = {name: lb_endpoint(address) for name, address in mesh.addresses.items()}
    for name, endpoint in found.items():
        if has_keys:
            endpoint.metadata.filter_metadata["envoy.lb"].update({"hash_key": f"key of {name}"})
    await mesh.serve(made, more=[cluster, endpoints("ring", list(found.values()))])


async def _compare_rings(mesh: Mesh, **settings: Untyped) -> str:
    """Whether the backends of all keys are those of our client, which runs first."""
    await _serve_ring(mesh, hash_on(route(cluster="ring"), "x"), **settings)
    await mesh.settle()
    found = "".join([await mesh.results(metadata=[("x", key)]) for key in _KEYS])
    return "the same ring" if found == mesh.shared.setdefault("ring", found) else "another ring"


def _count(results: str) -> str:
    names: Sequence[str] = results.split(", ")
    if not set(names) <= {"a", "b", "c"}:
        return results
    return f"{len(names)} backend{'s' if len(names) > 1 else ''}"


async def _drop(mesh: Mesh, shares: dict[str, float], **fields: Untyped) -> str:
    assignment = endpoints("one", [mesh.addresses["a"]], drops=shares)
    await mesh.serve(route(cluster="one"), more=[eds_cluster("one"), assignment])
    return await mesh.results(**fields)


async def _break(mesh: Mesh, max_requests: int, *, has_reports: bool = False) -> str:
    cluster = circuit_breaker(eds_cluster("one"), max_requests)
    if has_reports:
        cluster.lrs_server.self.SetInParent()
    await mesh.serve(route(cluster="one"), more=[cluster, endpoints("one", [mesh.addresses["a"]])])
    if max_requests:
        await mesh.settle()
    return await mesh.counts(SLOW, body="2", count=5, concurrent=True)
