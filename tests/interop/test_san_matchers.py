"""Verdicts of SAN matchers, beside grpcio's, with TLS on real sockets.

Specs: A29 (server authorization).

One server, whose certificate has names of several types, and one cluster for each matcher. RPCs
choose the cluster by a header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

import proxyless
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
)
from tests.certificates import CertificateAuthority
from tests.worlds.grpcio_peers import WHERE, grpcio_client
from tests.worlds.mtls import (
    TARGET,
    ProviderFiles,
    TlsBackend,
    Trust,
    bootstrap_of,
    secured,
    tls_backends,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from proxyless.front import AioChannel

NAMES = [
    "Orders.example",
    "*.wild.example",
    "spiffe://mesh.example/Orders",
    "192.0.2.7",
    "2001:db8::1",
]
URI = NAMES[2]
# grpcio compares all names by the rules of DNS, and so ignores the case of a URI.
LAX = {"exact": URI.lower()}

# Matchers, and whether the server is accepted. grpcio accepts one more: see `LAX`.
CASES: list[tuple[dict[str, Any], bool]] = [
    # exact: DNS names ignore case, and may have a wildcard.
    ({"exact": "Orders.example"}, True),
    ({"exact": "orders.example"}, True),
    ({"exact": "ORDERS.EXAMPLE", "ignore_case": True}, True),
    ({"exact": "orders.example."}, True),
    ({"exact": "other.example"}, False),
    ({"exact": "orders"}, False),
    ({"exact": "a.wild.example"}, True),
    ({"exact": "b.a.wild.example"}, False),
    ({"exact": "wild.example"}, False),
    ({"exact": URI}, True),
    (LAX, False),
    ({"exact": URI.upper(), "ignore_case": True}, True),
    ({"exact": "192.0.2.7"}, True),
    ({"exact": "192.0.2.8"}, False),
    ({"exact": "2001:db8::1"}, True),
    ({"exact": "2001:0db8:0:0:0:0:0:1"}, False),
    # prefix
    ({"prefix": "Orders."}, True),
    ({"prefix": "orders."}, False),
    ({"prefix": "oRDERS.", "ignore_case": True}, True),
    ({"prefix": "rders"}, False),
    ({"prefix": "spiffe://mesh.example/"}, True),
    ({"prefix": "192.0.2."}, True),
    # suffix
    ({"suffix": ".example"}, True),
    ({"suffix": "/Orders"}, True),
    ({"suffix": "/orders"}, False),
    ({"suffix": "/orders", "ignore_case": True}, True),
    ({"suffix": "Orders.exampl"}, False),
    ({"suffix": "::1"}, True),
    # contains
    ({"contains": "mesh.example"}, True),
    ({"contains": "MESH.example"}, False),
    ({"contains": "MESH.example", "ignore_case": True}, True),
    ({"contains": "payments"}, False),
    # safe_regex matches the whole name, and ignores ignore_case.
    ({"safe_regex": {"regex": "spiffe://.*/Orders"}}, True),
    ({"safe_regex": {"regex": "spiffe://.*/Ord"}}, False),
    ({"safe_regex": {"regex": "/Orders"}}, False),
    ({"safe_regex": {"regex": "spiffe://.*/orders"}}, False),
    ({"safe_regex": {"regex": "(?i)spiffe://.*/orders"}}, True),
    ({"safe_regex": {"regex": r"192\.0\.2\.[0-9]+"}}, True),
]


def mesh(backend: TlsBackend, matchers: Mapping[str, Mapping[str, Any]]) -> Snapshot:
    """One cluster for each matcher, by its name."""
    routes = [route(headers={"case": name}, cluster=name) for name in matchers]
    clusters = [secured(eds_cluster(name), matcher) for name, matcher in matchers.items()]
    places = [endpoints(name, [backend.address]) for name in matchers]
    return Snapshot.of([listener("api", routes), *clusters, *places])


async def test_both_accept_the_same_servers(tmp_path: Path) -> None:
    matchers = {f"c{number}": matcher for number, (matcher, _) in enumerate(CASES)}
    authority = CertificateAuthority()
    files = ProviderFiles(tmp_path / "mesh")
    files.write_roots(authority)
    files.write_identity(authority)
    trust = Trust(authority, authority.certificate_pem, NAMES)
    ours: list[bool] = []
    theirs: list[bool] = []
    async with (
        tls_backends(TlsBackend("a", trust)) as (backend,),
        ControlPlane(mesh(backend, matchers)) as plane,
        grpcio_client(bootstrap_of(plane, mesh=files), TARGET, credentials="xds") as grpcio,
        proxyless.aio.secure_channel(
            TARGET,
            proxyless.xds_channel_credentials(proxyless.local_channel_credentials()),
            bootstrap=bootstrap_of(plane, mesh=files),
        ) as channel,
    ):
        for name in matchers:
            [answer] = await grpcio.call(WHERE, metadata={"case": name})
            theirs.append(answer == "a")
            ours.append(await is_accepted_by_us(channel, name))
        assert not plane.nacks
    assert ours == [is_accepted for _, is_accepted in CASES]
    assert theirs == [is_accepted or matcher is LAX for matcher, is_accepted in CASES]


async def is_accepted_by_us(channel: AioChannel, case: str) -> bool:
    call = channel.unary_unary(WHERE)
    try:
        return bool(await call(b"", timeout=20.0, metadata=(("case", case),)) == b"a")
    except grpc.aio.AioRpcError as error:
        if "certificate check failure" not in str(error.details()):
            raise
        return False
