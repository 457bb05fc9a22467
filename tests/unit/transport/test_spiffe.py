"""Unit tests of proxyless.transport.spiffe: IDs, chains, and handshakes in memory."""

import ssl
from contextlib import suppress
from datetime import timedelta

import pytest

from proxyless.transport.spiffe import (
    ID_LENGTH_MAX,
    TRUST_DOMAIN_LENGTH_MAX,
    TrustBundles,
    explain_refusal,
    find_roots,
    refuse_chain,
    refuse_spiffe_id,
    refuse_trust_domain,
    trust_domain_of,
)
from proxyless.transport.tls import ClientTls, client_context, refuse_peer
from tests.certificates import CertificateAuthority, server_context, shake_hands

OURS, THEIRS = CertificateAuthority("ours"), CertificateAuthority("theirs")
STRANGER = CertificateAuthority("stranger")
A, B = "a.example", "b.example"
A_ID, B_ID = f"spiffe://{A}/orders", f"spiffe://{B}/orders"
CLIENT_ID = f"spiffe://{A}/client"


def bundles(**roots: CertificateAuthority | list[CertificateAuthority]) -> TrustBundles:
    """The trust domains a.example, b.example and so on, each with its roots."""
    lists = {key: each if isinstance(each, list) else [each] for key, each in roots.items()}
    found = {
        f"{key}.example": frozenset(authority.certificate_der for authority in authorities)
        for key, authorities in lists.items()
    }
    return TrustBundles.of(repr(sorted(found.items())).encode(), found)


BOTH = bundles(a=OURS, b=THEIRS)
IS_NO_ID = "URI '%s' of the certificate is no SPIFFE ID"
NOT_IN_MAP = "trust domain '%s' is not in the trust bundle map, which has 'a.example', 'b.example'"

# SPIFFE IDs


@pytest.mark.parametrize(
    ("uri", "domain"),
    [
        ("spiffe://a.example/ns/shop/sa/orders", "a.example"),
        ("spiffe://a.example", "a.example"),
        ("SPIFFE://a.example/X", "a.example"),
        ("spiffe://a_b-1.example/A.b-c_9/...", "a_b-1.example"),
        (f"spiffe://{'a' * TRUST_DOMAIN_LENGTH_MAX}/x", "a" * TRUST_DOMAIN_LENGTH_MAX),
        ("spiffe://a/" + "x" * (ID_LENGTH_MAX - 11), "a"),
    ],
)
def test_valid_id_has_its_trust_domain(uri: str, domain: str) -> None:
    assert refuse_spiffe_id(uri) is None
    assert trust_domain_of(uri) == domain


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("", "does not begin with 'spiffe://'"),
        ("https://a.example/x", "does not begin with 'spiffe://'"),
        ("spiffe:/a.example/x", "does not begin with 'spiffe://'"),
        ("spiffe://", "has a bad trust domain: it is empty"),
        ("spiffe:///x", "has a bad trust domain: it is empty"),
        ("spiffe://A.example/x", "has a bad trust domain: it is 'A.example', wanted lower case"),
        ("spiffe://a.example:443/x", "has a bad trust domain: it is 'a.example:443'"),
        ("spiffe://me@a.example/x", "has a bad trust domain: it is 'me@a.example'"),
        ("spiffe://a.example?x", "has a bad trust domain: it is 'a.example?x'"),
        ("spiffe://a.example\0.b/x", "has a bad trust domain: it is 'a.example\\x00.b'"),
        ("spiffe://ä.example/x", "has a bad trust domain: it is 'ä.example'"),
        (f"spiffe://{'a' * 256}/x", "has a bad trust domain: it has 256 characters"),
        ("spiffe://a.example/", "has '' as a segment of its path"),
        ("spiffe://a.example/x/", "has '' as a segment of its path"),
        ("spiffe://a.example//x", "has '' as a segment of its path"),
        ("spiffe://a.example/./x", "has '.' as a segment of its path"),
        ("spiffe://a.example/x/..", "has '..' as a segment of its path"),
        ("spiffe://a.example/x?y", "has a character in its path"),
        ("spiffe://a.example/x#y", "has a character in its path"),
        ("spiffe://a.example/%41", "has a character in its path"),
        ("spiffe://a.example/x\n", "has a character in its path"),
        ("spiffe://a.example/é", "has a character in its path"),
        ("spiffe://a/" + "x" * (ID_LENGTH_MAX - 10), "has 2049 characters, wanted at most 2048"),
    ],
)
def test_invalid_id_is_refused_with_the_reason(uri: str, expected: str) -> None:
    refusal = refuse_spiffe_id(uri)
    assert refusal is not None
    assert refusal.startswith(expected)


