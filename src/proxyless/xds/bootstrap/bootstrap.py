"""Bootstrap document: values, loading from file or environment, and parsing of its JSON.

Specs: A27 (bootstrap), A29 (certificate_providers), A47 (authorities), A53, A81, A88
(server_features), A65 (tls channel_creds), A71 (several servers), A97 (call_creds).

A bootstrap is accepted as a whole or rejected with all its errors. Unknown fields are ignored, so
that a file may be newer than its clients. Configs of certificate providers are not validated here.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, Final

from proxyless.base import Locality, Status, StatusCode, ValidationErrors
from proxyless.base.frozen import frozen
from proxyless.base.json_fields import BOOLEAN, DURATION, LIST, POSITIVE_DURATION, JsonObject
from proxyless.resolver.target import encode_authority

FILE_VARIABLE: Final = "GRPC_XDS_BOOTSTRAP"
INLINE_VARIABLE: Final = "GRPC_XDS_BOOTSTRAP_CONFIG"

# Limits. Generated bootstraps have about 2 kB, 1 server and at most 3 authorities.
BYTES_MAX: Final = 1 << 20
SERVERS_MAX: Final = 32
CREDS_MAX: Final = 32
AUTHORITIES_MAX: Final = 1000
PROVIDERS_MAX: Final = 1000

IGNORE_RESOURCE_DELETION: Final = "ignore_resource_deletion"
FAIL_ON_DATA_ERRORS: Final = "fail_on_data_errors"
RESOURCE_TIMER_IS_TRANSIENT_ERROR: Final = "resource_timer_is_transient_error"
TRUSTED_XDS_SERVER: Final = "trusted_xds_server"
# A feature of Proxyless only: the incremental variant of the protocol.
DELTA: Final = "delta"
# Features that have an effect. "xds_v3" has none: v3 is the only version.
KNOWN_FEATURES: Final = frozenset(
    {
        IGNORE_RESOURCE_DELETION,
        FAIL_ON_DATA_ERRORS,
        RESOURCE_TIMER_IS_TRANSIENT_ERROR,
        TRUSTED_XDS_SERVER,
        DELTA,
    }
)

# Scheme of servers that are files. They need no credentials.
FILE_SCHEME: Final = "file:"

INSECURE: Final = "insecure"
TLS: Final = "tls"
GOOGLE_DEFAULT: Final = "google_default"
CHANNEL_CREDS_TYPES: Final = (INSECURE, TLS, GOOGLE_DEFAULT)
JWT_TOKEN_FILE: Final = "jwt_token_file"

# "If unset, defaults to "600s"" - A65
REFRESH_INTERVAL_S: Final = 600.0
# Files are not read more often than that; grpcio has the same bound.
REFRESH_INTERVAL_MIN_S: Final = 1.0

# Directory of the config cache.
CACHE_VARIABLE: Final = "GRPC_XDS_CONFIG_CACHE"
# A day: addresses in an older config may belong to other services by now.
CONFIG_CACHE_MAX_AGE_S: Final = 86_400.0

LISTENER_TYPE: Final = "envoy.config.listener.v3.Listener"
# "Defaults to "%s"" - A47
DEFAULT_TEMPLATE: Final = "%s"


def _no_entries() -> Mapping[str, Any]:
    return MappingProxyType({})


@frozen
class Node:
    """Identity of this client for control planes."""

    id: str = ""
    cluster: str = ""
    locality: Locality = field(default_factory=Locality)
    # Any JSON, for the control plane. An immutable copy.
    metadata: Mapping[str, object] = field(default_factory=_no_entries, hash=False)


@frozen
class TlsConfig:
    """TLS to a control plane: the system's roots without a CA file, mTLS with a certificate."""

    ca_certificate_file: str = ""
    certificate_file: str = ""
    private_key_file: str = ""
    refresh_interval_s: float = REFRESH_INTERVAL_S


@frozen
class ChannelCreds:
    """Security of the connection to a control plane; plaintext without a config."""

    type: str
    config: TlsConfig | None = None


