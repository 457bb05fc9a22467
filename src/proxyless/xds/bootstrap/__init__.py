"""Bootstrap configuration (A27): control planes, this client's node, certificate providers.

bootstrap       the bootstrap document: values, loading, parsing
resource_names  names of resources, old style and xdstp (A47), and the servers of each
"""

from proxyless.xds.bootstrap.bootstrap import (
    DELTA,
    FAIL_ON_DATA_ERRORS,
    IGNORE_RESOURCE_DELETION,
    INSECURE,
    RESOURCE_TIMER_IS_TRANSIENT_ERROR,
    TRUSTED_XDS_SERVER,
    Authority,
    Bootstrap,
    CallCreds,
    CertificateProviderConfig,
    ChannelCreds,
    ConfigCacheConfig,
    Node,
    ServerConfig,
    TlsConfig,
    choose_config_cache,
    load_bootstrap,
)

__all__ = [
    "DELTA",
    "FAIL_ON_DATA_ERRORS",
    "IGNORE_RESOURCE_DELETION",
    "INSECURE",
    "RESOURCE_TIMER_IS_TRANSIENT_ERROR",
    "TRUSTED_XDS_SERVER",
    "Authority",
    "Bootstrap",
    "CallCreds",
    "CertificateProviderConfig",
    "ChannelCreds",
    "ConfigCacheConfig",
    "Node",
    "ServerConfig",
    "TlsConfig",
    "choose_config_cache",
    "load_bootstrap",
]
