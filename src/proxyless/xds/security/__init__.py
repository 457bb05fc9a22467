"""Security of connections: to the endpoints of a cluster (A29), and to control planes (A27).

cluster_security    TLS of one cluster: SNI, SAN matchers, which certificates
cluster_tls         TLS settings of a cluster, shared by the channels of an XdsClient
certificates        certificate providers of the bootstrap, and the files they watch
trust_bundles       SPIFFE trust bundle maps (A87)
server_credentials  channel and call credentials of a connection to a control plane

Exports nothing: an insecure mesh imports none of these modules (ADR 0015).
"""
