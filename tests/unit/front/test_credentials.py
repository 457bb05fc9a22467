"""Which credentials does an application bring, and what do they mean for us?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import grpc.experimental
import pytest

import proxyless
from proxyless.front import (
    ChannelCredentials,
    composite_channel_credentials,
    insecure_channel_credentials,
    local_channel_credentials,
    ssl_channel_credentials,
    to_channel_credentials,
    xds_channel_credentials,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SSL = ssl_channel_credentials(b"roots", b"key", b"chain")


def same(one: ChannelCredentials, other: ChannelCredentials) -> bool:
    """All that says how connections are secured."""
    return (one.tls, one.is_private, one.is_local) == (other.tls, other.is_private, other.is_local)


@pytest.mark.parametrize(
    "fallback", [SSL, local_channel_credentials(), insecure_channel_credentials()]
)
def test_xds_credentials_are_their_fallback_where_there_is_no_xds(
    fallback: ChannelCredentials,
) -> None:
    credentials = xds_channel_credentials(fallback)
    assert credentials.is_xds
    assert not fallback.is_xds
    assert same(credentials, fallback)
    assert to_channel_credentials(credentials) is credentials


def test_the_fallback_is_tls_unless_told_otherwise() -> None:
    assert same(xds_channel_credentials(), ssl_channel_credentials())


@pytest.mark.parametrize(
    ("fallback", "ours"),
    [
        (grpc.ssl_channel_credentials(b"roots", b"key", b"chain"), SSL),
        (grpc.local_channel_credentials(), local_channel_credentials()),
        (
            grpc.experimental.insecure_channel_credentials(),
            insecure_channel_credentials(),
        ),
    ],
)
@pytest.mark.parametrize("maker", [xds_channel_credentials, grpc.xds_channel_credentials])
def test_those_of_grpcio_are_understood(
    maker: Callable[[Any], Any], fallback: object, ours: ChannelCredentials
) -> None:
    credentials = to_channel_credentials(maker(fallback))
    assert credentials.is_xds
    assert same(credentials, ours)


@pytest.mark.parametrize("maker", [xds_channel_credentials, grpc.xds_channel_credentials])
def test_a_fallback_that_cannot_be_read_is_named(maker: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="channel credentials are ALTSChannelCredentials"):
        to_channel_credentials(maker(grpc.alts_channel_credentials()))


def test_a_fallback_is_not_xds_again() -> None:
    with pytest.raises(TypeError, match="fallback credentials are xDS credentials"):
        xds_channel_credentials(xds_channel_credentials())


def test_call_credentials_go_around_the_whole() -> None:
    token = grpc.access_token_call_credentials("token")
    with pytest.raises(TypeError, match="fallback credentials have call credentials"):
        xds_channel_credentials(composite_channel_credentials(SSL, token))
    credentials = composite_channel_credentials(xds_channel_credentials(SSL), token)
    assert credentials.is_xds
    assert len(credentials.call_credentials) == 1


def test_they_are_at_the_front_doors() -> None:
    assert proxyless.xds_channel_credentials is xds_channel_credentials
    assert proxyless.aio.xds_channel_credentials is xds_channel_credentials
