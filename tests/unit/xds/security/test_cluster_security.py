"""xDS credentials: TLS of connections to a cluster, and authorization of its servers."""

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
ERROR = Status(StatusCode.UNAVAILABLE, "nothing yet")


class FixedPlugin:
    """A plugin with fixed certificates, or a fixed error."""

    def __init__(self, name: str, error: Status | None = None) -> None:
        self.name = name
        self.version = b"1"
        self.closed = 0
        self.bundles: TrustBundles | None = None
        self._error = error

    def parse_config(self, config: object) -> None:
        return None

    def create(self, config: object, clock: object) -> FixedPlugin:
        return self

    def roots(self, certificate_name: str) -> bytes | TrustBundles | Status:
        return self._error or self.bundles or b"roots" + self.version

    def identity(self, certificate_name: str) -> Identity | Status:
        return self._error or Identity(b"chain" + self.version, b"key" + self.version)

    def close(self) -> None:
        self.closed += 1


def certificate(
    *dns: str, uris: tuple[str, ...] = (), ips: tuple[str, ...] = (), emails: tuple[str, ...] = ()
) -> PeerCertificate:
    return PeerCertificate(dns, uris, ips, emails, b"")


def is_accepted(matcher: StringMatcher, shown: PeerCertificate) -> bool:
    return SanCheck((matcher,))(shown) is None


# Server authorization


@pytest.mark.spec("A29-13")
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
def test_each_kind_of_matcher_matches_dns_names(
    matcher: StringMatcher, good: str, bad: str
) -> None:
    assert is_accepted(matcher, certificate(good))
    assert not is_accepted(matcher, certificate(bad))
    assert is_accepted(matcher, certificate(bad, good))


@pytest.mark.spec("A29-13")
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
def test_uris_are_compared_as_strings(matcher: StringMatcher, is_match: bool) -> None:
    assert is_accepted(matcher, certificate(uris=("spiffe://mesh/a",))) is is_match


@pytest.mark.spec("A29-14")
def test_exact_matcher_accepts_a_wildcard_for_one_label() -> None:
    matcher = StringMatcher("exact", "a.example")
    assert is_accepted(matcher, certificate("*.example"))
    assert not is_accepted(matcher, certificate("*.a.example"))
    assert not is_accepted(StringMatcher("exact", "a.b.example"), certificate("*.example"))


@pytest.mark.spec("A29-14")
def test_wildcard_matches_in_dns_names_only() -> None:
    wanted = StringMatcher("exact", "a.example")
    assert not is_accepted(wanted, certificate(uris=("*.example",), emails=("*.example",)))
    assert not is_accepted(StringMatcher("prefix", "a."), certificate("*.example"))


@pytest.mark.spec("A29-13", "A29-15")
@pytest.mark.parametrize(
    ("shown", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        # The format of Python's ssl module.
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("2001:DB8:0:0:0:0:0:1\n", "2001:db8::1"),
        ("<invalid>", "<invalid>"),
    ],
)
def test_ip_addresses_are_compared_in_their_canonical_form(shown: str, canonical: str) -> None:
    assert is_accepted(StringMatcher("exact", canonical), certificate(ips=(shown,)))


@pytest.mark.spec("A29-13")
def test_email_addresses_are_matched() -> None:
    assert is_accepted(StringMatcher("suffix", "@example"), certificate(emails=("a@example",)))


@pytest.mark.spec("A29-16")
@pytest.mark.parametrize("matcher", [StringMatcher("prefix", ""), StringMatcher("regex", ".*")])
def test_certificate_without_names_is_rejected(matcher: StringMatcher) -> None:
    assert not is_accepted(matcher, certificate(""))
    assert not is_accepted(matcher, certificate())


