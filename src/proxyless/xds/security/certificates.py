"""Where do certificates and keys for connections in a mesh come from?

Specs: A29 ("Certificate Provider Plugin Framework", file_watcher), A87 (SPIFFE trust bundles).

Three parts: what a provider is, the one that reads files, and who shares them. A control plane
names an instance; the bootstrap says which plugin that is, and how it is configured. Certificates
are asked for when a connection is made, so a provider has nothing to announce: file_watcher looks
at its files when it is asked and its interval is over, and runs no timer. What cannot be used, such
as a file that is half written, leaves what was read before in force.

Nothing here shows a key: texts name files and instances only.
"""

from __future__ import annotations

import logging
import os
from functools import lru_cache, partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from proxyless.base import Status, StatusCode, ValidationErrors
from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import POSITIVE_DURATION, JsonObject
from proxyless.transport import TrustBundles
from proxyless.transport.tls import check_identity, check_roots
from proxyless.xds.bootstrap.bootstrap import REFRESH_INTERVAL_MIN_S, REFRESH_INTERVAL_S
from proxyless.xds.security.server_credentials import read_file
from proxyless.xds.security.trust_bundles import parse_trust_bundles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from proxyless.runtime import Clock
    from proxyless.xds.bootstrap import CertificateProviderConfig
    from proxyless.xds.resources import CertificateInstance

LOGGER: Final = logging.getLogger("proxyless.xds.certificates")

FILE_WATCHER: Final = "file_watcher"

# Says "false" to have spiffe_trust_bundle_map_file ignored (D40).
SPIFFE_GUARD: Final = "GRPC_EXPERIMENTAL_XDS_MTLS_SPIFFE"

# Maps that were read last: files are read again and again, and hardly ever change.
_MAPS_KEPT: Final = 4

T = TypeVar("T")

# ---------------------------------------------------------------------------------------------
# What a provider is


@frozen
class Identity:
    """What we show of ourselves, in PEM."""

    certificate_chain: bytes
    private_key: bytes

    def __repr__(self) -> str:
        """Without the key: this may end up in a log."""
        return "Identity()"


class CertificateProvider(Protocol):
    """One instance of a plugin. Asked for each connection; a status says why there is nothing."""

    def roots(self, certificate_name: str) -> bytes | TrustBundles | Status:
        """Who vouches for servers: all of them, in PEM, or those of a trust domain for its own."""
        ...

    def identity(self, certificate_name: str) -> Identity | Status: ...

    def close(self) -> None:
        """Nobody asks any more."""
        ...


class CertificatePlugin(Protocol):
    """A kind of provider, which the bootstrap knows by its name."""

    @property
    def name(self) -> str: ...

    def parse_config(self, config: JsonObject) -> Any:  # noqa: ANN401 - the plugin's own
        """What the plugin makes of a config; errors are added at their paths."""
        ...

    def create(self, config: Any, clock: Clock) -> CertificateProvider:  # noqa: ANN401 - as above
        """A provider with a config of `parse_config`, one that had no errors."""
        ...


# ---------------------------------------------------------------------------------------------
# file_watcher


@frozen
class FileWatcherConfig:
    """Which files, and how often they are read. Empty: there is no such file."""

    certificate_file: str = ""
    private_key_file: str = ""
    ca_certificate_file: str = ""
    # Counts in place of ca_certificate_file.
    spiffe_trust_bundle_map_file: str = ""
    refresh_interval_s: float = REFRESH_INTERVAL_S


class FileWatcher:
    """Certificates in files that somebody else keeps fresh. Driven by those who connect."""

    def __init__(self, config: FileWatcherConfig, clock: Clock) -> None:
        interval_s = config.refresh_interval_s
        self._roots = _Watched[bytes | TrustBundles](
            partial(_read_roots, config), interval_s, clock
        )
        self._identity = _Watched(partial(_read_identity, config), interval_s, clock)

    # "the certificate_name value is currently ignored by this plugin" - A29

    def roots(self, certificate_name: str) -> bytes | TrustBundles | Status:
        return self._roots.current()

    def identity(self, certificate_name: str) -> Identity | Status:
        return self._identity.current()

    def close(self) -> None:
        return