@frozen
class CallCreds:
    """Token for the streams to a control plane. Never sent on a plaintext connection."""

    type: str
    jwt_token_file: str


@frozen
class ServerConfig:
    """One control plane. Equal configs share a stream (A47)."""

    # A gRPC target, `host:port`, `dns:///host:port`, `unix:///path`; or `file:///path`: resources
    # are read from files (`controlplane.file_transport`).
    uri: str
    channel_creds: ChannelCreds
    call_creds: tuple[CallCreds, ...] = ()
    # Only known features: "unknown features can be removed" - A47
    features: frozenset[str] = frozenset()

    @property
    def is_trusted(self) -> bool:
        """Whether it may rewrite the authority of RPCs (A81)."""
        return TRUSTED_XDS_SERVER in self.features


@frozen
class Authority:
    """Servers and listener template of one authority."""

    # "If not specified, the top-level server list is used" - A47
    servers: tuple[ServerConfig, ...]
    client_listener_resource_name_template: str
    # Fall back if a server is unreachable, even if all resources are cached (A95).
    fallback_on_reachability_only: bool = False


@frozen
class CertificateProviderConfig:
    """One instance of a certificate provider; the config is parsed by its plugin."""

    plugin_name: str
    config: Mapping[str, object] = field(default_factory=_no_entries, hash=False)


@frozen
class ConfigCacheConfig:
    """Directory in which accepted resources are saved, and the age after which they are ignored."""

    directory: str
    max_age_s: float = CONFIG_CACHE_MAX_AGE_S


@frozen(kw_only=True)
class Bootstrap:
    """Bootstrap configuration."""

    # In order of preference, at least one.
    servers: tuple[ServerConfig, ...]
    node: Node = Node()
    # By name. The empty name is for xdstp names without an authority.
    authorities: Mapping[str, Authority] = field(default_factory=_no_entries, hash=False)
    client_default_listener_resource_name_template: str = DEFAULT_TEMPLATE
    # By instance name.
    certificate_providers: Mapping[str, CertificateProviderConfig] = field(
        default_factory=_no_entries, hash=False
    )
    # Timeout of routes that set none; None: that of A31 (D20). Other clients ignore the field.
    default_route_timeout_s: float | None = None
    # None: resources are not saved. Other clients ignore the field.
    config_cache: ConfigCacheConfig | None = None

    @property
    def has_trusted_server(self) -> bool:
        """Whether any server may rewrite the authority of RPCs (A81)."""
        lists = (self.servers, *(each.servers for each in self.authorities.values()))
        return any(server.is_trusted for servers in lists for server in servers)


def read_bootstrap_file(path: str) -> bytes:
    """Read the file, up to one byte beyond the limit."""
    with open(path, "rb") as file:
        return file.read(BYTES_MAX + 1)


def load_bootstrap(
    argument: "Mapping[str, object] | str | os.PathLike[str] | None",
    environ: Mapping[str, str],
    read_file: Callable[[str], bytes] = read_bootstrap_file,
) -> Bootstrap | Status:
    """Load the bootstrap: from the argument, a document or a path, or else from the environment.

    The status of a failure names the source and all errors.
    """
    if isinstance(argument, Mapping):
        return _parse_document("argument", argument)
    if argument is not None:
        path = os.fspath(argument)
        return _load_file(f"file {path!r}", path, read_file)
    # An empty variable counts as unset, as in grpcio.
    if path := environ.get(FILE_VARIABLE, ""):
        return _load_file(f"file {path!r} ({FILE_VARIABLE})", path, read_file)
    if text := environ.get(INLINE_VARIABLE, ""):
        return _parse_text(INLINE_VARIABLE, text)
    return Status(
        StatusCode.UNAVAILABLE,
        f"xds bootstrap is missing: wanted {FILE_VARIABLE} with the path of a file, "
        f"{INLINE_VARIABLE} with JSON, or the argument bootstrap=; see: proxyless init DIR",
    )


