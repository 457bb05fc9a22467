"""Bootstrap configuration: the control planes, this client's node, and certificate providers.

Specs: A27, A29 (certificate providers), A47 (authorities), A65, A97.

bootstrap       the bootstrap document: values, parsing, and where it is read from
resource_names  names of resources, old style and xdstp (A47), and the authority of each
"""

from proxyless.xds.bootstrap.bootstrap import (
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
    Node,
    ServerConfig,
    TlsConfig,
    load_bootstrap,
)

__all__ = [
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
    "Node",
    "ServerConfig",
    "TlsConfig",
    "load_bootstrap",
]