class _Watched(Generic[T]):
    """What was read and could be used; read again when the interval is over."""

    def __init__(self, read: Callable[[], T | Status], interval_s: float, clock: Clock) -> None:
        # Fixed at construction.
        self._read = read
        self._interval_s = interval_s
        self._clock = clock
        # From the last look.
        self._next_look_s = -inf
        self._value: T | Status | None = None
        self._trouble = ""

    def current(self) -> T | Status:
        now_s = self._clock.now_s()
        if self._value is None or now_s >= self._next_look_s:
            self._look(now_s)
        assert self._value is not None, "the first look says what there is, or why there is not"
        return self._value

    def _look(self, now_s: float) -> None:
        found = self._read()
        if not isinstance(found, Status):
            self._value, self._trouble = found, ""
            self._next_look_s = now_s + self._interval_s
            return
        # Soon again, not after the interval: whoever writes the files may be in the middle of it.
        self._next_look_s = now_s + min(REFRESH_INTERVAL_MIN_S, self._interval_s)
        if self._value is None or isinstance(self._value, Status):
            self._value = found
        elif found.details != self._trouble:
            LOGGER.warning("%s: what was read before stays in use", found.details)
        self._trouble = found.details


def _read_roots(config: FileWatcherConfig) -> bytes | TrustBundles | Status:
    # "If the ca_certificate_file field is also set, it will be ignored" - A87
    if config.spiffe_trust_bundle_map_file:
        return _read_trust_bundles(config.spiffe_trust_bundle_map_file)
    if not config.ca_certificate_file:
        return _unavailable("has no root certificates, wanted ca_certificate_file in its config")
    content = read_file(config.ca_certificate_file)
    if isinstance(content, Status):
        return content
    try:
        check_roots(content)
    except ValueError as error:
        return _unavailable(f"file {config.ca_certificate_file!r}: {error}")
    return content


def _read_trust_bundles(path: str) -> TrustBundles | Status:
    content = read_file(path)
    if isinstance(content, Status):
        return content
    found = _parse_known(content)
    return _unavailable(f"file {path!r}: {found}") if isinstance(found, str) else found


@lru_cache(maxsize=_MAPS_KEPT)
def _parse_known(content: bytes) -> TrustBundles | str:
    """The map, or what is wrong with it."""
    errors = ValidationErrors()
    bundles = parse_trust_bundles(content, errors)
    return bundles if errors.ok else str(errors)


def _read_identity(config: FileWatcherConfig) -> Identity | Status:
    if not config.certificate_file:
        return _unavailable("has no identity, wanted certificate_file in its config")
    chain = read_file(config.certificate_file)
    if isinstance(chain, Status):
        return chain
    key = read_file(config.private_key_file)
    if isinstance(key, Status):
        return key
    try:
        check_identity(chain, key)
    except ValueError as error:
        files = f"{config.certificate_file!r} and {config.private_key_file!r}"
        return _unavailable(f"files {files}: {error}")
    return Identity(chain, key)


class FileWatcherPlugin:
    """What the bootstrap calls file_watcher."""

    name: Final = FILE_WATCHER

    def parse_config(self, config: JsonObject) -> FileWatcherConfig:
        certificate, key = config.text("certificate_file"), config.text("private_key_file")
        roots = config.text("ca_certificate_file")
        bundles = config.text("spiffe_trust_bundle_map_file") if _is_spiffe_enabled() else ""
        if certificate and not key:
            config.add("private_key_file", "is missing, wanted the key of certificate_file")
        if key and not certificate:
            config.add("certificate_file", "is missing, wanted the certificate of private_key_file")
        if not (certificate or key or roots or bundles):
            config.errors.add("names no file, wanted ca_certificate_file or certificate_file")
        interval_s = config.read_or("refresh_interval", POSITIVE_DURATION, REFRESH_INTERVAL_S)
        interval_s = max(interval_s, REFRESH_INTERVAL_MIN_S)
        return FileWatcherConfig(certificate, key, roots, bundles, interval_s)

    def create(self, config: FileWatcherConfig, clock: Clock) -> FileWatcher:
        return FileWatcher(config, clock)


