"""Unit tests of proxyless.transport.tls: handshakes in memory."""

import gc
import os
import ssl
import tempfile
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from proxyless.transport.spiffe import TrustBundles
from proxyless.transport.tls import (
    CONTEXTS_MAX,
    CONTEXTS_WITH_KEY_MAX,
    ClientTls,
    PeerCertificate,
    check_identity,
    check_roots,
    client_context,
    drop_identity,
    identity_digest,
    refuse_name,
    refuse_peer,
)
from proxyless.transport.tls_sessions import TlsSessions
from tests import certificates
from tests.certificates import CertificateAuthority, server_context

NAME = "api.test"
AUTHORITY = CertificateAuthority()
STRANGER = CertificateAuthority("stranger")
SERVER = AUTHORITY.issue([NAME, "spiffe://example.test/a", "192.0.2.1", "2001:db8::1"])
CLIENT = AUTHORITY.issue(["client.test"], client=True)
ROOTS_VARIABLE = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"


def shake_hands(
    client: ssl.SSLContext, server: ssl.SSLContext, name: str | None = NAME
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    return certificates.shake_hands(client, server, name)


def tls(
    *, roots: CertificateAuthority = AUTHORITY, identity: tuple[bytes, bytes] | None = None
) -> ClientTls:
    chain, key = identity or (None, None)
    return ClientTls(
        root_certificates=roots.certificate_pem, certificate_chain=chain, private_key=key
    )


# Contexts


def test_client_negotiates_http2_and_tls_1_2_at_least() -> None:
    context = client_context(tls())
    client, server = shake_hands(context, server_context(*SERVER))
    assert client.selected_alpn_protocol() == server.selected_alpn_protocol() == "h2"
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("bundles", [None, TrustBundles.of(b"", {})])
def test_client_disables_renegotiation(bundles: TrustBundles | None) -> None:
    """RFC 9113, 9.2.1. Python's ssl module cannot renegotiate, so only the option is checked."""
    context = client_context(ClientTls(trust_bundles=bundles))
    assert ssl.OP_NO_RENEGOTIATION in context.options


def test_a_server_of_an_unknown_authority_is_refused() -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        shake_hands(client_context(tls(roots=STRANGER)), server_context(*SERVER))


@pytest.mark.parametrize("name", ["other.test", "sub.api.test", "192.0.2.2", "2001:db8::2"])
def test_a_server_with_another_name_is_refused(name: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake_hands(client_context(tls()), server_context(*SERVER), name)


@pytest.mark.parametrize("name", [NAME, "192.0.2.1", "2001:db8::1"])
def test_a_server_with_the_right_name_is_accepted(name: str) -> None:
    shake_hands(client_context(tls()), server_context(*SERVER), name)


def test_authority_is_checked_even_when_names_are_not() -> None:
    roots = AUTHORITY.certificate_pem
    unchecked = client_context(ClientTls(root_certificates=roots, is_name_checked=False))
    shake_hands(unchecked, server_context(*SERVER), "other.test")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(unchecked, server_context(*STRANGER.issue([NAME])), "other.test")


def test_server_requests_a_certificate_only_if_it_has_roots() -> None:
    _, server = shake_hands(client_context(tls(identity=CLIENT)), server_context(*SERVER))
    assert server.getpeercert() is None
    strict = server_context(*SERVER, AUTHORITY.certificate_pem)
    _, server = shake_hands(client_context(tls(identity=CLIENT)), strict)
    assert server.getpeercert(binary_form=True) == ssl.PEM_cert_to_DER_cert(CLIENT[0].decode())


@pytest.mark.parametrize(
    "identity", [None, STRANGER.issue(["client.test"], client=True)], ids=["none", "stranger's"]
)
def test_a_strict_server_refuses_clients_without_a_good_certificate(
    identity: tuple[bytes, bytes] | None,
) -> None:
    strict = server_context(*SERVER, AUTHORITY.certificate_pem)
    with pytest.raises(ssl.SSLError, match=r"PEER_DID_NOT_RETURN_A_CERTIFICATE|VERIFY_FAILED"):
        shake_hands(client_context(tls(identity=identity)), strict)


def test_equal_configurations_share_a_context() -> None:
    assert client_context(tls(identity=CLIENT)) is client_context(tls(identity=CLIENT))
    assert client_context(tls()) is not client_context(tls(identity=CLIENT))


# Default roots


def test_roots_come_from_the_file_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = tmp_path / "roots.pem"
    roots.write_bytes(AUTHORITY.certificate_pem)
    monkeypatch.setenv(ROOTS_VARIABLE, str(roots))
    # The names keep this context out of the cache of other tests.
    context = client_context(ClientTls(server_name="from the file"))
    shake_hands(context, server_context(*SERVER))
    assert len(context.get_ca_certs()) == 1


def test_a_file_of_roots_that_changed_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = tmp_path / "roots.pem"
    roots.write_bytes(STRANGER.certificate_pem)
    os.utime(roots, ns=(1, 1))
    monkeypatch.setenv(ROOTS_VARIABLE, str(roots))
    before = client_context(ClientTls())
    assert client_context(ClientTls()) is before
    roots.write_bytes(AUTHORITY.certificate_pem)
    os.utime(roots, ns=(2, 2))
    shake_hands(client_context(ClientTls()), server_context(*SERVER))


def test_a_file_of_roots_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOTS_VARIABLE, "/nowhere/roots.pem")
    with pytest.raises(ValueError, match=r"root certificates are not usable: .*No such file"):
        client_context(ClientTls(server_name="from no file"))


def test_system_roots_are_used_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROOTS_VARIABLE, raising=False)
    context = client_context(ClientTls(server_name="from the system"))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(context, server_context(*SERVER))


