"""Where do certificates and keys for connections in a mesh come from?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import serialization

from proxyless.base import Status, StatusCode
from proxyless.runtime import VirtualClock
from proxyless.transport import TrustBundles
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


class World:
    """Three files, and the provider that reads them."""

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
def world(tmp_path: Path) -> World:
    """With good files."""
    made = World(tmp_path)
    made.write(OLD.certificate_pem, OLD_IDENTITY)
    return made


def details(found: object) -> str:
    assert isinstance(found, Status)
    assert found.code is StatusCode.UNAVAILABLE
    return found.details


# file_watcher


@pytest.mark.spec("A29-02")
def test_files_are_read_again_when_the_interval_is_over(world: World) -> None:
    assert world.read() == (OLD.certificate_pem, OLD_IDENTITY)
    world.write(NEW.certificate_pem, NEW_IDENTITY)
    world.clock.advance(INTERVAL_S - 0.001)
    assert world.read() == (OLD.certificate_pem, OLD_IDENTITY)
    world.clock.advance(0.001)
    assert world.read() == (NEW.certificate_pem, NEW_IDENTITY)


def test_no_timer_runs(world: World) -> None:
    world.read()
    assert world.clock.timers_pending == 0


@pytest.mark.parametrize(
    "length", [0, 1, 40, len(NEW.certificate_pem) // 2], ids=["nothing", "1", "40", "half"]
)
def test_half_written_roots_leave_the_old_ones_in_use(world: World, length: int) -> None:
    world.read()
    world.clock.advance(INTERVAL_S)
    world.roots.write_bytes(NEW.certificate_pem[:length])
    assert world.certificates.roots(MESH) == OLD.certificate_pem
    world.roots.write_bytes(NEW.certificate_pem)
    # Soon, not when the interval is over again.
    world.clock.advance(1.0)
    assert world.certificates.roots(MESH) == NEW.certificate_pem


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
def test_a_pair_that_does_not_fit_leaves_the_old_one_in_use(
    world: World, certificate: bytes, key: bytes
) -> None:
    world.read()
    world.clock.advance(INTERVAL_S)
    world.write(OLD.certificate_pem, (certificate, key))
    assert world.read()[1] == OLD_IDENTITY
    world.write(OLD.certificate_pem, NEW_IDENTITY)
    world.clock.advance(1.0)
    assert world.read()[1] == NEW_IDENTITY


def test_files_that_are_gone_leave_what_they_said_in_use(world: World) -> None:
    world.read()
    for path in (world.roots, world.certificate, world.key):
        path.unlink()
    world.clock.advance(INTERVAL_S)
    assert world.read() == (OLD.certificate_pem, OLD_IDENTITY)


def test_trouble_is_logged_once_and_without_the_key(
    world: World, caplog: pytest.LogCaptureFixture
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


def test_missing_files_are_looked_for_until_they_are_there(tmp_path: Path) -> None:
    world = World(tmp_path)
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


def test_a_missing_key_is_named(world: World) -> None:
    world.key.unlink()
    assert f"file {str(world.key)!r} cannot be read" in details(world.read()[1])


def test_nobody_is_asked_for_the_password_of_a_key(world: World) -> None:
    key = serialization.load_pem_private_key(OLD_IDENTITY[1], None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    world.key.write_bytes(encrypted)
    assert "certificate chain and key are not usable" in details(world.read()[1])


def test_what_is_not_configured_cannot_be_had(tmp_path: Path) -> None:
    roots = World(tmp_path, certificate_file=None, private_key_file=None)
    assert details(roots.certificates.identity(MESH)) == (
        "certificate provider 'mesh': has no identity, wanted certificate_file in its config"
    )
    identity = World(tmp_path, ca_certificate_file=None)
    assert details(identity.certificates.roots(MESH)) == (
        "certificate provider 'mesh': has no root certificates, "
        "wanted ca_certificate_file in its config"
    )


# SPIFFE trust bundles


class SpiffeWorld(World):
    """With a map of trust bundles beside the other files."""

    def __init__(self, directory: Path, **changes: object) -> None:
        self.map = directory / "map.json"
        changes = {"spiffe_trust_bundle_map_file": str(self.map)} | changes
        super().__init__(directory, **changes)

    def write_map(self, **domains: CertificateAuthority) -> bytes:
        """The trust domains a.example, b.example and so on."""
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


@pytest.mark.spec("A29-02")
def test_a_map_of_trust_bundles_counts_in_place_of_the_ca_file(tmp_path: Path) -> None:
    world = SpiffeWorld(tmp_path)
    world.write(NEW.certificate_pem, OLD_IDENTITY)
    world.write_map(a=OLD)
    assert world.domains() == A_IS_OLD
    assert world.read()[1] == OLD_IDENTITY


def test_a_map_alone_is_enough(tmp_path: Path) -> None:
    absent = dict.fromkeys(("certificate_file", "private_key_file", "ca_certificate_file"))
    world = SpiffeWorld(tmp_path, **absent)
    world.write_map(a=OLD)
    assert world.domains() == A_IS_OLD


@pytest.mark.spec("A29-02")
def test_a_map_is_read_again_when_the_interval_is_over(tmp_path: Path) -> None:
    world = SpiffeWorld(tmp_path)
    world.write_map(a=OLD)
    assert world.domains() == A_IS_OLD
    world.write_map(a=NEW)
    world.clock.advance(INTERVAL_S - 0.001)
    assert world.domains() == A_IS_OLD
    world.clock.advance(0.001)
    assert world.domains() == A_IS_NEW
    assert world.clock.timers_pending == 0


def test_a_map_that_did_not_change_is_not_parsed_again(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("bad", BAD_MAPS.values(), ids=BAD_MAPS)
def test_a_bad_map_leaves_the_old_one_in_use_and_says_so_once(
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
    # Soon, not when the interval is over again.
    world.clock.advance(1.0)
    assert world.domains() == A_IS_NEW


@pytest.mark.parametrize("bad", BAD_MAPS.values(), ids=BAD_MAPS)
def test_without_a_good_map_there_is_none(tmp_path: Path, bad: bytes) -> None:
    """Not even the roots of the CA file, which is good."""
    world = SpiffeWorld(tmp_path)
    world.write(OLD.certificate_pem, OLD_IDENTITY)
    world.map.write_bytes(bad)
    text = details(world.certificates.roots(MESH))
    assert text.startswith(f"certificate provider 'mesh': file {str(world.map)!r}")
    world.write_map(a=NEW)
    world.clock.advance(1.0)
    assert world.domains() == A_IS_NEW


def test_what_is_wrong_with_a_map_is_said_by_field(tmp_path: Path) -> None:
    world = SpiffeWorld(tmp_path)
    world.map.write_bytes(BAD_MAPS["another key"])
    assert details(world.certificates.roots(MESH)) == (
        f"certificate provider 'mesh': file {str(world.map)!r}: "
        "[field:trust_domains[\"a.example\"].keys[0].use error:is 'jwt-svid', wanted 'x509-svid']"
    )


def test_an_empty_map_is_one(tmp_path: Path) -> None:
    world = SpiffeWorld(tmp_path)
    world.write_map()
    assert world.domains() == {}


@pytest.mark.parametrize("value", ["false", " False "])
def test_the_guard_has_the_map_ignored(
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
def test_a_config_that_is_wrong_is_said_by_field(
    tmp_path: Path, changes: Mapping[str, object], error: str
) -> None:
    world = World(tmp_path, **changes)
    expected = f"certificate provider 'mesh': [{error}]"
    assert details(world.certificates.roots(MESH)) == expected
    assert details(world.certificates.identity(MESH)) == expected


def test_files_are_read_every_ten_minutes_unless_told_otherwise(tmp_path: Path) -> None:
    world = World(tmp_path, refresh_interval=None)
    world.write(OLD.certificate_pem, OLD_IDENTITY)
    world.read()
    world.write(NEW.certificate_pem, NEW_IDENTITY)
    world.clock.advance(REFRESH_INTERVAL_S - 1)
    assert world.read()[0] == OLD.certificate_pem
    world.clock.advance(1)
    assert world.read()[0] == NEW.certificate_pem


def test_an_identity_does_not_show_its_key() -> None:
    assert repr(Identity(b"certificate", b"secret")) == "Identity()"


# Who shares them


class CountingPlugin:
    """Providers that are counted."""

    name = "counting"

    def __init__(self) -> None:
        self.created = 0
        self.closed = 0

    def parse_config(self, config: JsonObject) -> str:
        return config.text("greeting")

    def create(self, config: Any, clock: Clock) -> CountingProvider:  # noqa: ANN401 - any plugin's
        self.created += 1
        return CountingProvider(self, config)


class CountingProvider:
    def __init__(self, plugin: CountingPlugin, greeting: str) -> None:
        self._plugin = plugin
        self._greeting = greeting

    def roots(self, certificate_name: str) -> bytes | Status:
        return f"{self._greeting} {certificate_name}".encode()

    def identity(self, certificate_name: str) -> Identity | Status:
        return Identity(certificate_name.encode(), b"key")

    def close(self) -> None:
        self._plugin.closed += 1


def configs(greeting: str = "hello") -> dict[str, CertificateProviderConfig]:
    return {"mesh": CertificateProviderConfig("counting", {"greeting": greeting})}


def test_a_plugin_of_ones_own_gets_its_config_and_the_name() -> None:
    store = CertificateStore(VirtualClock(), [CountingPlugin()])
    certificates = store.acquire(configs())
    assert certificates.roots(MESH) == b"hello any"
    assert certificates.identity(MESH) == Identity(b"any", b"key")


def test_equal_bootstraps_share_providers_until_the_last_is_done() -> None:
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


def test_providers_that_nobody_asks_are_never_made() -> None:
    plugin = CountingPlugin()
    store = CertificateStore(VirtualClock(), [plugin])
    store.release(store.acquire(configs()))
    assert (plugin.created, plugin.closed) == (0, 0)


def test_instances_and_plugins_that_are_not_known_are_named() -> None:
    plugins = {"file_watcher": FileWatcherPlugin()}
    certificates = Certificates(configs(), plugins, VirtualClock())
    assert details(certificates.roots(CertificateInstance("other"))) == (
        "certificate provider 'other' is not in the bootstrap"
    )
    assert details(certificates.identity(MESH)) == (
        "certificate provider 'mesh': plugin_name is 'counting', wanted one of: 'file_watcher'"
    )
    certificates.close()
