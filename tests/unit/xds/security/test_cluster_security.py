"""How is a connection to a cluster secured, and is its server one of the cluster's?"""

from __future__ import annotations

from typing import Any

import pytest

from proxyless.base import EMPTY_ATTRIBUTES, Attributes, Status, StatusCode
from proxyless.runtime import VirtualClock
from proxyless.transport import ClientTls, PeerCertificate, TrustBundles
from proxyless.xds.bootstrap import CertificateProviderConfig
from proxyless.xds.config.attributes import HAS_HOST_SNI, HOSTNAME
from proxyless.xds.resources import CertificateInstance, SanMatcher, StringMatcher, UpstreamTls
from proxyless.xds.security.certificates import CertificateStore, Identity
from proxyless.xds.security.cluster_security import (
    AUTHORITY_AS_SNI,
    SHOWN_NAMES_MAX,
    SanCheck,
    SniCheck,
    XdsSecurity,
    choose_check,
    choose_sni,
)
from proxyless.xds.security.cluster_tls import UPSTREAM_TLS, ClusterTls

PROVIDERS = {"mesh": CertificateProviderConfig("fixed"), "none": CertificateProviderConfig("none")}
MESH, NONE = CertificateInstance("mesh"), CertificateInstance("none")
TROUBLE = Status(StatusCode.UNAVAILABLE, "nothing yet")


class FixedPlugin:
    """Certificates, or trouble, as the test says."""

    def __init__(self, name: str, trouble: Status | None = None) -> None:
        self.name = name
        self.version = b"1"
        self.closed = 0
        self.bundles: TrustBundles | None = None
        self._trouble = trouble

    def parse_config(self, config: object) -> None:
        return None

    def create(self, config: object, clock: object) -> FixedPlugin:
        return self

    def roots(self, certificate_name: str) -> bytes | TrustBundles | Status:
        return self._trouble or self.bundles or b"roots" + self.version

    def identity(self, certificate_name: str) -> Identity | Status:
        return self._trouble or Identity(b"chain" + self.version, b"key" + self.version)

    def close(self) -> None:
        self.closed += 1


def certificate(
    *dns: str, uris: tuple[str, ...] = (), ips: tuple[str, ...] = (), emails: tuple[str, ...] = ()
) -> PeerCertificate:
    return PeerCertificate(dns, uris, ips, emails, b"")


def accepts(matcher: StringMatcher, shown: PeerCertificate) -> bool:
    return SanCheck((matcher,))(shown) is None


# Server authorization


@pytest.mark.parametrize(
    ("matcher", "good", "bad"),
    [
        (StringMatcher("exact", "a.example"), "A.example", "a.example.org"),
        (StringMatcher("prefix", "a."), "a.example", "A.example"),
        (StringMatcher("prefix", "A.", ignore_case=True), "a.example", "b.example"),
        (StringMatcher("suffix", ".example"), "a.example", "a.example.org"),
        (StringMatcher("contains", "exam"), "a.example", "a.test"),
        (StringMatcher("regex", "[ab].example"), "b.example", "ab.example"),
    ],
)
def test_each_kind_of_matcher_on_dns_names(matcher: StringMatcher, good: str, bad: str) -> None:
    assert accepts(matcher, certificate(good))
    assert not accepts(matcher, certificate(bad))
    assert accepts(matcher, certificate(bad, good))


@pytest.mark.parametrize(
    ("matcher", "is_match"),
    [
        (StringMatcher("exact", "spiffe://mesh/a"), True),
        (StringMatcher("exact", "spiffe://mesh/A"), False),
        (StringMatcher("exact", "spiffe://mesh/A", ignore_case=True), True),
        (StringMatcher("prefix", "spiffe://mesh/"), True),
        (StringMatcher("prefix", "spiffe://other/"), False),
        (StringMatcher("suffix", "/a"), True),
        (StringMatcher("contains", "mesh"), True),
        (StringMatcher("regex", "spiffe://[^/]+/a"), True),
        (StringMatcher("regex", "spiffe"), False),
    ],
)
def test_uris_are_compared_as_texts(matcher: StringMatcher, is_match: bool) -> None:
    assert accepts(matcher, certificate(uris=("spiffe://mesh/a",))) is is_match


