"""SPIFFE trust bundle maps of our client beside grpcio's.

One control plane, one bootstrap, one server; each case runs with both clients.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from proxyless.controlplane import ControlPlane, eds_cluster
from tests.certificates import CertificateAuthority
from tests.worlds.grpcio_peers import WHERE, grpcio_client
from tests.worlds.mtls import (
    TARGET,
    ProviderFiles,
    TlsBackend,
    Trust,
    bootstrap_of,
    joined,
    mesh,
    refusal,
    secured,
)
from tests.worlds.mtls import tls_backends as serving

if TYPE_CHECKING:
    from pathlib import Path

OURS, THEIRS = CertificateAuthority("ours"), CertificateAuthority("theirs")
A_ID, B_ID = "spiffe://a.example/orders", "spiffe://b.example/orders"
BETWEEN = CertificateAuthority("between", parent=OURS)
SAME = CertificateAuthority("same"), CertificateAuthority("same")
BOTH = {"a.example": [OURS], "b.example": [THEIRS]}
BOTH_SAME = {"a.example": SAME[:1], "b.example": SAME[1:]}


@pytest.mark.spec(
    "A87-02",
    "A87-03",
    "A87-04",
    "A87-05",
    reason="one table of servers, each of them asked by grpcio and by us",
)
@pytest.mark.parametrize(
    ("bundles", "authority", "names", "is_trusted"),
    [
        (BOTH, OURS, [A_ID], True),
        (BOTH, THEIRS, [B_ID], True),
        (BOTH, OURS, [B_ID], False),
        (BOTH, THEIRS, [A_ID], False),
        (BOTH, OURS, ["spiffe://c.example/orders"], False),
        (BOTH, OURS, ["orders.example"], False),
        (BOTH, OURS, [A_ID, "spiffe://a.example/other"], False),
        (BOTH, OURS, ["spiffe://a.example//orders"], False),
        (BOTH, OURS, ["spiffe://a.example"], True),
        (BOTH, OURS, [A_ID, "orders.example"], True),
        (BOTH, BETWEEN, [A_ID], True),
        (BOTH, BETWEEN, [B_ID], False),
        ({"a.example": [BETWEEN]}, BETWEEN, [A_ID], True),
        ({"a.example": [THEIRS, OURS]}, OURS, [A_ID], True),
        ({"a.example": []}, OURS, [A_ID], False),
        ({}, OURS, [A_ID], False),
        (BOTH_SAME, SAME[0], [A_ID], True),
        (BOTH_SAME, SAME[1], [B_ID], True),
        (BOTH_SAME, SAME[0], [B_ID], False),
    ],
)
async def test_proxyless_and_grpcio_trust_the_same_servers(
    tmp_path: Path,
    bundles: dict[str, list[CertificateAuthority]],
    authority: CertificateAuthority,
    names: list[str],
    is_trusted: bool,
) -> None:
    files = ProviderFiles(tmp_path / "mesh")
    files.write_identity(OURS)
    files.write_map(bundles)
    trust = Trust(authority, OURS.certificate_pem, names)
    async with (
        serving(TlsBackend("a", trust)) as started,
        ControlPlane(mesh(secured(eds_cluster("orders")), *started)) as plane,
        grpcio_client(
            for_grpcio(bootstrap_of(plane, mesh=files)),
            TARGET,
            credentials="xds",
            GRPC_EXPERIMENTAL_XDS_MTLS_SPIFFE="true",
        ) as grpcio,
        joined(plane, mesh=files) as where,
    ):
        [theirs] = await grpcio.call(WHERE)
        assert (theirs == "a") is is_trusted, theirs
        if is_trusted:
            assert await where() == "a"
        else:
            assert "TLS: certificate refused" in await refusal(where)


def for_grpcio(bootstrap: dict[str, Any]) -> dict[str, Any]:
    """With the name that grpcio 1.85 has for the field; A87's is not known to it."""
    text = json.dumps(bootstrap)
    return dict(json.loads(text.replace("spiffe_trust_bundle_map_file", "spiffe_bundle_map_file")))