def _is_spiffe_enabled() -> bool:
    """On, unless the environment says false now."""
    return read_flag(os.environ, SPIFFE_GUARD, default=True)


# ---------------------------------------------------------------------------------------------
# Who shares them


class Certificates:
    """The providers of one bootstrap. Driven by those who connect."""

    def __init__(
        self,
        configs: Mapping[str, CertificateProviderConfig],
        plugins: Mapping[str, CertificatePlugin],
        clock: Clock,
    ) -> None:
        # Fixed at construction.
        self.configs: Final = configs
        self._plugins = plugins
        self._clock = clock
        # Made when they are first asked, or why they cannot be.
        self._providers: dict[str, CertificateProvider | Status] = {}

    def roots(self, instance: CertificateInstance) -> bytes | TrustBundles | Status:
        """Who vouches for servers."""
        provider = self._provider(instance.instance_name)
        if isinstance(provider, Status):
            return provider
        return _named(instance, provider.roots(instance.certificate_name))

    def identity(self, instance: CertificateInstance) -> Identity | Status:
        """What we show of ourselves."""
        provider = self._provider(instance.instance_name)
        if isinstance(provider, Status):
            return provider
        return _named(instance, provider.identity(instance.certificate_name))

    def close(self) -> None:
        providers, self._providers = self._providers, {}
        for provider in providers.values():
            if not isinstance(provider, Status):
                provider.close()

    def _provider(self, name: str) -> CertificateProvider | Status:
        provider = self._providers.get(name)
        if provider is None:
            provider = self._providers[name] = self._create(name)
        return provider

    def _create(self, name: str) -> CertificateProvider | Status:
        entry = self.configs.get(name)
        if entry is None:
            return _unavailable(f"certificate provider {name!r} is not in the bootstrap")
        plugin = self._plugins.get(entry.plugin_name)
        if plugin is None:
            known = ", ".join(map(repr, self._plugins)) or "none"
            what = f"plugin_name is {entry.plugin_name!r}, wanted one of: {known}"
            return _unavailable(f"certificate provider {name!r}: {what}")
        errors = ValidationErrors()
        with errors.field("config"):
            config = plugin.parse_config(JsonObject(entry.config, errors))
        if not errors.ok:
            return _unavailable(f"certificate provider {name!r}: {errors}")
        return plugin.create(config, self._clock)


class CertificateStore:
    """All that the channels of one loop have certificates from. Driven by the channels.

    "a plugin of a given kind and configuration is instantiated only once" - A29. Here that holds
    for those with the same bootstrap, which are all of a process as a rule.
    """

    def __init__(self, clock: Clock, plugins: Iterable[CertificatePlugin] = ()) -> None:
        """Knows file_watcher, and these."""
        self._clock = clock
        self._plugins = {plugin.name: plugin for plugin in (FileWatcherPlugin(), *plugins)}
        # Who is there, and how many use it.
        self._users: dict[Certificates, int] = {}

    def __len__(self) -> int:
        """How many bootstraps are in use."""
        return len(self._users)

    def acquire(self, configs: Mapping[str, CertificateProviderConfig]) -> Certificates:
        """The providers of a bootstrap, to be given back."""
        for certificates in self._users:
            if certificates.configs == configs:
                break
        else:
            certificates = Certificates(configs, self._plugins, self._clock)
        self._users[certificates] = self._users.get(certificates, 0) + 1
        return certificates

    def release(self, certificates: Certificates) -> None:
        self._users[certificates] -= 1
        if not self._users[certificates]:
            del self._users[certificates]
            certificates.close()


def _named(instance: CertificateInstance, found: T | Status) -> T | Status:
    """What a provider found; trouble with its name."""
    if isinstance(found, Status):
        details = f"certificate provider {instance.instance_name!r}: {found.details}"
        return Status(found.code, details)
    return found


def _unavailable(text: str) -> Status:
    return Status(StatusCode.UNAVAILABLE, text)
