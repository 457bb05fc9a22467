"""Certificate providers of the bootstrap: plugins, and the built-in file_watcher.

Specs: A29 ("Certificate Provider Plugin Framework", file_watcher), A87 (SPIFFE trust bundles).

A provider is called for each new connection. file_watcher reads its files again if its interval is
over at that time, and has no timer. While a file is invalid, for example half written, the last
valid content stays in use. Error texts contain names of files and instances, and no keys.
"""

from __future__ import annotations

import logging
import os
from functools import lru_cache, partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from proxyless.base import Status, StatusCode, ValidationErrors, one_line
from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import POSITIVE_DURATION, JsonObject
from proxyless.transport import TrustBundles
from proxyless.transport.tls import (
    CONTEXTS_WITH_KEY_MAX,
    check_identity,
    check_roots,
    drop_identity,
    identity_digest,
)
from proxyless.xds.bootstrap.bootstrap import REFRESH_INTERVAL_MIN_S, REFRESH_INTERVAL_S
from proxyless.xds.security.server_credentials import read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from proxyless.runtime import Clock
    from proxyless.xds.bootstrap import CertificateProviderConfig
    from proxyless.xds.resources import CertificateInstance

LOGGER: Final = logging.getLogger("proxyless.xds.certificates")

FILE_WATCHER: Final = "file_watcher"

# If "false", spiffe_trust_bundle_map_file is ignored (D40).
SPIFFE_GUARD: Final = "GRPC_EXPERIMENTAL_XDS_MTLS_SPIFFE"

# The cache size for parsed trust bundle maps, which are read often and seldom change.
_CACHED_MAPS_MAX: Final = 4

T = TypeVar("T")


@frozen
class Identity:
    """A certificate chain and its private key, in PEM."""

    certificate_chain: bytes
    private_key: bytes

    def __repr__(self) -> str:
        """Without the key, because a repr may be logged."""
        return "Identity()"


class CertificateProvider(Protocol):
    """One instance of a plugin. Called for each connection; returns a Status on failure."""

    def roots(self, certificate_name: str) -> bytes | TrustBundles | Status:
        """The trusted roots: in PEM for all servers, or by trust domain."""
        ...

    def identity(self, certificate_name: str) -> Identity | Status: ...

    def close(self) -> None:
        """Release all resources. Called when the last channel that uses the provider is closed."""
        ...


class CertificatePlugin(Protocol):
    """A kind of certificate provider, which the bootstrap refers to by name."""

    @property
    def name(self) -> str: ...

    def parse_config(self, config: JsonObject) -> Any:  # noqa: ANN401 - the plugin's own type
        """The plugin's config. It is valid only if no error was added."""
        ...

    def create(self, config: Any, clock: Clock) -> CertificateProvider:  # noqa: ANN401 - as above
        """A provider with a valid result of `parse_config`."""
        ...


# file_watcher


@frozen
class FileWatcherConfig:
    """Paths and interval of a file_watcher. An empty path is unset."""

    certificate_file: str = ""
    private_key_file: str = ""
    ca_certificate_file: str = ""
    # Takes precedence over ca_certificate_file.
    spiffe_trust_bundle_map_file: str = ""
    refresh_interval_s: float = REFRESH_INTERVAL_S


class FileWatcher:
    """Provider of certificates that another process renews in files."""

    def __init__(self, config: FileWatcherConfig, clock: Clock) -> None:
        interval_s = config.refresh_interval_s
        self._roots = _CachedFiles[bytes | TrustBundles](
            partial(_read_roots, config), interval_s, clock
        )
        self._identity = _CachedFiles(partial(_read_identity, config), interval_s, clock)

    # "the certificate_name value is currently ignored by this plugin" - A29

    def roots(self, certificate_name: str) -> bytes | TrustBundles | Status:
        return self._roots.current()

    def identity(self, certificate_name: str) -> Identity | Status:
        return self._identity.current()

    def close(self) -> None:
        return


class _CachedFiles(Generic[T]):
    """The last valid content of files, refreshed by `current` when the interval is over."""

    def __init__(self, read: Callable[[], T], interval_s: float, clock: Clock) -> None:
        # Fixed at construction.
        self._read = read
        self._interval_s = interval_s
        self._clock = clock
        # From the last refresh.
        self._next_refresh_s = -inf
        self._value: T | Status | None = None
        self._last_error = ""

    def current(self) -> T | Status:
        now_s = self._clock.now_s()
        if self._value is None or now_s >= self._next_refresh_s:
            self._refresh(now_s)
        assert self._value is not None, "the first refresh sets a value or a status"
        return self._value

    def _refresh(self, now_s: float) -> None:
        try:
            self._value, self._last_error = self._read(), ""
            self._next_refresh_s = now_s + self._interval_s
        except ValueError as error:
            text = str(error)
            # Retried soon, because a file may be half written.
            self._next_refresh_s = now_s + min(REFRESH_INTERVAL_MIN_S, self._interval_s)
            if self._value is None or isinstance(self._value, Status):
                self._value = _unavailable(text)
            elif text != self._last_error:
                LOGGER.warning("%s: what was read before stays in use", text)
            self._last_error = text


# These raise ValueError if the files are not usable.


def _read_roots(config: FileWatcherConfig) -> bytes | TrustBundles:
    # "If the ca_certificate_file field is also set, it will be ignored" - A87
    if config.spiffe_trust_bundle_map_file:
        return _read_trust_bundles(config.spiffe_trust_bundle_map_file)
    if not config.ca_certificate_file:
        raise ValueError("has no root certificates, wanted ca_certificate_file in its config")
    content = read_file(config.ca_certificate_file)
    try:
        check_roots(content)
    except ValueError as error:
        raise ValueError(f"file {config.ca_certificate_file!r}: {error}") from error
    return content


