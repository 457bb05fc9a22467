"""TLS settings of a cluster: shared by the channels of an XdsClient, and weakly referenced."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from proxyless.xds.resources import CertificateInstance, UpstreamTls
from proxyless.xds.security.cluster_tls import cluster_tls
from tests.worlds.xds_messages import BOOTSTRAP


class FakeClient:
    """A client with a bootstrap only."""

    def __init__(self) -> None:
        self.bootstrap = BOOTSTRAP


def make_client() -> Any:  # noqa: ANN401 - in place of an XdsClient
    return FakeClient()


def test_tls_of_a_cluster_is_one_object_per_client() -> None:
    client, other = make_client(), make_client()
    one = cluster_tls(client, "orders")
    one.tls = UpstreamTls(ca=CertificateInstance("roots"))
    assert cluster_tls(client, "orders") is one
    assert cluster_tls(client, "payments") is not one
    assert cluster_tls(other, "orders") is not one
    assert cluster_tls(other, "orders").tls is None
    assert one.providers is BOOTSTRAP.certificate_providers


def test_tls_is_released_with_its_last_user() -> None:
    client = make_client()
    tls = cluster_tls(client, "orders")
    tls.tls = UpstreamTls(ca=CertificateInstance("roots"))
    is_gone, is_client_gone = weakref.ref(tls), weakref.ref(client)
    del tls
    gc.collect()
    assert is_gone() is None
    assert cluster_tls(client, "orders").tls is None
    del client
    gc.collect()
    assert is_client_gone() is None