def test_invalid_trust_domain_is_refused() -> None:
    assert refuse_trust_domain("a-b_c.example1") is None
    assert refuse_trust_domain("") == "is empty, wanted a trust domain"
    assert refuse_trust_domain("a/b") is not None


# Roots by trust domain


def test_roots_are_those_of_the_trust_domain() -> None:
    assert find_roots(BOTH, [A_ID]) == frozenset({OURS.certificate_der})
    assert find_roots(BOTH, [B_ID]) == frozenset({THEIRS.certificate_der})


@pytest.mark.parametrize(
    ("uris", "expected"),
    [
        ([], "certificate has 0 URIs, wanted exactly one, a SPIFFE ID"),
        ([A_ID, B_ID], "certificate has 2 URIs, wanted exactly one, a SPIFFE ID"),
        ([A_ID, A_ID], "certificate has 2 URIs, wanted exactly one, a SPIFFE ID"),
        (
            ["https://a.example/x"],
            f"{IS_NO_ID % 'https://a.example/x'}: it does not begin with 'spiffe://'",
        ),
        (["spiffe://c.example/x"], NOT_IN_MAP % "c.example"),
        # A part of the name does not match.
        (["spiffe://sub.a.example/x"], NOT_IN_MAP % "sub.a.example"),
    ],
)
def test_peer_without_roots_is_refused_with_the_reason(uris: list[str], expected: str) -> None:
    assert find_roots(BOTH, uris) == expected
    assert refuse_chain(BOTH, uris, [b"leaf", OURS.certificate_der]) == expected


def test_text_of_a_refusal_is_limited() -> None:
    many = TrustBundles.of(b"", {f"d{index}": frozenset() for index in range(1000)})
    text = find_roots(many, ["spiffe://c.example/x"])
    assert isinstance(text, str)
    assert text.endswith("'d1', 'd10', 'd100', 'd101', 'd102', 'd103', 'd104' and 992 more")
    assert len(str(find_roots(many, ["x" * 100_000]))) < 500
    assert find_roots(bundles(), [A_ID]) == (
        "trust domain 'a.example' is not in the trust bundle map, which has no trust domain"
    )


def test_a_chain_has_to_lead_to_a_root_of_the_peers_own_domain() -> None:
    ours, theirs = OURS.certificate_der, THEIRS.certificate_der
    assert refuse_chain(BOTH, [A_ID], [b"leaf", ours]) is None
    assert refuse_chain(BOTH, [A_ID], [b"leaf", b"between", ours]) is None
    assert refuse_chain(BOTH, [A_ID], [b"leaf", ours, theirs]) is None
    expected = f"no root of trust domain 'a.example' vouches for {A_ID!r}"
    for chain in ([b"leaf", theirs], [b"leaf", b"between", theirs], [b"leaf"], [ours], []):
        assert refuse_chain(BOTH, [A_ID], chain) == expected


def test_domain_without_roots_accepts_no_peer() -> None:
    empty = TrustBundles.of(b"", {A: frozenset()})
    assert refuse_chain(empty, [A_ID], [b"leaf", b"root"]) is not None


def test_error_of_openssl_is_completed_with_the_id() -> None:
    assert explain_refusal(BOTH, [A_ID], "certificate has expired") == (
        f"certificate has expired ({A_ID!r}; trust domain 'a.example' has 1 roots)"
    )
    assert explain_refusal(BOTH, [], "self-signed certificate") == (
        "self-signed certificate; certificate has 0 URIs, wanted exactly one, a SPIFFE ID"
    )


def test_bundles_of_equal_files_are_equal() -> None:
    assert bundles(a=OURS) == bundles(a=OURS)
    assert hash(bundles(a=OURS)) == hash(bundles(a=OURS))
    assert bundles(a=OURS) != bundles(a=THEIRS)
    assert "source" not in repr(BOTH)


# Handshakes


