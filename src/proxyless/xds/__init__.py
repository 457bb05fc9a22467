"""xDS of a channel: resolves `xds:///` targets to routes, clusters and LB policies.

Layers, from the top; imports point only downward (`make layers`). Those on one line are
independent of each other.

stack, view               objects shared by the channels of one loop; read-only queries
resolver, grpc_transport  resolver of `xds:///` targets; transport of the xDS client
resolver_options          options of a resolver: channel, environment, bootstrap
wait_texts                texts about missing resources
lb, routing               LB policies of xDS; route table and ConfigSelector (A28, A31)
security                  TLS of clusters, certificates, credentials of control planes (A29)
config                    XdsDependencyManager and XdsConfig (A74)
filters                   HTTP filters (A39)
parsing                   validation of protobuf messages, which become `resources`
client, resources         XdsClient: ADS and LRS, cache, watchers; values of resources
bootstrap                 bootstrap configuration, names of resources
error_texts               subjects and node ids of error texts
"""
