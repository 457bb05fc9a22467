"""What do the parts of the xDS tree tell each other beside configs?"""

from __future__ import annotations

import gc
import weakref
from typing import Any

from proxyless.xds.resources import CertificateInstance, UpstreamTls
from proxyless.xds.security.cluster_tls import cluster_tls
from tests.cluster_world import BOOTSTRAP


class FakeClient:
    """As much of a client as is looked at."""

    def __init__(self) -> None:
        self.bootstrap = BOOTSTRAP


def make_client() -> Any:  # noqa: ANN401 - in place of an XdsClient
    return FakeClient()


def test_the_tls_of_a_cluster_is_one_for_all_channels_of_a_client() -> None:
    client, other = make_client(), make_client()
    one = cluster_tls(client, "orders")
    one.tls = UpstreamTls(ca=CertificateInstance("roots"))
    assert cluster_tls(client, "orders") is one
    assert cluster_tls(client, "payments") is not one
    assert cluster_tls(other, "orders") is not one
    assert cluster_tls(other, "orders").tls is None
    assert one.providers is BOOTSTRAP.certificate_providers


def test_it_is_forgotten_with_its_last_user() -> None:
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
