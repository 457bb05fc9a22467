"""A backend whose certificate has another name: the error names it, and the next command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

import proxyless
from proxyless.controlplane import ControlPlane, simple_mesh

if TYPE_CHECKING:
    from tests.certificates import CertificateAuthority
    from tests.interop.conftest import Serve

METHOD = "/pkg.Service/Method"


async def test_certificate_for_another_name_is_named_within_the_deadline(
    serve: Serve, authority: CertificateAuthority
) -> None:
    certificate, key = authority.issue(["other.example"])
    backend = await serve(credentials=grpc.ssl_server_credentials([(key, certificate)]))
    mesh = simple_mesh("orders.example", {"web": [str(backend.address)]})
    async with ControlPlane(mesh) as plane:
        server = {"server_uri": plane.address, "channel_creds": [{"type": "insecure"}]}
        bootstrap = {"xds_servers": [server], "node": {"id": "till"}}
        credentials = grpc.ssl_channel_credentials(authority.certificate_pem)
        async with proxyless.aio.secure_channel(
            "xds:///orders.example", credentials, bootstrap=bootstrap
        ) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                await channel.unary_unary(METHOD)(b"", timeout=10.0)
    error = caught.value
    assert isinstance(error, grpc.aio.AioRpcError)
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    details = error.details() or ""
    assert "certificate is not valid for 'orders.example'" in details
    command = f"proxyless explain {METHOD[1:]} --target xds:///orders.example"
    assert details.endswith(f'(node id "till"); see: {command}')