def _load_file(source: str, path: str, read_file: Callable[[str], bytes]) -> Bootstrap | Status:
    try:
        content = read_file(path)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        return _reject(source, f"cannot be read: {getattr(error, 'strerror', None) or error}")
    return _parse_text(source, content)


def _parse_text(source: str, text: str | bytes) -> Bootstrap | Status:
    if len(text) > BYTES_MAX:
        return _reject(source, f"is too large, wanted at most {BYTES_MAX} bytes")
    try:
        document = json.loads(text, parse_constant=_reject_constant)
    except RecursionError:
        return _reject(source, "is not usable: objects or lists are nested too deeply")
    except ValueError as error:  # wrong JSON or encoding, or a number that is too long
        return _reject(source, f"is not JSON: {error}")
    return _parse_document(source, document)


def _reject_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _parse_document(source: str, document: object) -> Bootstrap | Status:
    errors = ValidationErrors()
    bootstrap = parse_bootstrap(document, errors)
    return bootstrap if errors.ok else _reject(source, str(errors))


def _reject(source: str, what: str) -> Status:
    return Status(StatusCode.UNAVAILABLE, f"xds bootstrap: {source}: {what}")


def choose_config_cache(
    bootstrap: Bootstrap, given: str | None, environ: Mapping[str, str]
) -> Bootstrap:
    """The bootstrap with the given directory, or that of the environment, if either is set.

    An empty text turns off the cache of the bootstrap.
    """
    directory = environ.get(CACHE_VARIABLE) if given is None else given
    if directory is None:
        return bootstrap
    before = bootstrap.config_cache
    max_age_s = CONFIG_CACHE_MAX_AGE_S if before is None else before.max_age_s
    chosen = ConfigCacheConfig(directory, max_age_s) if directory else None
    return replace(bootstrap, config_cache=chosen)


def parse_bootstrap(document: object, errors: ValidationErrors) -> Bootstrap:
    """Parse a JSON value. The result is valid only if no error was added."""
    root = JsonObject(document, errors)
    servers = _parse_servers(root)
    if not servers and errors.ok:
        root.add("xds_servers", "is missing or empty, wanted at least one server")
    authorities = {
        name: _parse_authority(name, entry)
        for name, entry in root.entries("authorities", AUTHORITIES_MAX)
    }
    providers = {
        name: CertificateProviderConfig(
            entry.need_text("plugin_name"), MappingProxyType(entry.tree("config"))
        )
        for name, entry in root.entries("certificate_providers", PROVIDERS_MAX)
    }
    template = root.text("client_default_listener_resource_name_template")
    return Bootstrap(
        servers=servers,
        node=root.nested("node", _parse_node) or Node(),
        authorities=MappingProxyType(authorities),
        client_default_listener_resource_name_template=template or DEFAULT_TEMPLATE,
        certificate_providers=MappingProxyType(providers),
        default_route_timeout_s=root.nested("proxyless", _parse_default_route_timeout),
        config_cache=root.nested("proxyless", _parse_config_cache),
    )


def _parse_default_route_timeout(own: JsonObject) -> float | None:
    return own.read("default_route_timeout", DURATION)


def _parse_config_cache(own: JsonObject) -> ConfigCacheConfig | None:
    directory = own.text("config_cache")
    max_age_s = own.read_or("config_cache_max_age", POSITIVE_DURATION, CONFIG_CACHE_MAX_AGE_S)
    return ConfigCacheConfig(directory, max_age_s) if directory else None


def _parse_node(node: JsonObject) -> Node:
    return Node(
        id=node.text("id"),
        cluster=node.text("cluster"),
        locality=node.nested("locality", _parse_locality) or Locality(),
        metadata=MappingProxyType(node.tree("metadata")),
    )


def _parse_locality(locality: JsonObject) -> Locality:
    # "JSON form of Node proto" - A27, which has two spellings of a field.
    sub_zone = locality.text("sub_zone") or locality.text("subZone")
    return Locality(locality.text("region"), locality.text("zone"), sub_zone)


