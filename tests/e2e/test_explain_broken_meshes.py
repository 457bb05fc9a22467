"""Explanations of ten broken meshes: the first line names the cause.

In each mesh an RPC of a real channel fails. The test compares the RPC's details, the result of
`channel.explain`, that of `proxyless.explain_error`, and, where resources are enough, that of
`explain_offline`, without times and ports, with `tests/fixtures/explain/<mesh>.txt`. To update
these files:

    UPDATE_GOLDEN=1 pytest tests/e2e/test_explain_broken_meshes.py

Nine of the meshes run in virtual time; the one with TLS is on real sockets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
import pytest

import proxyless
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    aggregate_cluster,
    eds_cluster,
    endpoints,
    lb_endpoint,
    listener,
    route,
    route_config,
    virtual_host,
)
from proxyless.observe import OfflineMesh, Rpc, explain_offline, unknown_bootstrap
from proxyless.sim import UNARY, World, pause
from proxyless.xds.client.api import DecodeContext
from proxyless.xds.config.dependency_manager import ResourceTypes
from proxyless.xds.config.plan import ConfigTarget
from proxyless.xds.parsing import (
    ClusterType,
    EndpointCollectionType,
    EndpointType,
    ListenerType,
    RouteConfigurationType,
)
from tests.certificates import CertificateAuthority
from tests.worlds.mtls import (
    SERVER_NAMES,
    ProviderFiles,
    TlsBackend,
    Trust,
    bootstrap_of,
    mesh,
    secured,
    tls_backends,
)

if TYPE_CHECKING:
    from proxyless.front import AioChannel
    from proxyless.protos import Proto
    from proxyless.sim.backends import Backend

GOLDEN: Final = Path(__file__).parent.parent / "fixtures" / "explain"
TARGET: Final = "xds:///shop"
TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class Answers:
    """The texts about one mesh."""

    details: str
    explanation: proxyless.Explanation
    error: proxyless.Explanation
    offline: proxyless.Explanation | None = None

    @property
    def text(self) -> str:
        """For the golden file."""
        parts = {
            "details of the failed RPC": self.details,
            "channel.explain": str(self.explanation),
            "proxyless.explain_error, first line": self.error.text,
        }
        if self.offline is not None:
            parts["proxyless explain --config"] = str(self.offline)
        return normalise("\n".join(f"== {title}\n{text}\n" for title, text in parts.items()))


def normalise(text: str) -> str:
    """Without what differs from run to run: ports of real sockets, and times."""
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    return re.sub(r"\b\d+(\.\d+)? s (left|more)", r"N s \2", text)


def check_golden(name: str, answers: Answers) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(answers.text)
    assert answers.text == path.read_text()


# ---------------------------------------------------------------------------------------------
# Nine in virtual time

Act = Callable[["Shop"], Awaitable[None]]


class Shop:
    """A world with two backends, a control plane, and a channel that dials the shop."""

    def __init__(self) -> None:
        self.world = World(seed=1)
        self.near = self.world.backend("near")
        self.far = self.world.backend("far")
        self.control = self.world.control_plane()
        self.channel: AioChannel
        # An RPC that a mesh begins; cancelled with the channel.
        self.under_way: object = None

    def serve(self, *resources: Proto) -> None:
        self.control.set_snapshot(snapshot_of(*resources))

    def ask(self, act: Act | None, timeout_s: float) -> Answers:
        answers = self.world.run(self._story(act, timeout_s), virtual_seconds=120.0)
        assert not self.world.exceptions
        assert not self.world.left_behind
        return answers

    async def _story(self, act: Act | None, timeout_s: float) -> Answers:
        self.channel = self.world.client("till").channel(TARGET)
        if act is not None:
            await act(self)
        error = await failure_of(self.channel, timeout_s=timeout_s)
        # Wait until all other activity has ended.
        await pause(1.0)
        explained = self.channel.explain(UNARY)
        return Answers(str(error.details()), explained, proxyless.explain_error(error))


def snapshot_of(*resources: Proto) -> Snapshot:
    # Partial: a control plane that checks itself would not serve most of these.
    return Snapshot.of([listener("shop", "shop-routes"), *resources], partial=True)


async def failure_of(
    channel: AioChannel, method: str = UNARY, timeout_s: float = TIMEOUT_S
) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary(method)(b"", timeout=timeout_s)
    return caught.value


def where(backend: Backend) -> str:
    return str(backend.address)


def to_web() -> Proto:
    return route_config("shop-routes", route(cluster="web"))


def web(shop: Shop) -> list[Proto]:
    """A route and a cluster that work."""
    return [to_web(), eds_cluster("web"), endpoints("web", [where(shop.near)])]


def no_virtual_host(shop: Shop) -> list[Proto]:
    resources = web(shop)
    hosts = virtual_host(route(cluster="web"), domains=["store.example"])
    return [route_config("shop-routes", hosts), *resources[1:]]


def missing_cluster(_: Shop) -> list[Proto]:
    return [to_web()]


def unhealthy_endpoints(shop: Shop) -> list[Proto]:
    sick = [lb_endpoint(where(each), health="UNHEALTHY") for each in (shop.near, shop.far)]
    return [to_web(), eds_cluster("web"), endpoints("web", sick)]


def refused_cluster(shop: Shop) -> list[Proto]:
    return [to_web(), eds_cluster("web", lb_policy="MAGLEV"), endpoints("web", [where(shop.near)])]


def aggregate_loop(_: Shop) -> list[Proto]:
    return [
        to_web(),
        aggregate_cluster("web", ["east"]),
        aggregate_cluster("east", ["west"]),
        aggregate_cluster("west", ["web"]),
    ]


def two_priorities(shop: Shop) -> list[Proto]:
    places: dict[Any, list[str]] = {0: [where(shop.near)], 1: [where(shop.far)]}
    return [to_web(), eds_cluster("web"), endpoints("web", places)]


def one_at_a_time(shop: Shop) -> list[Proto]:
    cluster = eds_cluster("web")
    cluster.circuit_breakers.thresholds.add().max_requests.value = 1
    return [to_web(), cluster, endpoints("web", [where(shop.near)])]


def all_dropped(shop: Shop) -> list[Proto]:
    return [*web(shop)[:2], endpoints("web", [where(shop.near)], drops={"overload": 1.0})]


async def near_is_behind_a_wall(shop: Shop) -> None:
    """Packets are lost: a connection attempt takes until its timeout."""
    shop.near.host.cut(*shop.world.others(shop.near.host))


async def one_is_under_way(shop: Shop) -> None:
    shop.near.delay_s = 60.0
    shop.under_way = shop.channel.unary_unary(UNARY)(b"", timeout=TIMEOUT_S * 2)
    await pause(1.0)


async def control_plane_is_gone(shop: Shop) -> None:
    await shop.control.stop()


@dataclass(frozen=True)
class Mesh:
    """One of the ten: its resources, and the expected texts."""

    resources: Callable[[Shop], list[Proto]]
    # In the first line of each explanation.
    cause: str
    # In the details of the RPC.
    details: str
    act: Act | None = None
    # Whether resources are enough for the explanation.
    is_offline: bool = False
    timeout_s: float = TIMEOUT_S


MESHES: Final = {
    "no_virtual_host": Mesh(
        no_virtual_host,
        'route configuration "shop-routes": has no virtual host for "shop"',
        'route configuration "shop-routes": has no virtual host for "shop"',
        is_offline=True,
    ),
    "missing_cluster": Mesh(
        missing_cluster,
        'cluster "web": does not exist',
        'cluster "web": does not exist',
        is_offline=True,
        # A control plane has 15 s to send a resource.
        timeout_s=20.0,
    ),
    "unhealthy_endpoints": Mesh(
        unhealthy_endpoints,
        'endpoints "web": has no endpoint that may be used',
        'endpoints "web": has no endpoint that may be used',
        is_offline=True,
    ),
    "refused_cluster": Mesh(
        refused_cluster,
        'cluster "web": [field:lb_policy error:',
        'cluster "web": [field:lb_policy error:',
        is_offline=True,
    ),
    "aggregate_loop": Mesh(
        aggregate_loop,
        '"web" > "east" > "west" > "web" is a loop',
        '"web" > "east" > "west" > "web" is a loop',
        is_offline=True,
    ),
    "stuck_in_failover": Mesh(
        two_priorities,
        "failover timer is pending",
        "Deadline Exceeded while waiting for a connection",
        near_is_behind_a_wall,
    ),
    "circuit_breaker_open": Mesh(
        one_at_a_time,
        "circuit breaker open: 1 of 1 requests in flight",
        "circuit breaker drop",
        one_is_under_way,
    ),
    "all_dropped": Mesh(
        all_dropped,
        'drops every RPC, for "overload"',
        "EDS-configured drop: overload",
        is_offline=True,
    ),
    "control_plane_down": Mesh(
        web,
        'listener "shop": xds server',
        'listener "shop": xds server',
        control_plane_is_gone,
    ),
}


@pytest.mark.parametrize("name", MESHES)
def test_the_first_line_names_the_cause(name: str) -> None:
    broken = MESHES[name]
    shop = Shop()
    resources = broken.resources(shop)
    shop.serve(*resources)
    answers = shop.ask(broken.act, broken.timeout_s)
    if broken.is_offline:
        offline_answer = offline(snapshot_of(*resources))
        answers = Answers(answers.details, answers.explanation, answers.error, offline_answer)
        assert broken.cause in offline_answer.text
    assert broken.details in answers.details
    assert broken.cause in answers.explanation.text
    assert broken.details in answers.error.text
    check_golden(name, answers)


def offline(snapshot: Snapshot) -> proxyless.Explanation:
    known = proxyless.Registries()
    types = ResourceTypes(
        ListenerType(known.filters),
        RouteConfigurationType(known.filters),
        ClusterType(known.policies),
        EndpointType(),
        EndpointCollectionType(),
    )
    bootstrap = unknown_bootstrap()
    made = OfflineMesh(types, DecodeContext(bootstrap.servers[0], bootstrap))
    made.add((each.type_url, each.name, each.value) for each in snapshot)
    return explain_offline(ConfigTarget("shop", "shop", "till"), made, Rpc(UNARY, authority="shop"))


# ---------------------------------------------------------------------------------------------
# One on real sockets


async def test_explanation_names_the_certificate_when_it_is_wrong(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    files = ProviderFiles(tmp_path / "mesh")
    files.write_roots(authority)
    files.write_identity(authority)
    trust = Trust(authority, authority.certificate_pem, SERVER_NAMES)
    cluster = secured(eds_cluster("web"), {"exact": "payments.example"})
    async with (
        tls_backends(TlsBackend("a", trust)) as started,
        ControlPlane(mesh(cluster, *started)) as control_plane,
        proxyless.aio.secure_channel(
            "xds:///api",
            proxyless.xds_channel_credentials(proxyless.local_channel_credentials()),
            bootstrap=bootstrap_of(control_plane, mesh=files),
        ) as channel,
    ):
        error = await failure_of(channel, "/test.Mesh/Where")
        explained = channel.explain("/test.Mesh/Where")
        answers = Answers(str(error.details()), explained, proxyless.explain_error(error))
    for text in (answers.details, answers.explanation.text, answers.error.text):
        assert "payments.example" in text
        assert "orders.example" in text
    check_golden("wrong_san", answers)


def test_every_golden_file_is_used() -> None:
    names: list[Any] = [*MESHES, "wrong_san"]
    assert sorted(path.stem for path in GOLDEN.glob("*.txt")) == sorted(names)
    assert len(names) == 10
