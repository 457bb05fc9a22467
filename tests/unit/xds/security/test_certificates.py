"""Certificate providers: file_watcher, custom plugins, and sharing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import serialization

from proxyless.base import Status, StatusCode
from proxyless.runtime import VirtualClock
from proxyless.transport import TrustBundles
from proxyless.transport.tls import CONTEXTS_WITH_KEY_MAX, identity_digest
from proxyless.xds.bootstrap import CertificateProviderConfig
from proxyless.xds.bootstrap.bootstrap import REFRESH_INTERVAL_S
from proxyless.xds.resources import CertificateInstance
from proxyless.xds.security.certificates import (
    SPIFFE_GUARD,
    Certificates,
    CertificateStore,
    FileWatcherPlugin,
    Identity,
)
from tests.certificates import CertificateAuthority, trust_bundle_map

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from proxyless.base.json_fields import JsonObject
    from proxyless.runtime import Clock

INTERVAL_S = 60.0
MESH = CertificateInstance("mesh", "any")
OLD, NEW = CertificateAuthority("old"), CertificateAuthority("new")
OLD_IDENTITY = OLD.issue(["client"], client=True)
NEW_IDENTITY = NEW.issue(["client"], client=True)


class CertificateFilesWorld:
    """Three files, and a file_watcher that reads them."""

    def __init__(self, directory: Path, **changes: object) -> None:
        self.clock = VirtualClock()
        self.roots = directory / "ca.pem"
        self.certificate = directory / "cert.pem"
        self.key = directory / "key.pem"
        config: dict[str, object] = {
            "certificate_file": str(self.certificate),
            "private_key_file": str(self.key),
            "ca_certificate_file": str(self.roots),
            "refresh_interval": f"{INTERVAL_S}s",
        }
        config = {k: v for k, v in (config | changes).items() if v is not None}
        self.store = CertificateStore(self.clock)
        configs = {"mesh": CertificateProviderConfig("file_watcher", config)}
        self.certificates = self.store.acquire(configs)

    def write(self, roots: bytes, identity: tuple[bytes, bytes]) -> None:
        self.roots.write_bytes(roots)
        self.certificate.write_bytes(identity[0])
        self.key.write_bytes(identity[1])

    def read(self) -> tuple[bytes | TrustBundles | Status, tuple[bytes, bytes] | Status]:
        identity = self.certificates.identity(MESH)
        if isinstance(identity, Identity):
            pair = (identity.certificate_chain, identity.private_key)
            return self.certificates.roots(MESH), pair
        return self.certificates.roots(MESH), identity


@pytest.fixture
def world(tmp_path: Path) -> CertificateFilesWorld:
    """A world with valid files."""
    made = CertificateFilesWorld(tmp_path)
    made.write(OLD.certificate_pem, OLD_IDENTITY)
    return made


def details(found: object) -> str:
    assert isinstance(found, Status)
    assert found.code is StatusCode.UNAVAILABLE
    return found.details


# file_watcher


@pytest.mark.spec("A29-18")
def test_files_are_read_again_when_the_interval_is_over(world: CertificateFilesWorld) -> None:
    assert world.read() == (OLD.certificate_pem, OLD_IDENTITY)
    world.write(NEW.certificate_pem, NEW_IDENTITY)
    world.clock.advance(INTERVAL_S - 0.001)
    assert world.read() == (OLD.certificate_pem, OLD_IDENTITY)
    world.clock.advance(0.001)
    assert world.read() == (NEW.certificate_pem, NEW_IDENTITY)


def test_file_watcher_has_no_timer(world: CertificateFilesWorld) -> None:
    world.read()
    assert world.clock.timers_pending == 0


@pytest.mark.spec("A29-19")
@pytest.mark.parametrize(
    "length", [0, 1, 40, len(NEW.certificate_pem) // 2], ids=["nothing", "1", "40", "half"]
)
def test_old_roots_stay_in_use_when_the_file_is_half_written(
    world: CertificateFilesWorld, length: int
) -> None:
    world.read()
    world.clock.advance(INTERVAL_S)
    world.roots.write_bytes(NEW.certificate_pem[:length])
    assert world.certificates.roots(MESH) == OLD.certificate_pem
    world.roots.write_bytes(NEW.certificate_pem)
    # The file is read again soon, before the interval is over.
    world.clock.advance(1.0)
    assert world.certificates.roots(MESH) == NEW.certificate_pem


@pytest.mark.spec("A29-19")
@pytest.mark.parametrize(
    ("certificate", "key"),
    [
        (NEW_IDENTITY[0], OLD_IDENTITY[1]),
        (OLD_IDENTITY[0], NEW_IDENTITY[1]),
        (NEW_IDENTITY[0][:100], NEW_IDENTITY[1]),
        (NEW_IDENTITY[0], NEW_IDENTITY[1][:100]),
        (b"", b""),
    ],
    ids=["other key", "other certificate", "half a certificate", "half a key", "empty"],
)
def test_old_identity_stays_in_use_when_key_and_certificate_do_not_match(
    world: CertificateFilesWorld, certificate: bytes, key: bytes
) -> None:
    world.read()
    world.clock.advance(INTERVAL_S)
    world.write(OLD.certificate_pem, (certificate, key))
    assert world.read()[1] == OLD_IDENTITY
    world.write(OLD.certificate_pem, NEW_IDENTITY)
    world.clock.advance(1.0)
    assert world.read()[1] == NEW_IDENTITY


@pytest.mark.spec("A29-19")
def test_old_certificates_stay_in_use_when_files_are_removed(world: CertificateFilesWorld) -> None:
    world.read()
    for path in (world.roots, world.certificate, world.key):
        path.unlink()
    world.clock.advance(INTERVAL_S)
    assert world.read() == (OLD.certificate_pem, OLD_IDENTITY)


def test_error_is_logged_once_and_without_the_key(
    world: CertificateFilesWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.read()
    world.key.write_bytes(NEW_IDENTITY[1])
    for _ in range(3):
        world.clock.advance(INTERVAL_S)
        world.read()
    [record] = caplog.records
    text = record.getMessage()
    assert text.startswith(f"files {str(world.certificate)!r} and {str(world.key)!r}: ")
    assert text.endswith(": what was read before stays in use")
    assert "PRIVATE" not in text
    assert NEW_IDENTITY[1].decode()[30:60] not in text


def test_missing_files_are_read_as_soon_as_they_exist(tmp_path: Path) -> None:
    world = CertificateFilesWorld(tmp_path)
    roots, identity = world.read()
    missing = "cannot be read: No such file or directory"
    assert details(roots) == f"certificate provider 'mesh': file {str(world.roots)!r} {missing}"
    assert details(identity) == (
        f"certificate provider 'mesh': file {str(world.certificate)!r} {missing}"
    )
    world.write(OLD.certificate_pem, OLD_IDENTITY)
    assert isinstance(world.read()[0], Status)
    world.clock.advance(1.0)
    assert world.read() == (OLD.certificate_pem, OLD_IDENTITY)


def test_missing_key_file_is_named_in_the_error(world: CertificateFilesWorld) -> None:
    world.key.unlink()
    assert f"file {str(world.key)!r} cannot be read" in details(world.read()[1])


def test_encrypted_key_is_rejected_without_a_password_prompt(world: CertificateFilesWorld) -> None:
    key = serialization.load_pem_private_key(OLD_IDENTITY[1], None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    world.key.write_bytes(encrypted)
    assert "certificate chain and key are not usable" in details(world.read()[1])


def test_unconfigured_files_are_an_error(tmp_path: Path) -> None:
    roots = CertificateFilesWorld(tmp_path, certificate_file=None, private_key_file=None)
    assert details(roots.certificates.identity(MESH)) == (
        "certificate provider 'mesh': has no identity, wanted certificate_file in its config"
    )
    identity = CertificateFilesWorld(tmp_path, ca_certificate_file=None)
    assert details(identity.certificates.roots(MESH)) == (
        "certificate provider 'mesh': has no root certificates, "
        "wanted ca_certificate_file in its config"
    )


# SPIFFE trust bundles


class SpiffeWorld(CertificateFilesWorld):
    """A world with a trust bundle map and the other files."""

    def __init__(self, directory: Path, **changes: object) -> None:
        self.map = directory / "map.json"
        changes = {"spiffe_trust_bundle_map_file": str(self.map)} | changes
        super().__init__(directory, **changes)

    def write_map(self, **domains: CertificateAuthority) -> bytes:
        """`a=` is the trust domain a.example."""
        bundles = {f"{key}.example": [authority] for key, authority in domains.items()}
        content = trust_bundle_map(bundles)
        self.map.write_bytes(content)
        return content

    def domains(self) -> dict[str, frozenset[bytes]]:
        found = self.certificates.roots(MESH)
        assert isinstance(found, TrustBundles)
        return dict(found.roots)


A_IS_OLD = {"a.example": frozenset({OLD.certificate_der})}
A_IS_NEW = {"a.example": frozenset({NEW.certificate_der})}


@pytest.mark.spec("A87-01")
def test_trust_bundle_map_takes_precedence_over_the_ca_file(tmp_path: Path) -> None:
    world = SpiffeWorld(tmp_path)
    world.write(NEW.certificate_pem, OLD_IDENTITY)
    world.write_map(a=OLD)
    assert world.domains() == A_IS_OLD
    assert world.read()[1] == OLD_IDENTITY


def test_config_with_only_a_map_is_valid(tmp_path: Path) -> None:
    absent = dict.fromkeys(("certificate_file", "private_key_file", "ca_certificate_file"))
    world = SpiffeWorld(tmp_path, **absent)
    world.write_map(a=OLD)
    assert world.domains() == A_IS_OLD


@pytest.mark.spec("A87-11")
def test_map_is_read_again_when_the_interval_is_over(tmp_path: Path) -> None:
    world = SpiffeWorld(tmp_path)
    world.write_map(a=OLD)
    assert world.domains() == A_IS_OLD
    world.write_map(a=NEW)
    world.clock.advance(INTERVAL_S - 0.001)
    assert world.domains() == A_IS_OLD
    world.clock.advance(0.001)
    assert world.domains() == A_IS_NEW
    assert world.clock.timers_pending == 0


def test_unchanged_map_is_not_parsed_again(tmp_path: Path) -> None:
    world = SpiffeWorld(tmp_path)
    world.write_map(a=OLD)
    before = world.certificates.roots(MESH)
    world.write_map(a=OLD)
    world.clock.advance(INTERVAL_S)
    assert world.certificates.roots(MESH) is before


BAD_MAPS = {
    "empty": b"",
    "half": trust_bundle_map({"a.example": [NEW]})[:100],
    "no map": b"[]",
    "another key": trust_bundle_map({"a.example": [NEW]}).replace(b"x509-svid", b"jwt-svid"),
    "too large": b'{"trust_domains": {}}' + b" " * (1 << 20),
}


@pytest.mark.spec("A87-08")
@pytest.mark.parametrize("bad", BAD_MAPS.values(), ids=BAD_MAPS)
def test_old_map_stays_in_use_when_the_file_is_invalid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: bytes
) -> None:
    world = SpiffeWorld(tmp_path)
    world.write_map(a=OLD)
    world.domains()
    world.map.write_bytes(bad)
    for _ in range(3):
        world.clock.advance(INTERVAL_S)
        assert world.domains() == A_IS_OLD
    [record] = caplog.records
    text = record.getMessage()
    assert text.startswith(f"file {str(world.map)!r}")
    assert text.endswith(": what was read before stays in use")
    world.write_map(a=NEW)
    # The file is read again soon, before the interval is over.
    world.clock.advance(1.0)
    assert world.domains() == A_IS_NEW


@pytest.mark.spec("A87-07")
@pytest.mark.parametrize("bad", BAD_MAPS.values(), ids=BAD_MAPS)
def test_roots_are_an_error_when_the_map_was_never_valid(tmp_path: Path, bad: bytes) -> None:
    """The valid CA file is not used instead."""
    world = SpiffeWorld(tmp_path)
    world.write(OLD.certificate_pem, OLD_IDENTITY)
    world.map.write_bytes(bad)
    text = details(world.certificates.roots(MESH))
    assert text.startswith(f"certificate provider 'mesh': file {str(world.map)!r}")
    world.write_map(a=NEW)
    world.clock.advance(1.0)
    assert world.domains() == A_IS_NEW


def test_error_of_a_map_has_the_path_of_the_field(tmp_path: Path) -> None:
    world = SpiffeWorld(tmp_path)
    world.map.write_bytes(BAD_MAPS["another key"])
    assert details(world.certificates.roots(MESH)) == (
        f"certificate provider 'mesh': file {str(world.map)!r}: "
        "[field:trust_domains[\"a.example\"].keys[0].use error:is 'jwt-svid', wanted 'x509-svid']"
    )


@pytest.mark.spec("A87-09")
def test_empty_map_is_valid(tmp_path: Path) -> None:
    world = SpiffeWorld(tmp_path)
    world.write_map()
    assert world.domains() == {}


@pytest.mark.spec("A87-12")
@pytest.mark.parametrize("value", ["false", " False "])
def test_map_is_ignored_when_the_guard_is_false(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(SPIFFE_GUARD, value)
    world = SpiffeWorld(tmp_path)
    world.write(OLD.certificate_pem, OLD_IDENTITY)
    world.write_map(a=NEW)
    assert world.certificates.roots(MESH) == OLD.certificate_pem


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (
            {"private_key_file": None},
            "field:config.private_key_file error:is missing, wanted the key of certificate_file",
        ),
        (
            {"certificate_file": None},
            (
                "field:config.certificate_file "
                "error:is missing, wanted the certificate of private_key_file"
            ),
        ),
        (
            {"certificate_file": "", "private_key_file": "", "ca_certificate_file": ""},
            "field:config error:names no file, wanted ca_certificate_file or certificate_file",
        ),
        (
            {"refresh_interval": "soon"},
            (
                "field:config.refresh_interval "
                "error:is 'soon', wanted a duration above 0 such as '1.5s'"
            ),
        ),
    ],
)
def test_error_of_a_config_has_the_path_of_the_field(
    tmp_path: Path, changes: Mapping[str, object], error: str
) -> None:
    world = CertificateFilesWorld(tmp_path, **changes)
    expected = f"certificate provider 'mesh': [{error}]"
    assert details(world.certificates.roots(MESH)) == expected
    assert details(world.certificates.identity(MESH)) == expected


def test_files_are_read_every_ten_minutes_by_default(tmp_path: Path) -> None:
    world = CertificateFilesWorld(tmp_path, refresh_interval=None)
    world.write(OLD.certificate_pem, OLD_IDENTITY)
    world.read()
    world.write(NEW.certificate_pem, NEW_IDENTITY)
    world.clock.advance(REFRESH_INTERVAL_S - 1)
    assert world.read()[0] == OLD.certificate_pem
    world.clock.advance(1)
    assert world.read()[0] == NEW.certificate_pem


def test_repr_of_an_identity_has_no_key() -> None:
    assert repr(Identity(b"certificate", b"secret")) == "Identity()"


# Sharing of providers


class CountingPlugin:
    """A plugin that counts its providers."""

    name = "counting"

    def __init__(self) -> None:
        self.created = 0
        self.closed = 0

    def parse_config(self, config: JsonObject) -> str:
        return config.text("label")

    def create(self, config: Any, clock: Clock) -> CountingProvider:  # noqa: ANN401 - any plugin's
        self.created += 1
        return CountingProvider(self, config)


class CountingProvider:
    def __init__(self, plugin: CountingPlugin, label: str) -> None:
        self._plugin = plugin
        self._greeting = label

    def roots(self, certificate_name: str) -> bytes | Status:
        return f"{self._greeting} {certificate_name}".encode()

    def identity(self, certificate_name: str) -> Identity | Status:
        return Identity(certificate_name.encode(), b"key")

    def close(self) -> None:
        self._plugin.closed += 1


def configs(label: str = "hello") -> dict[str, CertificateProviderConfig]:
    return {"mesh": CertificateProviderConfig("counting", {"label": label})}


def test_custom_plugin_gets_its_config_and_the_certificate_name() -> None:
    store = CertificateStore(VirtualClock(), [CountingPlugin()])
    certificates = store.acquire(configs())
    assert certificates.roots(MESH) == b"hello any"
    assert certificates.identity(MESH) == Identity(b"any", b"key")


def test_equal_bootstraps_share_providers_until_the_last_release() -> None:
    plugin = CountingPlugin()
    store = CertificateStore(VirtualClock(), [plugin])
    one, same, other = (store.acquire(configs(text)) for text in ("hello", "hello", "bye"))
    assert one is same
    assert one is not other
    for certificates in (one, same, other):
        certificates.roots(MESH)
        certificates.identity(MESH)
    assert (plugin.created, len(store)) == (2, 2)
    store.release(one)
    assert plugin.closed == 0
    store.release(same)
    assert (plugin.closed, len(store)) == (1, 1)
    store.release(other)
    assert (plugin.closed, len(store)) == (2, 0)
    assert store.acquire(configs()) is not one


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The digests of identities that the TLS contexts drop."""
    found: list[bytes] = []
    monkeypatch.setattr("proxyless.xds.security.certificates.drop_identity", found.append)
    return found


