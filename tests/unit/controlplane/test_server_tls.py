"""Unit tests of proxyless.controlplane.server_tls, with grpcio's server and Python's TLS client."""

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from proxyless.controlplane.server_tls import (
    CHANGE_PAUSE_S,
    SeparatedChanges,
    TlsFiles,
    make_credentials,
)
from tests.certificates import CertificateAuthority
from tests.interop.drop_in import Untyped


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path / "server.pem", tmp_path / "server.key")


def write(files: TlsFiles, identity: tuple[bytes, bytes]) -> None:
    files.certificate.write_bytes(identity[0])
    files.key.write_bytes(identity[1])


@pytest.fixture
def server() -> Iterator[Any]:
    executor = ThreadPoolExecutor(1)
    server = grpc.server(executor, options=(("grpc.so_reuseport", 0),))
    yield server
    server.stop(None).wait()
    executor.shutdown()


def connect(port: int, name: str, authority: CertificateAuthority) -> str:
    """Name in the server's certificate; raises SSLError if it is not `name`."""
    context = authority.client_context(alpn=["h2"])
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        certificate: Any = secured.getpeercert()
        return str(certificate["subjectAltName"][0][1])


def test_certificates_are_read_again_when_the_files_change(
    files: TlsFiles, server: Untyped, authority: CertificateAuthority
) -> None:
    write(files, authority.issue(["first.test"]))
    port = server.add_secure_port("127.0.0.1:0", make_credentials(files))
    server.start()
    assert connect(port, "first.test", authority) == "first.test"
    write(files, authority.issue(["second.example.test"]))
    assert connect(port, "second.example.test", authority) == "second.example.test"


def test_certificates_before_are_kept_when_a_file_is_removed(
    files: TlsFiles, server: Untyped, authority: CertificateAuthority
) -> None:
    write(files, authority.issue(["first.test"]))
    port = server.add_secure_port("127.0.0.1:0", make_credentials(files))
    server.start()
    files.key.unlink()
    assert connect(port, "first.test", authority) == "first.test"


def test_certificates_before_are_kept_when_the_key_is_of_another_one(
    files: TlsFiles,
    server: Untyped,
    authority: CertificateAuthority,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write(files, authority.issue(["first.test"]))
    port = server.add_secure_port("127.0.0.1:0", make_credentials(files))
    server.start()
    files.key.write_bytes(authority.issue(["second.example.test"])[1])
    assert connect(port, "first.test", authority) == "first.test"
    assert "kept the certificate before: certificate files " in caplog.text
    assert "cannot be used: key values mismatch" in caplog.text


@pytest.mark.parametrize("name", ["server.pem", "server.key", "ca.pem"])
def test_file_that_is_no_certificate_or_key_raises_os_error(
    tmp_path: Path, name: str, files: TlsFiles, authority: CertificateAuthority
) -> None:
    write(files, authority.issue(["first.test"]))
    (tmp_path / "ca.pem").write_bytes(authority.certificate_pem)
    (tmp_path / name).write_text("junk")
    mutual = TlsFiles(files.certificate, files.key, tmp_path / "ca.pem")
    with pytest.raises(OSError, match=r"^certificate files .*server\.pem.* cannot be used: no "):
        make_credentials(mutual)


def test_client_without_a_certificate_is_rejected_when_roots_are_given(
    files: TlsFiles, server: Untyped, authority: CertificateAuthority, tmp_path: Path
) -> None:
    write(files, authority.issue(["first.test"]))
    roots = tmp_path / "ca.pem"
    roots.write_bytes(authority.certificate_pem)
    mutual = TlsFiles(files.certificate, files.key, roots)
    port = server.add_secure_port("127.0.0.1:0", make_credentials(mutual))
    server.start()
    with pytest.raises(OSError, match=r"."):
        read_first_byte(port, authority)


def read_first_byte(port: int, authority: CertificateAuthority) -> None:
    """With TLS 1.3 the server's alert comes after the client's part of the handshake."""
    context = authority.client_context(alpn=["h2"])
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="first.test") as secured,
    ):
        if not secured.recv(1):
            raise ssl.SSLEOFError("closed without a byte")


def test_missing_file_raises_os_error(files: TlsFiles) -> None:
    with pytest.raises(OSError, match=r"server\.key"):
        make_credentials(files)


@pytest.mark.parametrize("name", ["server.pem", "server.key", "roots.pem"])
def test_file_that_cannot_be_read_is_named(
    files: TlsFiles, authority: CertificateAuthority, tmp_path: Path, name: str
) -> None:
    write(files, authority.issue(["first.test"]))
    roots = tmp_path / "roots.pem"
    roots.write_bytes(authority.certificate_pem)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(OSError, match=f"^certificate file '.*{name}' cannot be read: Is a dir"):
        make_credentials(TlsFiles(files.certificate, files.key, roots))


def test_pause_is_made_before_a_change_and_before_the_next_handshake() -> None:
    changes = iter([None, None, "second", "third", None, None])
    pauses: list[float] = []
    fetch = SeparatedChanges(lambda: next(changes), sleep=pauses.append)
    assert [(fetch(), len(pauses)) for _ in range(6)] == [
        (None, 0),
        (None, 0),
        ("second", 1),
        ("third", 2),
        (None, 3),
        (None, 3),
    ]
    assert set(pauses) == {CHANGE_PAUSE_S}


def test_certificates_change_under_concurrent_handshakes(
    files: TlsFiles, server: Untyped, authority: CertificateAuthority
) -> None:
    identities = [authority.issue(["orders.test"]) for _ in range(2)]
    write(files, identities[0])
    port = server.add_secure_port("127.0.0.1:0", make_credentials(files))
    server.start()
    with ThreadPoolExecutor(4) as clients:
        for turn in range(1, 11):
            names = [clients.submit(connect, port, "orders.test", authority) for _ in range(8)]
            replace(files, identities[turn % 2])
            assert {name.result() for name in names} == {"orders.test"}


def replace(files: TlsFiles, identity: tuple[bytes, bytes]) -> None:
    """Each file at once, as Kubernetes and certificate managers do."""
    for path, content in zip((files.certificate, files.key), identity, strict=True):
        path.with_suffix(".new").write_bytes(content)
        path.with_suffix(".new").replace(path)