def connect(trusted: TrustBundles, authority: CertificateAuthority, *names: str) -> ssl.SSLObject:
    """The client's end after a handshake with a server that has these names."""
    context = client_context(ClientTls(trust_bundles=trusted, is_name_checked=False))
    client, _ = shake_hands(context, server_context(*authority.issue(names)))
    return client


def refused(trusted: TrustBundles, authority: CertificateAuthority, *names: str) -> str:
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        connect(trusted, authority, *names)
    return caught.value.verify_message


@pytest.mark.spec("A87-02")
def test_peers_are_accepted_by_the_roots_of_their_own_domain() -> None:
    for authority, name in ((OURS, A_ID), (THEIRS, B_ID)):
        assert refuse_peer(connect(BOTH, authority, name), None) is None
        # Other names are allowed.
        assert refuse_peer(connect(BOTH, authority, name, "orders.example"), None) is None


@pytest.mark.spec("A87-03")
def test_peer_is_refused_when_only_roots_of_another_domain_signed_it() -> None:
    """A's authority is trusted, and signs a certificate with an ID of B."""
    assert refused(BOTH, OURS, B_ID) == f"no root of trust domain 'b.example' vouches for {B_ID!r}"
    assert refused(BOTH, THEIRS, A_ID) == (
        f"no root of trust domain 'a.example' vouches for {A_ID!r}"
    )


@pytest.mark.spec("A87-04", "A87-05")
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["orders.example"], "certificate has 0 URIs, wanted exactly one, a SPIFFE ID"),
        ([A_ID, f"{A_ID}2"], "certificate has 2 URIs, wanted exactly one, a SPIFFE ID"),
        (["https://a.example/x"], IS_NO_ID % "https://a.example/x"),
        (["spiffe://c.example/x"], NOT_IN_MAP % "c.example"),
    ],
)
def test_certificate_without_an_id_of_the_map_is_refused(names: list[str], expected: str) -> None:
    assert refused(BOTH, OURS, *names).startswith(expected)


@pytest.mark.parametrize("authority", [OURS, STRANGER])
def test_names_that_cannot_be_decoded_are_refused_in_the_handshake(
    authority: CertificateAuthority,
) -> None:
    uri = A_ID.encode() + b"\xff"
    names = bytes([0x30, len(uri) + 2, 0x86, len(uri)]) + uri
    context = client_context(ClientTls(trust_bundles=BOTH, is_name_checked=False))
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        shake_hands(context, server_context(*authority.issue([], names_der=names)))
    assert IS_NO_ID % "<not UTF-8>" in caught.value.verify_message


def test_refusal_of_an_unknown_authority_names_the_peer() -> None:
    assert refused(BOTH, STRANGER, A_ID) == (
        f"unable to get local issuer certificate ({A_ID!r}; trust domain 'a.example' has 1 roots)"
    )
    assert refused(bundles(), STRANGER, A_ID) == (
        "unable to get local issuer certificate; "
        "trust domain 'a.example' is not in the trust bundle map, which has no trust domain"
    )


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("bytes_at_once", [1, 100, 1 << 16])
def test_client_certificate_is_not_sent_before_the_check_in_any_tls_version(
    version: ssl.TLSVersion, bytes_at_once: int
) -> None:
    context = server_context(*OURS.issue([B_ID]), client_roots=OURS.certificate_pem)
    context.maximum_version = version
    server = Server(context)
    with pytest.raises(ssl.SSLCertVerificationError, match="vouches for"):
        server.receive(identified(BOTH), bytes_at_once)
    assert server.seen is None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("bytes_at_once", [1, 100, 1 << 16])
def test_client_certificate_is_sent_to_a_peer_of_its_own_domain(
    version: ssl.TLSVersion, bytes_at_once: int
) -> None:
    context = server_context(*OURS.issue([A_ID]), client_roots=OURS.certificate_pem)
    context.maximum_version = version
    server = Server(context)
    server.receive(identified(BOTH), bytes_at_once)
    assert server.seen == (("URI", CLIENT_ID),)


def identified(trusted: TrustBundles) -> ssl.SSLContext:
    """The context of a client with a certificate."""
    chain, key = OURS.issue([CLIENT_ID], client=True)
    return client_context(
        ClientTls(
            trust_bundles=trusted,
            certificate_chain=chain,
            private_key=key,
            is_name_checked=False,
        )
    )


