"""Server credentials from files, which are read again when they change.

grpcio calls back at each handshake; the files are read only if their time or size has changed, and
a file that cannot be read leaves the certificates before in use.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import grpc

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from pathlib import Path

_LOGGER: Final = logging.getLogger("proxyless.controlplane")


@frozen
class TlsFiles:
    """Paths of a server's certificate chain and key, and of the roots of its clients."""

    certificate: Path
    key: Path
    # Clients must have a certificate of these roots (mTLS); None: any client is accepted.
    client_roots: Path | None = None

    def read(self) -> tuple[bytes, bytes, bytes | None]:
        """Key, certificate chain, roots. OSError if a file cannot be read."""
        roots = self.client_roots.read_bytes() if self.client_roots is not None else None
        return self.key.read_bytes(), self.certificate.read_bytes(), roots

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Time and size of each file. OSError if one does not exist."""
        paths = (self.key, self.certificate, self.client_roots)
        stats = [path.stat() for path in paths if path is not None]
        return tuple((stat.st_mtime_ns, stat.st_size) for stat in stats)


def make_credentials(files: TlsFiles) -> Any:  # noqa: ANN401 - grpcio's objects have no types
    """grpcio's server credentials of these files. OSError if one cannot be read."""
    used = files.stamp()

    def fetch() -> Any:  # noqa: ANN401 - as above
        """Called by grpcio, in a thread of its own; None: nothing has changed."""
        nonlocal used
        try:
            stamp = files.stamp()
            if stamp == used:
                return None
            content = files.read()
        except OSError as error:
            _LOGGER.error("kept the certificate before: %s", error)
            return None
        used = stamp
        _LOGGER.info("certificate %r was read again", str(files.certificate))
        return _configure(content)

    is_mutual = files.client_roots is not None
    return grpc.dynamic_ssl_server_credentials(_configure(files.read()), fetch, is_mutual)


def _configure(content: tuple[bytes, bytes, bytes | None]) -> Any:  # noqa: ANN401 - as above
    key, certificate, roots = content
    return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=roots)
