"""Certificates of the backend and of its clients, made for one run.

A directory has `ca.pem`, `server.pem` (key and chain of the backend), `client.pem` and
`client.key`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import grpc

# The name that clients verify: the backend has many addresses, and one certificate.
SERVER_NAME: Final = "backend.bench.example"


@contextmanager
def certificate_directory() -> Iterator[Path]:
    """A new directory of certificates, removed at the end."""
    from tests.certificates import CertificateAuthority  # noqa: PLC0415 - only runs with TLS

    authority = CertificateAuthority("bench authority")
    chain, key = authority.issue([SERVER_NAME])
    client_chain, client_key = authority.issue(["client.bench.example"], client=True)
    with TemporaryDirectory(prefix="bench-certificates-") as name:
        directory = Path(name)
        (directory / "ca.pem").write_bytes(authority.certificate_pem)
        (directory / "server.pem").write_bytes(key + chain)
        (directory / "client.pem").write_bytes(client_chain)
        (directory / "client.key").write_bytes(client_key)
        yield directory


def channel_credentials(directory: Path) -> grpc.ChannelCredentials:
    """Credentials of both libraries. The identity is sent only if the server requests one."""
    names = ("ca.pem", "client.key", "client.pem")
    return grpc.ssl_channel_credentials(*((directory / name).read_bytes() for name in names))


def channel_options() -> tuple[tuple[str, str], ...]:
    return (("grpc.ssl_target_name_override", SERVER_NAME),)
