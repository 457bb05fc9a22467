"""How does a channel follow a control plane?

Down from the name to the pick, each page asks the one below it:

- `resolver` makes the results of an `xds:///` target; `routing` is its selector: virtual host,
  route, cluster.
- `config` is the dependency manager: one complete, immutable XdsConfig, or nothing new.
- `client` speaks ADS and LRS to control planes, through a transport (`grpc_transport`).
- `parsing` turns Envoy's messages into `resources`, with every error by field path.
- `lb` are the policies that only xDS has; `filters` the HTTP filters.
- `security` says how connections to a cluster are secured, with `certificates` of the bootstrap,
  and `trust_bundles` of SPIFFE.
- `bootstrap` says which control plane, and who we are; `names` reads resource names.
"""
