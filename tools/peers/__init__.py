"""Other projects' test suites for gRPC clients, run with our channels and with grpcio's.

`make peers` gets each suite's server, pinned to a version, runs the suite with both stacks, and
writes docs/peers.md. It needs Go for three of the four suites, and the network when it first runs;
a suite that is not available is skipped with the reason. Downloads and builds are in
build/peers.
"""