def test_a_wildcard_counts_in_dns_names_only() -> None:
    wanted = StringMatcher("exact", "a.example")
    assert not accepts(wanted, certificate(uris=("*.example",), emails=("*.example",)))
    assert not accepts(StringMatcher("prefix", "a."), certificate("*.example"))


@pytest.mark.parametrize(
    ("shown", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        # As Python's ssl module spells it.
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("2001:DB8:0:0:0:0:0:1\n", "2001:db8::1"),
        ("<invalid>", "<invalid>"),
    ],
)
def test_addresses_are_compared_in_their_canonical_form(shown: str, canonical: str) -> None:
    assert accepts(StringMatcher("exact", canonical), certificate(ips=(shown,)))


def test_emails_count_too() -> None:
    assert accepts(StringMatcher("suffix", "@example"), certificate(emails=("a@example",)))


@pytest.mark.parametrize("matcher", [StringMatcher("prefix", ""), StringMatcher("regex", ".*")])
def test_an_empty_name_or_none_at_all_is_refused(matcher: StringMatcher) -> None:
    assert not accepts(matcher, certificate(""))
    assert not accepts(matcher, certificate())


@pytest.mark.parametrize(
    ("matcher", "shown"),
    [
        (SanMatcher("DNS", StringMatcher("exact", "a.example")), certificate("*.example")),
        (SanMatcher("URI", StringMatcher("prefix", "a")), certificate(uris=("a.example",))),
        (SanMatcher("email", StringMatcher("prefix", "a")), certificate(emails=("a.example",))),
        (SanMatcher("IP", StringMatcher("exact", "10.0.0.1")), certificate(ips=("10.0.0.1",))),
    ],
)
def test_a_matcher_for_a_type_sees_names_of_that_type_only(
    matcher: SanMatcher, shown: PeerCertificate
) -> None:
    check = SanCheck((matcher,))
    assert check(shown) is None
    names = ("a.example", "10.0.0.1")
    others = {
        "DNS": certificate(uris=names, emails=names, ips=names),
        "URI": certificate(*names, emails=names, ips=names),
        "email": certificate(*names, uris=names, ips=names),
        "IP": certificate(*names, uris=names, emails=names),
    }
    refused = check(others[matcher.san_type])
    assert refused is not None
    assert f", wanted {matcher.san_type} {matcher.matcher.kind} " in refused


def test_one_matcher_and_one_name_are_enough() -> None:
    check = SanCheck((StringMatcher("exact", "x"), StringMatcher("exact", "spiffe://mesh/a")))
    assert check(certificate("a", "b", uris=("spiffe://mesh/a",))) is None


def test_a_refusal_says_who_came_and_who_was_wanted() -> None:
    check = SanCheck((StringMatcher("exact", "a"), StringMatcher("prefix", "b")))
    shown = certificate("c", uris=("d",), ips=("10.0.0.1",), emails=("e",))
    assert check(shown) == (
        "certificate check failure: server is DNS 'c', URI 'd', email 'e', IP '10.0.0.1', "
        "wanted exact 'a', prefix 'b'"
    )
    assert check(certificate()) == (
        "certificate check failure: server is nobody by name, wanted exact 'a', prefix 'b'"
    )


def test_a_refusal_is_no_longer_than_needed() -> None:
    text = SniCheck("a")(certificate(*("x" * 10_000 for _ in range(1000))))
    assert text is not None
    assert f" and {1000 - SHOWN_NAMES_MAX} more, wanted DNS 'a'" in text
    assert len(text) < 3000