@pytest.mark.parametrize(
    ("matcher", "shown"),
    [
        (SanMatcher("DNS", StringMatcher("exact", "a.example")), certificate("*.example")),
        (SanMatcher("URI", StringMatcher("prefix", "a")), certificate(uris=("a.example",))),
        (SanMatcher("email", StringMatcher("prefix", "a")), certificate(emails=("a.example",))),
        (SanMatcher("IP", StringMatcher("exact", "10.0.0.1")), certificate(ips=("10.0.0.1",))),
    ],
)
def test_typed_matcher_matches_names_of_its_type_only(
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


@pytest.mark.spec("A29-13")
def test_certificate_is_accepted_when_one_matcher_matches_one_name() -> None:
    check = SanCheck((StringMatcher("exact", "x"), StringMatcher("exact", "spiffe://mesh/a")))
    assert check(certificate("a", "b", uris=("spiffe://mesh/a",))) is None


def test_rejection_lists_names_and_matchers() -> None:
    check = SanCheck((StringMatcher("exact", "a"), StringMatcher("prefix", "b")))
    shown = certificate("c", uris=("d",), ips=("10.0.0.1",), emails=("e",))
    assert check(shown) == (
        "certificate check failure: server is DNS 'c', URI 'd', email 'e', IP '10.0.0.1', "
        "wanted exact 'a', prefix 'b'"
    )
    assert check(certificate()) == (
        "certificate check failure: server is without a name, wanted exact 'a', prefix 'b'"
    )


def test_rejection_is_bounded_when_there_are_many_names() -> None:
    text = SniCheck("a")(certificate(*("x" * 10_000 for _ in range(1000))))
    assert text is not None
    assert f" and {1000 - SHOWN_NAMES_MAX} more, wanted DNS 'a'" in text
    assert len(text) < 3000


@pytest.mark.spec("A101-05")
def test_sni_check_needs_a_dns_name() -> None:
    check = SniCheck("a.example")
    assert check(certificate("b.example", "*.example")) is None
    refused = check(certificate("b.example", uris=("a.example",)))
    assert refused == (
        "certificate check failure: server is DNS 'b.example', URI 'a.example', "
        "wanted DNS 'a.example'"
    )


# TLS of a connection


@pytest.mark.spec("A101-01", "A101-03", "A101-11")
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
def test_sni_is_the_hostname_or_the_configured_name(
    fields: dict[str, Any], hostname: str, sni: str
) -> None:
    assert choose_sni(UpstreamTls(ca=MESH, **fields), hostname) == sni


@pytest.mark.spec("A29-12")
def test_names_are_not_checked_when_there_are_no_matchers() -> None:
    assert choose_check(UpstreamTls(ca=MESH), "sni.example") is None


@pytest.mark.spec("A101-06", "A101-07")
def test_sni_is_checked_instead_of_matchers_when_it_was_sent() -> None:
    matchers = (StringMatcher("exact", "a"),)
    tls = UpstreamTls(ca=MESH, san_matchers=matchers, auto_sni_san_validation=True)
    assert choose_check(tls, "sni.example") == SniCheck("sni.example")
    assert choose_check(tls, "") == SanCheck(matchers)


class ClusterSecurityWorld:
    """The security of a channel, one cluster, and a certificate store."""

    def __init__(self) -> None:
        self.fixed = FixedPlugin("fixed")
        self.store = CertificateStore(VirtualClock(), [self.fixed, FixedPlugin("none", ERROR)])
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


def test_endpoint_without_a_cluster_has_no_security() -> None:
    world = ClusterSecurityWorld()
    assert world.security.choose(EMPTY_ATTRIBUTES) is None
    assert len(world.store) == 0


def test_fallback_is_used_when_a_cluster_has_no_tls() -> None:
    assert ClusterSecurityWorld().secure(None) is None


def test_client_tls_has_all_settings_of_the_cluster() -> None:
    tls = UpstreamTls(
        ca=MESH,
        identity=MESH,
        san_matchers=(StringMatcher("exact", "a"),),
        sni="b",
        auto_host_sni=True,
    )
    assert ClusterSecurityWorld().secure(tls, "c:1") == ClientTls(
        root_certificates=b"roots1",
        certificate_chain=b"chain1",
        private_key=b"key1",
        server_name="c",
        is_name_checked=False,
        check_peer=SanCheck((StringMatcher("exact", "a"),)),
    )


def test_client_tls_uses_system_roots_when_there_is_no_provider() -> None:
    """There is no SNI: the host of the target is not the server's name."""
    assert ClusterSecurityWorld().secure(UpstreamTls(ca=None)) == ClientTls(
        server_name="", is_name_checked=False
    )


def test_system_roots_without_a_check_of_names_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = ClusterSecurityWorld()
    world.cluster = ClusterTls(PROVIDERS, "orders\n")
    matchers = (StringMatcher("exact", "a"),)
    for tls in (
        UpstreamTls(ca=None, san_matchers=matchers),
        UpstreamTls(ca=MESH),
        UpstreamTls(ca=None, sni="a", auto_sni_san_validation=True),
    ):
        world.secure(tls)
    assert caplog.messages == []
    for _ in range(3):
        world.secure(UpstreamTls(ca=None))
    text = "accepts every server with a certificate of a public authority"
    assert caplog.messages == [
        rf'cluster "orders\n": system_root_certs without a check of names {text}'
    ]


@pytest.mark.spec("A87-06")
def test_trust_bundles_replace_roots() -> None:
    world = ClusterSecurityWorld()
    world.fixed.bundles = TrustBundles.of(b"map", {"a.example": frozenset({b"root"})})
    matchers = (StringMatcher("exact", "spiffe://a.example/orders"),)
    assert world.secure(UpstreamTls(ca=MESH, san_matchers=matchers)) == ClientTls(
        trust_bundles=world.fixed.bundles,
        server_name="",
        is_name_checked=False,
        # "SAN matching will be performed as configured via xDS" - A87
        check_peer=SanCheck(matchers),
    )


@pytest.mark.spec("A101-10")
def test_authority_is_sent_when_there_is_no_sni_and_the_switch_is_true(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ "This value however will not be used for SAN verification" - A101."""
    monkeypatch.setenv(AUTHORITY_AS_SNI, "true")
    world = ClusterSecurityWorld()
    nameless = UpstreamTls(ca=MESH, auto_sni_san_validation=True)
    named = UpstreamTls(ca=MESH, sni="a.example", auto_sni_san_validation=True)
    # None: the transport sends the host of the channel's authority.
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


@pytest.mark.spec("A29-03")
@pytest.mark.parametrize(
    "tls", [UpstreamTls(ca=NONE, identity=MESH), UpstreamTls(ca=MESH, identity=NONE)]
)
def test_fallback_is_not_used_when_a_provider_fails(
    tls: UpstreamTls,
) -> None:
    text = "certificate provider 'none': nothing yet"
    assert ClusterSecurityWorld().secure(tls) == Status(StatusCode.UNAVAILABLE, text)


def test_tls_follows_changes_of_config_and_certificates() -> None:
    world = ClusterSecurityWorld()
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


def test_channels_of_one_bootstrap_share_connections_and_providers() -> None:
    world = ClusterSecurityWorld()
    other = XdsSecurity(lambda: world.store)
    one, same = (each.choose(world.attributes) for each in (world.security, other))
    assert one == same
    assert hash(one) == hash(same)
    elsewhere = EMPTY_ATTRIBUTES.with_(UPSTREAM_TLS, ClusterTls(PROVIDERS))
    assert world.security.choose(elsewhere) != one
    named = world.attributes.with_(HOSTNAME, "a")
    assert world.security.choose(named) == one
    # The hostname is sent as SNI.
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


def test_providers_are_replaced_when_the_bootstrap_changes() -> None:
    world = ClusterSecurityWorld()
    world.secure(UpstreamTls(ca=MESH))
    world.cluster = ClusterTls({})
    text = "certificate provider 'mesh' is not in the bootstrap"
    assert world.secure(UpstreamTls(ca=MESH)) == Status(StatusCode.UNAVAILABLE, text)
    assert world.fixed.closed == 1
    assert len(world.store) == 1
