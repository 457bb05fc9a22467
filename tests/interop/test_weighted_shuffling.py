"""Weighted shuffling of pick_first (A113) by grpcio and ours, in one mesh."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

import proxyless
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    lb_endpoint,
    listener,
    route,
)
from proxyless.lb.attributes import WEIGHTED_SHUFFLING_GUARD
from proxyless.protos import message_class
from tests.worlds.grpcio_peers import backends, grpcio_client
from tests.worlds.transports import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PICK_FIRST = "envoy.extensions.load_balancing_policies.pick_first.v3.PickFirst"
NAMES = ("heavy", "b", "c", "d", "e", "f", "g", "h")
HEAVY = 1_000_000
# Without weights, all of them would use the same backend once in 8 ** 3 runs.
CLIENTS = 3


@asynccontextmanager
async def weighted_mesh() -> AsyncIterator[ControlPlane]:
    """A cluster with shuffling, and one backend with nearly all the weight."""
    cluster = eds_cluster("orders")
    policy = cluster.load_balancing_policy.policies.add().typed_extension_config
    policy.name = "pick_first"
    policy.typed_config.Pack(message_class(PICK_FIRST)(shuffle_address_list=True))
    async with backends(*NAMES) as started:
        listed = [
            lb_endpoint(each.address, weight=HEAVY if each.name == "heavy" else 1)
            for each in started
        ]
        resources = [
            listener("api", [route(cluster="orders")]),
            cluster,
            endpoints("orders", listed),
        ]
        async with ControlPlane(Snapshot.of(resources)) as plane:
            yield plane


@pytest.mark.spec("A113-01")
async def test_both_use_the_heaviest_endpoint_when_the_guard_is_true(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(WEIGHTED_SHUFFLING_GUARD, "true")
    answers: list[str] = []
    async with weighted_mesh() as plane:
        for _ in range(CLIENTS):
            async with grpcio_client(plane.bootstrap(), "xds:///api") as client:
                answers += await client.call()
            async with proxyless.aio.insecure_channel(
                "xds:///api", bootstrap=plane.bootstrap()
            ) as channel:
                reply = await channel.unary_unary("/test.Mesh/Where")(b"", timeout=PATIENCE_S)
                answers.append(bytes(reply).decode())
    assert answers == ["heavy"] * (2 * CLIENTS)