def test_previous_identity_is_dropped_after_a_rotation(
    world: CertificateFilesWorld, dropped: list[bytes]
) -> None:
    world.read()
    world.write(NEW.certificate_pem, NEW_IDENTITY)
    world.read()
    assert dropped == []
    world.clock.advance(INTERVAL_S)
    world.read()
    assert dropped == [identity_digest(*OLD_IDENTITY)]
    world.store.release(world.certificates)
    assert dropped[1:] == [identity_digest(*NEW_IDENTITY)]


def test_text_of_an_exception_of_a_provider_is_only_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_self: CountingProvider, _name: str) -> Identity:
        raise LookupError("password is secret")

    monkeypatch.setattr(CountingProvider, "identity", fail)
    monkeypatch.setattr(CountingProvider, "roots", fail)
    certificates = CertificateStore(VirtualClock(), [CountingPlugin()]).acquire(configs())
    text = "raised LookupError (its text is logged by proxyless.xds.certificates at DEBUG)"
    with caplog.at_level("DEBUG", "proxyless.xds.certificates"):
        for found in (certificates.identity(MESH), certificates.roots(MESH)):
            assert details(found) == f"certificate provider 'mesh': {text}"
    assert caplog.messages == ["mesh: LookupError: password is secret"] * 2


def test_identities_of_many_names_are_bounded(dropped: list[bytes]) -> None:
    certificates = CertificateStore(VirtualClock(), [CountingPlugin()]).acquire(configs())
    for number in range(100):
        certificates.identity(CertificateInstance("mesh", str(number)))
    assert len(dropped) == 100 - CONTEXTS_WITH_KEY_MAX


def test_unused_providers_are_not_created() -> None:
    plugin = CountingPlugin()
    store = CertificateStore(VirtualClock(), [plugin])
    store.release(store.acquire(configs()))
    assert (plugin.created, plugin.closed) == (0, 0)


def test_unknown_instance_and_plugin_are_named_in_the_error() -> None:
    plugins = {"file_watcher": FileWatcherPlugin()}
    certificates = Certificates(configs(), plugins, VirtualClock())
    assert details(certificates.roots(CertificateInstance("other"))) == (
        "certificate provider 'other' is not in the bootstrap"
    )
    assert details(certificates.identity(MESH)) == (
        "certificate provider 'mesh': plugin_name is 'counting', wanted one of: 'file_watcher'"
    )
    certificates.close()
