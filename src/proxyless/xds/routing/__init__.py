"""Routing: from the path and metadata of an RPC to a route, a cluster and a call config.

Specs: A28, A31, A42 (hashes), A44 (retries).

route_table   the routes of one virtual host: the first match wins; timeouts and retries of each
selector      ConfigSelector of an xDS target: route, cluster, filters, request hash
request_hash  hash policies of a route
mirrors       mirror policies of a route: which clusters get a copy of an RPC
cluster_refs  counted references to clusters, held by selectors and RPCs (A31)
"""
