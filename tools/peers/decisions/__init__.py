"""Table of decisions: what gRPC's xDS clients, and Envoy, do with the same resources.

Each case is a mesh of our control plane and three backends. Each voice (our client, grpcio,
grpc-go, grpc-java, grpc-js, and Envoy with a plain client in front of it) runs it in a process of
its own, and the outcomes of a case are a row of the table in docs/peers.md. A cell that differs
from ours has a note that explains it, or the run fails.

voice      a process that sends RPCs, and its protocol
programs   the voices: how each is built and started
mesh       control plane and backends of one case and voice
envoy      the voice of Envoy
case       Case, and the registry of cases
routing    cases: virtual hosts, routes, header matchers
streams    cases: timeouts, retries, faults, sessions
clusters   cases: clusters and endpoints
updates    cases: resources that change, disappear or are invalid
balancing  cases: hashes, drops, circuit breakers, outlier detection
notes      explanations of cells that differ from ours
table      the outcomes of all cases, their judgement, and the section of the page
suite      the run of all cases
"""
