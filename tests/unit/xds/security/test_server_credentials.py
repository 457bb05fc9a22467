"""Credentials of connections to a control plane."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from proxyless.base import Metadata, Status, StatusCode
from proxyless.transport import ClientTls
from proxyless.transport.tls import identity_digest
from proxyless.xds.bootstrap import ChannelCreds, TlsConfig
from proxyless.xds.security.server_credentials import (
    FILE_BYTES_MAX,
    GoogleTokens,
    TokenFile,
    read_tls,
)

if TYPE_CHECKING:
    from pathlib import Path

    from proxyless.channel.credentials import CallCredentials


def request_metadata(credentials: CallCredentials) -> Metadata | Status:
    found: list[Metadata | Status] = []
    credentials.request("https://server/service", "/service/Method", found.append)
    (result,) = found
    return result


def test_tls_has_the_default_roots_without_files() -> None:
    assert read_tls(ChannelCreds("tls")) == ClientTls()
    assert read_tls(ChannelCreds("tls", TlsConfig())) == ClientTls()


def test_certificates_are_read_from_the_files_for_each_connection(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("ca", "cert", "key")]
    config = TlsConfig(*map(str, paths))  # type: ignore[arg-type]
    for version in (b"1", b"2"):
        for path in paths:
            path.write_bytes(path.name.encode() + version)
        assert read_tls(ChannelCreds("tls", config)) == ClientTls(
            root_certificates=b"ca" + version,
            certificate_chain=b"cert" + version,
            private_key=b"key" + version,
        )


def test_previous_identity_is_dropped_after_a_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[bytes] = []
    monkeypatch.setattr("proxyless.transport.tls.drop_identity", dropped.append)
    paths = [tmp_path / name for name in ("ca", "cert", "key")]
    creds = ChannelCreds("tls", TlsConfig(*map(str, paths)))  # type: ignore[arg-type]
    for content in (b"1", b"1", b"2"):
        for path in paths:
            path.write_bytes(content)
        read_tls(creds)
    assert dropped == [identity_digest(b"1", b"1")]


def test_unusable_file_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "ca"
    creds = ChannelCreds("tls", TlsConfig(str(path)))
    missing = read_tls(creds)
    assert isinstance(missing, Status)
    assert missing.details == f"file {str(path)!r} cannot be read: No such file or directory"
    path.write_bytes(bytes(FILE_BYTES_MAX + 1))
    large = read_tls(creds)
    assert isinstance(large, Status)
    assert "is too large" in large.details
    assert isinstance(read_tls(ChannelCreds("tls", TlsConfig("a\0b"))), Status)


def test_token_is_read_from_the_file_for_each_request(tmp_path: Path) -> None:
    path = tmp_path / "token"
    credentials = TokenFile(str(path))
    missing = request_metadata(credentials)
    assert isinstance(missing, Status)
    assert missing.code is StatusCode.UNAVAILABLE
    for token in ("ey.one", "ey.two"):
        path.write_text(f"{token}\n")
        assert request_metadata(credentials) == (("authorization", f"Bearer {token}"),)


@pytest.mark.parametrize("content", [b"", b" \n", b"two words", b"a\nb", "ü".encode()])
def test_invalid_token_is_not_sent(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    refused = request_metadata(TokenFile(str(path)))
    assert refused == Status(StatusCode.UNAVAILABLE, f"file {str(path)!r} holds no token")


class Tokens:
    """A fake of google-auth's credentials."""

    valid = False
    token = ""
    refreshed = 0
    error: Exception | None = None

    def refresh(self, _request: object) -> None:
        if self.error is not None:
            raise self.error
        self.valid, self.token = True, "ya29.token"
        self.refreshed += 1


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> Tokens:
    tokens = Tokens()
    auth, requests = ModuleType("google.auth"), ModuleType("google.auth.transport.requests")
    vars(auth)["default"] = lambda scopes: (tokens, "project")
    vars(requests)["Request"] = SimpleNamespace
    monkeypatch.setitem(sys.modules, "google.auth", auth)
    monkeypatch.setitem(sys.modules, "google.auth.transport.requests", requests)
    return tokens


async def request_google_metadata(credentials: GoogleTokens) -> Metadata | Status:
    result: asyncio.Future[Metadata | Status] = asyncio.get_running_loop().create_future()
    credentials.request("https://server/service", "/service/Method", result.set_result)
    return await result


async def test_google_token_is_fetched_once_while_it_is_valid(tokens: Tokens) -> None:
    credentials = GoogleTokens()
    for _ in range(2):
        found = await request_google_metadata(credentials)
        assert found == (("authorization", "Bearer ya29.token"),)
    assert tokens.refreshed == 1


async def test_error_of_google_auth_is_a_status(tokens: Tokens) -> None:
    tokens.error = RuntimeError("no metadata server")
    found = await request_google_metadata(GoogleTokens())
    assert found == Status(
        StatusCode.UNAVAILABLE,
        "google_default credentials: RuntimeError (its text is logged by"
        " proxyless.xds.certificates at DEBUG)",
    )


def test_google_default_raises_when_google_auth_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(ValueError, match="needs the package google-auth"):
        GoogleTokens()