# Invalid configurations


@pytest.mark.parametrize("roots", [b"", b"not a certificate", b"\xff\xfe"])
def test_bad_roots_are_an_error(roots: bytes) -> None:
    with pytest.raises(ValueError, match="root certificates are not usable: "):
        client_context(ClientTls(root_certificates=roots))


@pytest.mark.parametrize(
    ("chain", "key"), [(CLIENT[0], None), (None, CLIENT[1])], ids=["no key", "no certificate"]
)
def test_certificate_without_key_or_key_without_certificate_is_an_error(
    chain: bytes | None, key: bytes | None
) -> None:
    half = ClientTls(
        root_certificates=AUTHORITY.certificate_pem, certificate_chain=chain, private_key=key
    )
    with pytest.raises(ValueError, match="go together: one of them is missing"):
        client_context(half)


BAD_IDENTITIES = {
    "the key of another": (CLIENT[0], SERVER[1]),
    "no certificate": (b"nothing", CLIENT[1]),
    "no key": (CLIENT[0], b"nothing"),
}


@pytest.mark.parametrize("identity", BAD_IDENTITIES.values(), ids=BAD_IDENTITIES)
def test_client_context_raises_when_its_identity_is_bad(identity: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="certificate chain and key are not usable: "):
        client_context(tls(identity=identity))


def test_roots_may_have_comments_in_any_language() -> None:
    bundle = "# Főtanúsítvány\n".encode() + AUTHORITY.certificate_pem
    shake_hands(client_context(ClientTls(root_certificates=bundle)), server_context(*SERVER))


def test_invalid_bytes_inside_a_root_are_an_error() -> None:
    head, _, rest = AUTHORITY.certificate_pem.partition(b"\n")
    with pytest.raises(ValueError, match="root certificates are not usable: "):
        check_roots(head + b"\n\xc5\x91" + rest)


def refuse_file(*_: object, **__: object) -> tuple[int, str]:
    raise PermissionError(13, "Permission denied")


def test_identity_is_not_usable_without_memory_files_and_directories(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "mkstemp", refuse_file)
    with pytest.raises(ValueError, match=r"chain and key are not usable: .*Permission denied"):
        check_identity(*CLIENT)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux")
def test_identity_is_usable_when_no_directory_is_writable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "mkstemp", refuse_file)
    check_identity(*CLIENT)


def make_identity() -> tuple[bytes, bytes]:
    return AUTHORITY.issue(["fresh.test"], client=True)


def test_dropped_identity_is_not_kept_by_the_cache() -> None:
    old, other, sessions = make_identity(), make_identity(), TlsSessions()
    resuming = replace(tls(identity=old), sessions=sessions)
    kept = client_context(tls(identity=other))
    contexts = [weakref.ref(client_context(tls(identity=old)))]
    client, server = shake_hands(client_context(resuming), server_context(*SERVER))
    server.write(b"x")
    client.read(1)
    sessions.keep(client)
    contexts.append(weakref.ref(client.context))
    assert len(sessions) == 1
    del client, server
    drop_identity(identity_digest(*old))
    gc.collect()
    assert [each() for each in contexts] == [None, None]
    assert len(sessions) == 0
    assert client_context(tls(identity=other)) is kept


def test_contexts_with_a_key_are_few() -> None:
    first = tls(identity=make_identity())
    context = weakref.ref(client_context(first))
    without_key = client_context(tls())
    for _ in range(CONTEXTS_WITH_KEY_MAX - 1):
        client_context(tls(identity=make_identity()))
        # A context that is used stays.
        assert client_context(first) is context()
    for _ in range(CONTEXTS_WITH_KEY_MAX):
        client_context(tls(identity=make_identity()))
    gc.collect()
    assert context() is None
    assert client_context(tls()) is without_key