def _read_trust_bundles(path: str) -> TrustBundles:
    found = _parse_trust_bundles(read_file(path))
    if isinstance(found, str):
        raise ValueError(f"file {path!r}: {found}")
    return found


@lru_cache(maxsize=_CACHED_MAPS_MAX)
def _parse_trust_bundles(content: bytes) -> TrustBundles | str:
    """The bundles, or the error text."""
    errors = ValidationErrors()
    from proxyless.xds.security.trust_bundles import parse_trust_bundles  # noqa: PLC0415 - rare

    bundles = parse_trust_bundles(content, errors)
    return bundles if errors.ok else str(errors)


def _read_identity(config: FileWatcherConfig) -> Identity:
    if not config.certificate_file:
        raise ValueError("has no identity, wanted certificate_file in its config")
    chain, key = read_file(config.certificate_file), read_file(config.private_key_file)
    try:
        check_identity(chain, key)
    except ValueError as error:
        files = f"{config.certificate_file!r} and {config.private_key_file!r}"
        raise ValueError(f"files {files}: {error}") from error
    return Identity(chain, key)


class FileWatcherPlugin:
    """The plugin file_watcher."""

    name: Final = FILE_WATCHER

    def parse_config(self, config: JsonObject) -> FileWatcherConfig:
        certificate, key = config.text("certificate_file"), config.text("private_key_file")
        roots = config.text("ca_certificate_file")
        is_spiffe_enabled = read_flag(os.environ, SPIFFE_GUARD, default=True)
        bundles = config.text("spiffe_trust_bundle_map_file") if is_spiffe_enabled else ""
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


# Sharing of providers


class Certificates:
    """The certificate providers of one bootstrap, created on first use."""

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
        # By instance name; a status if the provider cannot be created.
        self._providers: dict[str, CertificateProvider | Status] = {}
        # Digests of the identities in use, ordered by last use.
        self._digests: dict[CertificateInstance, bytes] = {}

    def roots(self, instance: CertificateInstance) -> bytes | TrustBundles | Status:
        provider = self._provider(instance.instance_name)
        if isinstance(provider, Status):
            return provider
        return _name_error(instance, _call(provider.roots, instance))

    def identity(self, instance: CertificateInstance) -> Identity | Status:
        provider = self._provider(instance.instance_name)
        if isinstance(provider, Status):
            return provider
        found = _name_error(instance, _call(provider.identity, instance))
        if isinstance(found, Identity):
            self._drop_previous(instance, found)
        return found

    def close(self) -> None:
        providers, self._providers = self._providers, {}
        for provider in providers.values():
            if not isinstance(provider, Status):
                provider.close()
        digests, self._digests = self._digests, {}
        for digest in digests.values():
            drop_identity(digest)

    def _drop_previous(self, instance: CertificateInstance, identity: Identity) -> None:
        """After a rotation, do not keep the old private key."""
        digest = identity_digest(identity.certificate_chain, identity.private_key)
        previous = self._digests.pop(instance, digest)
        self._digests[instance] = digest
        if previous != digest:
            drop_identity(previous)
        # The names come from the control plane.
        if len(self._digests) > CONTEXTS_WITH_KEY_MAX:
            drop_identity(self._digests.pop(next(iter(self._digests))))

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
            names = ", ".join(map(repr, self._plugins)) or "none"
            text = f"plugin_name is {entry.plugin_name!r}, wanted one of: {names}"
            return _unavailable(f"certificate provider {name!r}: {text}")
        errors = ValidationErrors()
        with errors.field("config"):
            config = plugin.parse_config(JsonObject(entry.config, errors))
        if not errors.ok:
            return _unavailable(f"certificate provider {name!r}: {errors}")
        return plugin.create(config, self._clock)


class CertificateStore:
    """Certificate providers shared by the channels of one event loop, with reference counts.

    "a plugin of a given kind and configuration is instantiated only once" - A29. Here, providers
    are shared between channels with the same bootstrap.
    """

    def __init__(self, clock: Clock, plugins: Iterable[CertificatePlugin] = ()) -> None:
        """`plugins` are added to file_watcher."""
        self._clock = clock
        self._plugins = {plugin.name: plugin for plugin in (FileWatcherPlugin(), *plugins)}
        # Reference counts.
        self._users: dict[Certificates, int] = {}

    def __len__(self) -> int:
        return len(self._users)

    def acquire(self, configs: Mapping[str, CertificateProviderConfig]) -> Certificates:
        """The providers of a bootstrap. Each call needs one call of `release`."""
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


def _call(read: Callable[[str], T | Status], instance: CertificateInstance) -> T | Status:
    """The result of a provider. The text of an exception may have secrets in it."""
    try:
        return read(instance.certificate_name)
    except Exception as error:
        name = type(error).__name__
        LOGGER.debug("%s: %s: %s", instance.instance_name, name, one_line(str(error)))
        return _unavailable(f"raised {name} (its text is logged by {LOGGER.name} at DEBUG)")


def _name_error(instance: CertificateInstance, found: T | Status) -> T | Status:
    """The result of a provider, with the provider's name in an error."""
    if isinstance(found, Status):
        details = f"certificate provider {instance.instance_name!r}: {found.details}"
        return Status(found.code, details)
    return found


def _unavailable(text: str) -> Status:
    return Status(StatusCode.UNAVAILABLE, text)