def test_the_name_that_was_asked_for_has_to_be_a_dns_name() -> None:
    check = SniCheck("a.example")
    assert check(certificate("b.example", "*.example")) is None
    refused = check(certificate("b.example", uris=("a.example",)))
    assert refused == (
        "certificate check failure: server is DNS 'b.example', URI 'a.example', "
        "wanted DNS 'a.example'"
    )


# What a connection is made with


@pytest.mark.parametrize(
    ("fields", "hostname", "sni"),
    [
        ({}, "host.example", ""),
        ({"sni": "sni.example"}, "host.example", "sni.example"),
        ({"sni": "sni.example", "auto_host_sni": True}, "host.example", "host.example"),
        ({"sni": "sni.example", "auto_host_sni": True}, "host.example:443", "host.example"),
        ({"sni": "sni.example", "auto_host_sni": True}, "host.example.:443", "host.example"),
        # Addresses are never sent.
        ({"auto_host_sni": True}, "[2001:db8::1]:443", ""),
        ({"auto_host_sni": True}, "2001:db8::1", ""),
        ({"auto_host_sni": True}, "10.0.0.1", ""),
        ({"auto_host_sni": True}, "10.0.0.1:443", ""),
        ({"sni": "sni.example", "auto_host_sni": True}, "10.0.0.1:443", "sni.example"),
        ({"sni": "10.0.0.1"}, "host.example", ""),
        ({"sni": "sni.example", "auto_host_sni": True}, "", "sni.example"),
        ({"auto_host_sni": True}, "", ""),
    ],
)
def test_who_the_server_is_asked_for(fields: dict[str, Any], hostname: str, sni: str) -> None:
    assert choose_sni(UpstreamTls(ca=MESH, **fields), hostname) == sni


def test_without_matchers_nobody_looks_at_names() -> None:
    assert choose_check(UpstreamTls(ca=MESH), "sni.example") is None


def test_the_name_is_compared_in_place_of_the_matchers_if_there_is_one() -> None:
    matchers = (StringMatcher("exact", "a"),)
    tls = UpstreamTls(ca=MESH, san_matchers=matchers, auto_sni_san_validation=True)
    assert choose_check(tls, "sni.example") == SniCheck("sni.example")
    assert choose_check(tls, "") == SanCheck(matchers)


class World:
    """A channel's security, its clusters and the certificates that there are."""

    def __init__(self) -> None:
        self.fixed = FixedPlugin("fixed")
        self.store = CertificateStore(VirtualClock(), [self.fixed, FixedPlugin("none", TROUBLE)])
        self.security = XdsSecurity(lambda: self.store)
        self.cluster = ClusterTls(PROVIDERS)

    @property
    def attributes(self) -> Attributes:
        return EMPTY_ATTRIBUTES.with_(UPSTREAM_TLS, self.cluster)

    def secure(self, tls: UpstreamTls | None, hostname: str = "") -> ClientTls | Status | None:
        self.cluster.tls = tls
        source = self.security.choose(self.attributes.with_(HOSTNAME, hostname))
        assert source is not None
        return source.current()


def test_endpoints_that_no_cluster_has_are_not_secured_here() -> None:
    world = World()
    assert world.security.choose(EMPTY_ATTRIBUTES) is None
    assert len(world.store) == 0


def test_a_cluster_without_tls_leaves_it_to_the_fallback() -> None:
    assert World().secure(None) is None


def test_everything_that_a_cluster_says_is_in_the_tls() -> None:
    tls = UpstreamTls(
        ca=MESH,
        identity=MESH,
        san_matchers=(StringMatcher("exact", "a"),),
        sni="b",
        auto_host_sni=True,
    )
    assert World().secure(tls, "c:1") == ClientTls(
        root_certificates=b"roots1",
        certificate_chain=b"chain1",
        private_key=b"key1",
        server_name="c",
        is_name_checked=False,
        check_peer=SanCheck((StringMatcher("exact", "a"),)),
    )


def test_system_roots_and_no_identity() -> None:
    """And no name: not even the host of the target, which is not the server's."""
    assert World().secure(UpstreamTls(ca=None)) == ClientTls(server_name="", is_name_checked=False)


