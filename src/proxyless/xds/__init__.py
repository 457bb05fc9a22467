"""The xDS client of a channel: from an `xds:///` target to routes, clusters and policies.

Layers, from the top; imports point only downward (`make layers`):

view            read-only queries, for explanations, lint and CSDS
stack           what the xDS channels of one event loop share
resolver        resolver of `xds:///` targets: service config and ConfigSelector
grpc_transport  the transport of the xDS client: streams on our own channels
lb              the LB policies of xDS
routing         route table, ConfigSelector, references to clusters (A28, A31)
security        TLS of clusters, certificates, credentials of control planes (A29)
config          XdsDependencyManager and XdsConfig (A74)
filters         HTTP filters (A39)
parsing         validation of protobuf messages, which become `resources`
client          XdsClient: ADS and LRS, cache, watchers
resources       frozen values, one per type of resource
bootstrap       bootstrap configuration, and names of resources
error_texts     subjects and node ids of error texts
"""
