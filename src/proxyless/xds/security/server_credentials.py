"""What does a bootstrap's credentials config mean for a connection to a control plane?

Specs: A27 (google_default), A65 (tls), A97 (jwt_token_file).

Files are read when a connection or a stream is made, so what was renewed on disk is used from then
on, and nothing has to watch it. They are small, so they are read at once.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import Metadata, Status, StatusCode
from proxyless.transport import ClientTls
from proxyless.xds.bootstrap import INSECURE

if TYPE_CHECKING:
    from proxyless.channel.credentials import OnMetadata
    from proxyless.xds.bootstrap import ChannelCreds

FILE_BYTES_MAX: Final = 1 << 20
_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)


def read_tls(creds: ChannelCreds) -> ClientTls | Status | None:
    """The certificates as they are now; None for a connection without TLS."""
    if creds.type == INSECURE:
        return None
    config = creds.config
    if config is None:
        return ClientTls()
    files = (config.ca_certificate_file, config.certificate_file, config.private_key_file)
    contents: list[bytes | None] = []
    for path in files:
        content = read_file(path) if path else None
        if isinstance(content, Status):
            return content
        contents.append(content)
    roots, chain, key = contents
    return ClientTls(root_certificates=roots, certificate_chain=chain, private_key=key)


def read_file(path: str) -> bytes | Status:
    """A small file as it is now, or why it cannot be read."""
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return Status(StatusCode.UNAVAILABLE, f"file {path!r} cannot be read: {reason}")
    if len(content) > FILE_BYTES_MAX:
        text = f"file {path!r} is too large, wanted at most {FILE_BYTES_MAX} bytes"
        return Status(StatusCode.UNAVAILABLE, text)
    return content


class TokenFile:
    """Call credentials from a file that somebody else keeps fresh (A97)."""

    def __init__(self, path: str) -> None:
        self._path = path

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> None:
        content = read_file(self._path)
        found = content if isinstance(content, Status) else _bearer(content, f"file {self._path!r}")
        on_metadata(found)


def _bearer(token: bytes, source: str) -> Metadata | Status:
    stripped = token.strip()
    # What a token consists of: RFC 7515, section 3.1, and RFC 6750.
    if not stripped or not all(0x21 <= byte <= 0x7E for byte in stripped):  # noqa: PLR2004
        return Status(StatusCode.UNAVAILABLE, f"{source} holds no token")
    return (("authorization", f"Bearer {stripped.decode('ascii')}"),)


class GoogleTokens:
    """Call credentials of Google's application default, by the package google-auth."""

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
            text = f"google_default credentials: {type(error).__name__}: {error}"
            on_metadata(Status(StatusCode.UNAVAILABLE, text))
        else:
            on_metadata(_bearer(token.encode(), "google_default"))

    def _fetch(self) -> str:
        """In a thread: this asks servers, and waits."""
        if self._credentials is None:
            self._credentials, _ = self._auth.default(scopes=_SCOPES)
        if not self._credentials.valid:
            self._credentials.refresh(self._requests.Request())
        return str(self._credentials.token)