class Server:
    """The server's end of a handshake, with a client that is driven like in an event loop."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._from_client, self._to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._end = context.wrap_bio(self._from_client, self._to_client, server_side=True)
        # The names in the client's certificate, once the handshake is over.
        self.seen: object = None

    def receive(self, context: ssl.SSLContext, bytes_at_once: int) -> None:
        """Do the handshake. Our output is passed on in pieces, and the client's before it raises.

        asyncio and uvloop send a client's output when it wants to read or is done.
        """
        from_server, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(from_server, to_server)
        while self.seen is None:
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
            self._from_client.write(to_server.read())
            with suppress(ssl.SSLWantReadError):
                self._end.do_handshake()
                self.seen = (self._end.getpeercert() or {}).get("subjectAltName")
            from_server.write(self._to_client.read(bytes_at_once))


def test_intermediate_authorities_are_followed_to_the_root() -> None:
    between = CertificateAuthority("between", parent=OURS)
    connect(BOTH, between, A_ID)
    assert "vouches for" in refused(BOTH, between, B_ID)


def test_root_need_not_be_self_signed() -> None:
    between = CertificateAuthority("between", parent=OURS)
    connect(bundles(a=between), between, A_ID)
    # The authority above it is not trusted.
    assert "unable to get" in refused(bundles(a=between), OURS, A_ID)
    # Another domain may trust the same authority through its root.
    connect(bundles(a=between, b=OURS), between, A_ID)


def test_intermediate_root_of_a_domain_ends_the_chain_before_the_root_above_it() -> None:
    """B trusts the intermediate, A the root. Stricter than A87: see ADR 0014."""
    between = CertificateAuthority("between", parent=OURS)
    both = bundles(a=OURS, b=between)
    connect(both, between, B_ID)
    connect(both, OURS, A_ID)
    assert "vouches for" in refused(both, between, A_ID)


def test_root_of_two_domains_is_valid_in_both() -> None:
    shared = bundles(a=OURS, b=[OURS, THEIRS])
    for name in (A_ID, B_ID):
        connect(shared, OURS, name)
    connect(shared, THEIRS, B_ID)
    assert "vouches for" in refused(shared, THEIRS, A_ID)


def test_authorities_of_one_name_are_distinguished_by_their_keys() -> None:
    """As in SPIRE, where the authorities of all trust domains have the same name."""
    first, second = CertificateAuthority("same"), CertificateAuthority("same")
    both = bundles(a=first, b=second)
    for authority, name, other in ((first, A_ID, B_ID), (second, B_ID, A_ID)):
        connect(both, authority, name)
        assert "vouches for" in refused(both, authority, other)


def test_authorities_of_one_name_without_key_ids_accept_only_their_own_peers() -> None:
    """Without key ids (RFC 5280), OpenSSL tries one authority of a name: see ADR 0014."""
    first = CertificateAuthority("same", has_key_ids=False)
    second = CertificateAuthority("same", has_key_ids=False)
    both = bundles(a=first, b=second)
    for authority, other in ((first, B_ID), (second, A_ID)):
        assert refused(both, authority, other)


def test_expired_certificates_are_refused() -> None:
    context = client_context(ClientTls(trust_bundles=BOTH, is_name_checked=False))
    server = server_context(*OURS.issue([A_ID], ends_in=-timedelta(minutes=1)))
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        shake_hands(context, server)
    assert caught.value.verify_message.startswith(f"certificate has expired ({A_ID!r}; ")


def test_contexts_are_shared_by_equal_bundles_only() -> None:
    def context(trusted: TrustBundles) -> ssl.SSLContext:
        return client_context(ClientTls(trust_bundles=trusted, is_name_checked=False))

    assert context(bundles(a=OURS)) is context(bundles(a=OURS))
    assert context(bundles(a=OURS)) is not context(bundles(a=THEIRS))


def test_roots_of_the_environment_are_ignored_with_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "/nowhere/roots.pem")
    connect(BOTH, OURS, A_ID)


def test_wrap_socket_is_not_supported() -> None:
    context = client_context(ClientTls(trust_bundles=BOTH, is_name_checked=False))
    with pytest.raises(TypeError, match="wrap_bio only"):
        context.wrap_socket(None)  # type: ignore[arg-type]