def _parse_servers(parent: JsonObject) -> tuple[ServerConfig, ...]:
    return tuple(_parse_server(server) for server in parent.objects("xds_servers", SERVERS_MAX))


def _parse_server(server: JsonObject) -> ServerConfig:
    features = server.read_or("server_features", LIST, ())
    return ServerConfig(
        uri=server.need_text("server_uri"),
        channel_creds=_parse_channel_creds(server),
        call_creds=_parse_call_creds(server),
        # Unknown features may be of any type, and need not be hashable.
        features=frozenset(name for name in KNOWN_FEATURES if name in features),
    )


def _parse_channel_creds(server: JsonObject) -> ChannelCreds:
    """Parse the first credentials of a supported type; of the others, only the type is checked."""
    is_file = str(server.get("server_uri")).startswith(FILE_SCHEME)
    if is_file and not server.has("channel_creds"):
        return ChannelCreds(INSECURE)
    chosen: ChannelCreds | None = None
    types: list[str] = []
    for creds in server.objects("channel_creds", CREDS_MAX):
        types.append(creds.need_text("type"))
        if chosen is None and types[-1] in CHANNEL_CREDS_TYPES:
            chosen = _parse_supported_creds(types[-1], creds)
    if chosen is None:
        got = f"has only {', '.join(map(repr, types))}" if types else "is missing or empty"
        server.add("channel_creds", f"{got}, wanted one of {', '.join(CHANNEL_CREDS_TYPES)}")
    return chosen or ChannelCreds("")


def _parse_supported_creds(creds_type: str, creds: JsonObject) -> ChannelCreds:
    if creds_type == INSECURE:
        return ChannelCreds(INSECURE)
    config = creds.nested("config", _parse_tls) if creds_type == TLS else None
    return ChannelCreds(creds_type, config or TlsConfig())


def _parse_tls(config: JsonObject) -> TlsConfig:
    certificate, key = config.text("certificate_file"), config.text("private_key_file")
    # "If either of these fields are set, both must be set" - A65
    if certificate and not key:
        config.add("private_key_file", "is missing, wanted the key of certificate_file")
    if key and not certificate:
        config.add("certificate_file", "is missing, wanted the certificate of private_key_file")
    interval_s = config.read_or("refresh_interval", POSITIVE_DURATION, REFRESH_INTERVAL_S)
    return TlsConfig(
        ca_certificate_file=config.text("ca_certificate_file"),
        certificate_file=certificate,
        private_key_file=key,
        refresh_interval_s=max(interval_s, REFRESH_INTERVAL_MIN_S),
    )


def _parse_call_creds(server: JsonObject) -> tuple[CallCreds, ...]:
    # "will ignore any types that it does not support" - A97
    supported: list[CallCreds] = []
    for creds in server.objects("call_creds", CREDS_MAX):
        if creds.need_text("type") == JWT_TOKEN_FILE:
            path = creds.nested("config", lambda config: config.need_text(JWT_TOKEN_FILE))
            if path is None:
                creds.add("config", f"is missing, wanted an object with {JWT_TOKEN_FILE}")
            supported.append(CallCreds(JWT_TOKEN_FILE, path or ""))
    return tuple(supported)


def _parse_authority(name: str, entry: JsonObject) -> Authority:
    prefix = f"xdstp://{encode_authority(name)}/"
    field_name = "client_listener_resource_name_template"
    template = entry.text(field_name) or f"{prefix}{LISTENER_TYPE}/%s"
    # "Must start with "xdstp://<authority_name>/"" - A47
    if not template.startswith(prefix):
        entry.add(field_name, f"is {template!r}, wanted a text that begins with {prefix!r}")
    return Authority(
        servers=_parse_servers(entry),
        client_listener_resource_name_template=template,
        fallback_on_reachability_only=entry.read_or(
            "fallback_on_reachability_only", BOOLEAN, default=False
        ),
    )
