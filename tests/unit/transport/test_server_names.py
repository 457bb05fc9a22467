"""Unit tests of proxyless.transport.server_names."""

import pytest

from proxyless.transport.server_names import match_dns_name, match_host, server_name_of
from proxyless.transport.tls import PeerCertificate


@pytest.mark.parametrize(
    ("authority", "name"),
    [
        ("host.example", "host.example"),
        ("host.example:443", "host.example"),
        ("host.example:https", "host.example:https"),
        ("[::1]:443", "::1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
    ],
)
def test_server_name_is_the_authority_without_its_port(authority: str, name: str) -> None:
    assert server_name_of(authority) == name


@pytest.mark.parametrize(
    ("name", "host", "is_match"),
    [
        ("orders.example", "orders.example", True),
        ("Orders.Example", "oRDERS.eXAMPLE", True),
        ("orders.example.", "orders.example", True),
        ("orders.example", "orders.example.", True),
        ("orders.example", "other.example", False),
        ("orders.example", "a.orders.example", False),
        ("*.example", "orders.example", True),
        ("*.EXAMPLE", "orders.example", True),
        ("*.example", "a.orders.example", False),
        ("*.example", "example", False),
        ("*.example", ".example", False),
        ("*.", "orders", False),
        ("*", "orders", False),
        ("*", "*", False),
        ("o*.example", "orders.example", False),
        ("*s.example", "orders.example", False),
        ("a.*.example", "a.b.example", False),
        ("*.*.example", "a.b.example", False),
        ("", "", False),
        ("", "orders.example", False),
        ("orders.example", "", False),
        (".", ".", False),
    ],
)
def test_dns_name_matches_host(name: str, host: str, is_match: bool) -> None:
    assert match_dns_name(name, host) is is_match


@pytest.mark.parametrize(
    ("host", "is_match"),
    [
        ("a.test", True),
        ("b.wild.test", True),
        ("wild.test", False),
        ("other.test", False),
        ("192.0.2.1", True),
        ("192.0.2.2", False),
        ("2001:db8::1", True),
        ("2001:DB8:0::1", True),
        # An IP address in a DNS name does not count.
        ("192.0.2.9", False),
        ("spiffe://example.test/a", False),
        ("", False),
    ],
)
def test_certificate_matches_its_names_and_addresses(host: str, is_match: bool) -> None:
    certificate = PeerCertificate(
        dns_names=("a.test", "*.wild.test", "192.0.2.9"),
        uris=("spiffe://example.test/a",),
        # OpenSSL's text for an address of invalid length.
        ip_addresses=("<invalid>", "192.0.2.1", "2001:DB8:0:0:0:0:0:1\n"),
        emails=(),
        der=b"",
    )
    assert match_host(certificate, host) is is_match
