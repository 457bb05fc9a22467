"""Server credentials from files, which are read again when they change.

grpcio calls back at each handshake; the files are read only if their time or size has changed, and
if they cannot be used, the previous certificates stay in use. They are checked with the ssl module
first, because grpcio reports unusable ones as an address that cannot be bound.
"""

from __future__ import annotations

import logging
import ssl
import threading
from typing import TYPE_CHECKING, Any, Final

import grpc

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

# Far longer than grpcio takes from a callback's return until the handshake has its configuration.
CHANGE_PAUSE_S: Final = 0.05
_LOGGER: Final = logging.getLogger("proxyless.controlplane")


@frozen
class TlsFiles:
    """Paths of a server's certificate chain and key, and of the roots of its clients."""

    certificate: Path
    key: Path
    # Clients must have a certificate of these roots (mTLS); None: any client is accepted.
    client_roots: Path | None = None

    def read(self) -> tuple[bytes, bytes, bytes | None]:
        """Key, certificate chain, roots. OSError if a file cannot be read or used."""
        # First, because the errors of the ssl module do not name the file.
        key, certificate = _read(self.key), _read(self.certificate)
        roots = None if self.client_roots is None else _read(self.client_roots)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # The password prevents a prompt for an encrypted key.
            context.load_cert_chain(self.certificate, self.key, password="")
            if self.client_roots is not None:
                context.load_verify_locations(self.client_roots)
        except ssl.SSLError as error:
            used = (self.certificate, self.key, self.client_roots)
            names = ", ".join(repr(str(path)) for path in used if path is not None)
            reason = error.reason.replace("_", " ").lower() if error.reason else "no PEM"
            raise OSError(f"certificate files {names} cannot be used: {reason}") from error
        return key, certificate, roots

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Time and size of each file. OSError if one does not exist."""
        paths = (self.key, self.certificate, self.client_roots)
        stats = [_stat(path) for path in paths if path is not None]
        return tuple((stat.st_mtime_ns, stat.st_size) for stat in stats)


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> OSError:
    return OSError(f"certificate file {str(path)!r} cannot be read: {error.strerror}")


class SeparatedChanges:
    """Callback of grpcio's dynamic server credentials, which keeps changes apart from handshakes.

    When grpcio gets a new configuration, it frees the one in force, although a handshake in another
    thread may be about to use it (grpc/grpc#36693): the process aborts or crashes. So there is a
    pause before each change, and another before the handshake after it.
    """

    def __init__(
        self, read: Callable[[], Any], *, sleep: Callable[[float], object] | None = None
    ) -> None:
        # Returns a new configuration; None: nothing has changed.
        self._read = read
        self._sleep = sleep or threading.Event().wait
        # grpcio calls back in threads of its own.
        self._lock = threading.Lock()
        self._was_change = False

    def __call__(self) -> Any:  # noqa: ANN401 - grpcio's objects have no types
        with self._lock:
            configuration = self._read()
            is_change = configuration is not None
            if is_change or self._was_change:
                self._sleep(CHANGE_PAUSE_S)
            self._was_change = is_change
            return configuration


def make_credentials(files: TlsFiles) -> Any:  # noqa: ANN401 - grpcio's objects have no types
    """grpcio's server credentials of these files. OSError if they cannot be read or used."""
    used, logged = files.stamp(), ""

    def read_changed() -> Any:  # noqa: ANN401 - as above
        """A new configuration; None: nothing has changed."""
        nonlocal used, logged
        try:
            stamp = files.stamp()
            if stamp == used:
                return None
            content = files.read()
            if files.stamp() != stamp:
                return None  # Half of a change; the next handshake reads the whole.
        except OSError as error:
            if str(error) != logged:  # Once, and not for each handshake.
                logged = str(error)
                _LOGGER.error("kept the certificate before: %s", error)
            return None
        used, logged = stamp, ""
        _LOGGER.info("certificate %r was read again", str(files.certificate))
        return _configure(content)

    is_mutual = files.client_roots is not None
    fetch = SeparatedChanges(read_changed)
    return grpc.dynamic_ssl_server_credentials(_configure(files.read()), fetch, is_mutual)


def _configure(content: tuple[bytes, bytes, bytes | None]) -> Any:  # noqa: ANN401 - as above
    key, certificate, roots = content
    return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=roots)
