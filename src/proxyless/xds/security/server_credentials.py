"""Credentials of a connection to a control plane, by the bootstrap's config.

Specs: A27 (google_default), A65 (tls), A97 (jwt_token_file).

Files are read for each connection or stream, so renewed files are used without a watch.
"""

from __future__ import annotations

import asyncio
import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import Metadata, Status, StatusCode, one_line

if TYPE_CHECKING:
    from proxyless.channel.credentials import OnMetadata
    from proxyless.transport import ClientTls
    from proxyless.xds.bootstrap import ChannelCreds

LOGGER: Final = logging.getLogger("proxyless.xds.certificates")
FILE_BYTES_MAX: Final = 1 << 20
_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)


def read_tls(creds: ChannelCreds) -> ClientTls | Status:
    """TLS with the current certificates."""
    from proxyless.transport.tls import ClientTls  # noqa: PLC0415 - only with TLS

    config = creds.config
    if config is None:
        return ClientTls()
    files = (config.ca_certificate_file, config.certificate_file, config.private_key_file)
    try:
        roots, chain, key = (read_file(path) if path else None for path in files)
    except ValueError as error:
        return Status(StatusCode.UNAVAILABLE, str(error))
    if chain is not None and key is not None:
        _drop_previous((config.certificate_file, config.private_key_file), chain, key)
    return ClientTls(root_certificates=roots, certificate_chain=chain, private_key=key)


# Digests of the identities in use, by their files.
_digests: Final[dict[tuple[str, str], bytes]] = {}


def _drop_previous(files: tuple[str, str], chain: bytes, key: bytes) -> None:
    """After a rotation, do not keep the old private key."""
    from proxyless.transport.tls import drop_identity, identity_digest  # noqa: PLC0415

    digest = identity_digest(chain, key)
    previous = _digests.get(files, digest)
    _digests[files] = digest
    if previous != digest:
        drop_identity(previous)


def read_file(path: str) -> bytes:
    """The content of a small file; ValueError if it cannot be read. Blocks the thread."""
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"file {path!r} cannot be read: {reason}") from error
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"file {path!r} is too large, wanted at most {FILE_BYTES_MAX} bytes")
    return content


class TokenFile:
    """Call credentials from a token file (A97), which is read for each stream."""

    def __init__(self, path: str) -> None:
        self._path = path

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> None:
        try:
            result = _bearer(read_file(self._path), f"file {self._path!r}")
        except ValueError as error:
            result = Status(StatusCode.UNAVAILABLE, str(error))
        on_metadata(result)


def _bearer(token: bytes, source: str) -> Metadata | Status:
    stripped = token.strip()
    # The characters of a token: RFC 7515, section 3.1, and RFC 6750.
    if not stripped or not all(0x21 <= byte <= 0x7E for byte in stripped):  # noqa: PLR2004
        return Status(StatusCode.UNAVAILABLE, f"{source} holds no token")
    return (("authorization", f"Bearer {stripped.decode('ascii')}"),)


class GoogleTokens:
    """Call credentials by Google's application default credentials, from google-auth."""

    def __init__(self) -> None:
        """Raises ValueError if the package is not installed."""
        try:
            self._auth: Any = import_module("google.auth")
            self._requests: Any = import_module("google.auth.transport.requests")
        except ImportError as error:
            text = f"channel_creds google_default needs the package google-auth: {error}"
            raise ValueError(text) from error
        self._credentials: Any = None
        self._tasks: set[asyncio.Task[None]] = set()

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> None:
        task = asyncio.get_running_loop().create_task(self._run(on_metadata))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, on_metadata: OnMetadata) -> None:
        try:
            token = await asyncio.to_thread(self._fetch)
        except Exception as error:
            # The text may have a token server's response in it.
            LOGGER.debug("google_default credentials: %s", one_line(str(error)))
            text = f"google_default credentials: {type(error).__name__} (its text is logged"
            text += f" by {LOGGER.name} at DEBUG)"
            on_metadata(Status(StatusCode.UNAVAILABLE, text))
        else:
            on_metadata(_bearer(token.encode(), "google_default"))

    def _fetch(self) -> str:
        """Runs in a thread: google-auth does blocking I/O."""
        if self._credentials is None:
            self._credentials, _ = self._auth.default(scopes=_SCOPES)
        if not self._credentials.valid:
            self._credentials.refresh(self._requests.Request())
        return str(self._credentials.token)