def test_trust_bundles_stand_in_place_of_roots() -> None:
    world = World()
    world.fixed.bundles = TrustBundles.of(b"map", {"a.example": frozenset({b"root"})})
    matchers = (StringMatcher("exact", "spiffe://a.example/orders"),)
    assert world.secure(UpstreamTls(ca=MESH, san_matchers=matchers)) == ClientTls(
        trust_bundles=world.fixed.bundles,
        server_name="",
        is_name_checked=False,
        # "SAN matching will be performed as configured via xDS" - A87
        check_peer=SanCheck(matchers),
    )


def test_the_authority_is_sent_where_no_name_is_if_the_switch_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ "This value however will not be used for SAN verification" - A101."""
    monkeypatch.setenv(AUTHORITY_AS_SNI, "true")
    world = World()
    nameless = UpstreamTls(ca=MESH, auto_sni_san_validation=True)
    named = UpstreamTls(ca=MESH, sni="a.example", auto_sni_san_validation=True)
    # None: the transport takes the host of the channel's authority.
    assert world.secure(nameless) == ClientTls(
        root_certificates=b"roots1", server_name=None, is_name_checked=False
    )
    assert world.secure(named) == ClientTls(
        root_certificates=b"roots1",
        server_name="a.example",
        is_name_checked=False,
        check_peer=SniCheck("a.example"),
    )
    assert world.secure(UpstreamTls(ca=NONE)) == Status(
        StatusCode.UNAVAILABLE, "certificate provider 'none': nothing yet"
    )


@pytest.mark.parametrize(
    "tls", [UpstreamTls(ca=NONE, identity=MESH), UpstreamTls(ca=MESH, identity=NONE)]
)
def test_without_certificates_there_is_no_connection_not_even_by_the_fallback(
    tls: UpstreamTls,
) -> None:
    text = "certificate provider 'none': nothing yet"
    assert World().secure(tls) == Status(StatusCode.UNAVAILABLE, text)


def test_config_and_certificates_are_those_of_the_moment() -> None:
    world = World()
    source = world.security.choose(world.attributes)
    assert source is not None
    assert source.current() is None
    world.cluster.tls = UpstreamTls(ca=MESH)
    assert source.current() == ClientTls(
        root_certificates=b"roots1", server_name="", is_name_checked=False
    )
    world.fixed.version = b"2"
    assert source.current() == ClientTls(
        root_certificates=b"roots2", server_name="", is_name_checked=False
    )
    world.cluster.tls = None
    assert source.current() is None


def test_channels_of_one_bootstrap_can_share_connections_and_providers() -> None:
    world = World()
    other = XdsSecurity(lambda: world.store)
    one, same = (each.choose(world.attributes) for each in (world.security, other))
    assert one == same
    assert hash(one) == hash(same)
    elsewhere = EMPTY_ATTRIBUTES.with_(UPSTREAM_TLS, ClusterTls(PROVIDERS))
    assert world.security.choose(elsewhere) != one
    named = world.attributes.with_(HOSTNAME, "a")
    assert world.security.choose(named) == one
    # Where servers are asked by it.
    assert world.security.choose(named.with_(HAS_HOST_SNI, value=True)) != one
    world.cluster.tls = UpstreamTls(ca=MESH)
    assert one is not None
    assert isinstance(one.current(), ClientTls)
    world.security.release()
    world.security.release()
    assert world.fixed.closed == 0
    assert isinstance(one.current(), ClientTls)
    other.release()
    assert world.fixed.closed == 1
    assert len(world.store) == 0


def test_another_bootstrap_brings_its_own_providers() -> None:
    world = World()
    world.secure(UpstreamTls(ca=MESH))
    world.cluster = ClusterTls({})
    text = "certificate provider 'mesh' is not in the bootstrap"
    assert world.secure(UpstreamTls(ca=MESH)) == Status(StatusCode.UNAVAILABLE, text)
    assert world.fixed.closed == 1
    assert len(world.store) == 1
