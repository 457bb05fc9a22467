"""Unit tests of proxyless.channel.security."""

from __future__ import annotations

from dataclasses import replace

from proxyless.base import EMPTY_ATTRIBUTES, HTTP_PROXY, Attributes, HttpProxy, IpAddress, Key
from proxyless.channel import ChannelOptions, SubchannelOptions
from proxyless.channel.security import secure_subchannel
from proxyless.transport import ClientTls, TlsSource, TransportOptions

NAME: Key[str] = Key("name")
TLS = ClientTls(server_name="own")
OWN = SubchannelOptions(transport=TransportOptions(tls=TLS, is_local_only=True), server_name="a")


class FixedSource:
    """A source that tests compare by identity."""

    def current(self) -> ClientTls | None:
        return None


class Security:
    """Chooses a source for attributes that have a name."""

    def __init__(self) -> None:
        self.source = FixedSource()

    def choose(self, attributes: Attributes) -> TlsSource | None:
        return None if attributes.get(NAME) is None else self.source

    def release(self) -> None:
        return


def test_options_are_used_without_security() -> None:
    assert secure_subchannel(OWN, None, EMPTY_ATTRIBUTES.with_(NAME, "a")) is OWN


def test_options_are_used_when_security_chooses_nothing() -> None:
    assert secure_subchannel(OWN, Security(), EMPTY_ATTRIBUTES) is OWN


def test_chosen_source_is_added_to_the_options() -> None:
    security = Security()
    secured = secure_subchannel(OWN, security, EMPTY_ATTRIBUTES.with_(NAME, "a"))
    transport = TransportOptions(tls=TLS, is_local_only=True, tls_source=security.source)
    assert secured == SubchannelOptions(transport=transport, server_name="a")
    # Equal if and only if the source is the same.
    assert secured == secure_subchannel(OWN, security, EMPTY_ATTRIBUTES.with_(NAME, "b"))
    assert secured != secure_subchannel(OWN, Security(), EMPTY_ATTRIBUTES.with_(NAME, "a"))


def test_proxy_of_an_endpoint_is_part_of_the_subchannel_options() -> None:
    one, other = (HttpProxy(IpAddress("192.0.2.9", port)) for port in (1, 2))
    through_one, through_other = (
        secure_subchannel(OWN, None, EMPTY_ATTRIBUTES.with_(HTTP_PROXY, each))
        for each in (one, other)
    )
    assert through_one == replace(OWN, transport=replace(OWN.transport, http_proxy=one))
    assert len({OWN, through_one, through_other}) == 3


def test_security_and_proxy_are_combined() -> None:
    security, proxy = Security(), HttpProxy(target="a:1")
    attributes = EMPTY_ATTRIBUTES.with_(NAME, "a").with_(HTTP_PROXY, proxy)
    made = secure_subchannel(OWN, security, attributes).transport
    assert (made.tls, made.tls_source, made.http_proxy) == (TLS, security.source, proxy)
    # The other options are kept.
    own = replace(OWN, transport=replace(OWN.transport, tls_source=security.source))
    made = secure_subchannel(own, None, EMPTY_ATTRIBUTES.with_(HTTP_PROXY, proxy)).transport
    assert (made.tls_source, made.http_proxy) == (security.source, proxy)


def test_scheme_is_https_with_security() -> None:
    assert ChannelOptions().scheme == "http"
    assert ChannelOptions(subchannel=OWN).scheme == "https"
    assert ChannelOptions(security=Security()).scheme == "https"
    assert TransportOptions(tls_source=FixedSource()).scheme == "https"