def test_contexts_are_bounded() -> None:
    first = ClientTls(root_certificates=AUTHORITY.certificate_pem + b"# first")
    context = weakref.ref(client_context(first))
    for number in range(CONTEXTS_MAX):
        comment = f"# {number}".encode()
        client_context(ClientTls(root_certificates=AUTHORITY.certificate_pem + comment))
    gc.collect()
    assert context() is None


# Secrets


def test_key_is_left_neither_on_disk_nor_in_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delattr(os, "memfd_create", raising=False)
    client_context(tls(identity=AUTHORITY.issue(["fresh.test"], client=True)))
    with pytest.raises(ValueError, match="not usable"):
        check_identity(CLIENT[0], SERVER[1])
    assert os.listdir(tmp_path) == []
    with_key = tls(identity=CLIENT)
    assert CLIENT[1].decode().splitlines()[1] not in repr(with_key)
    assert "has_key=True" in repr(with_key)


# After the handshake


def test_peer_that_did_not_negotiate_http2_is_refused() -> None:
    other = AUTHORITY.server_context([NAME], alpn=["http/1.1"])
    client, _ = shake_hands(client_context(tls()), other)
    assert refuse_peer(client, None) == "peer negotiated None by ALPN, wanted 'h2'"


def test_check_peer_gets_the_names_of_the_certificate() -> None:
    client, _ = shake_hands(client_context(tls()), server_context(*SERVER))
    assert refuse_peer(client, None) is None
    seen: list[PeerCertificate] = []
    assert refuse_peer(client, seen.append) is None
    assert seen == [
        PeerCertificate(
            dns_names=(NAME,),
            uris=("spiffe://example.test/a",),
            ip_addresses=("192.0.2.1", "2001:DB8:0:0:0:0:0:1"),
            emails=(),
            der=ssl.PEM_cert_to_DER_cert(SERVER[0].decode()),
        )
    ]
    assert refuse_peer(client, lambda peer: f"I know no {peer.uris[0]}") == (
        "I know no spiffe://example.test/a"
    )


@pytest.mark.parametrize("alternative", ["spiffe://example.test/a", "192.0.2.1"])
def test_common_name_is_ignored_beside_alternative_names(alternative: str) -> None:
    """OpenSSL accepts it if no alternative is a DNS name; gRPC does not (RFC 6125, 6.4.4)."""
    server = server_context(*AUTHORITY.issue([alternative], common_name=NAME))
    client, _ = shake_hands(client_context(tls()), server)
    assert refuse_peer(client, None) == f"certificate has other names than {NAME!r}"
    unchecked = client_context(replace(tls(), is_name_checked=False))
    client, _ = shake_hands(unchecked, server)
    assert refuse_peer(client, None) is None


def test_ip_address_may_be_the_server_name() -> None:
    server = server_context(*AUTHORITY.issue(["192.0.2.1"], common_name=NAME))
    client, _ = shake_hands(client_context(tls()), server, "192.0.2.1")
    assert refuse_peer(client, None) is None


def test_refuse_name_accepts_other_names_of_the_certificate() -> None:
    names = [NAME, "*.wild.test", "192.0.2.1"]
    server = server_context(*AUTHORITY.issue(names, common_name="subject.test"))
    client, _ = shake_hands(client_context(tls()), server)
    assert [refuse_name(client, each) for each in (NAME, "a.wild.test", "192.0.2.1")] == [None] * 3
    for other in ("other.test", "subject.test", "192.0.2.2"):
        assert refuse_name(client, other) == f"certificate has other names than {other!r}"


def test_refuse_name_accepts_every_name_when_names_are_not_checked() -> None:
    unchecked = client_context(replace(tls(), is_name_checked=False))
    client, _ = shake_hands(unchecked, server_context(*SERVER))
    assert refuse_name(client, "other.test") is None


def test_check_peer_is_not_called_for_a_peer_without_http2() -> None:
    client, _ = shake_hands(client_context(tls()), AUTHORITY.server_context([NAME]))
    seen: list[PeerCertificate] = []
    assert refuse_peer(client, seen.append) is not None
    assert seen == []


def test_servers_that_differ_by_name_only_have_one_context() -> None:
    plain = client_context(tls())
    assert client_context(replace(tls(), server_name="a", check_peer=lambda _: None)) is plain
    assert client_context(replace(tls(), is_name_checked=False)) is not plain


def test_certificates_can_be_checked_before_they_are_used() -> None:
    check_roots(AUTHORITY.certificate_pem)
    check_identity(*CLIENT)
    with pytest.raises(ValueError, match="root certificates are not usable"):
        check_roots(AUTHORITY.certificate_pem[:100])
    with pytest.raises(ValueError, match="certificate chain and key are not usable"):
        check_identity(CLIENT[0], SERVER[1])
