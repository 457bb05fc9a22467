"""Benchmarks of the client's cost per RPC, beside grpcio in the same run.

`python bench/rpc.py` (or `python -m bench.rpc`) starts a backend and one warm process per client,
runs the clients in turns, and prints medians. `python bench/scale.py` does the same for large
meshes, and for meshes that change.

Pure: `workloads` (loads of a client), `samples` (statistics), `targets` (met or missed), `report`
(table and JSON), `selection` (names in options).
Edges: `rpc` (command line), `interleave` (order of turns), `processes` (backend and client
processes), `child` (the client process), `clients/` (one adapter per client), `backend/` (the C
echo server and its build), `probe/` (lower bound: frames only), `mesh` (the control plane's
process), `meshes` (its resources), `pacing` (open loops).
Slow backends: `slow_backend` (latency by LB policy, in virtual time or with sockets).
Soak: `soak` (command line and processes), `soak_plane` (the control plane's process), `soak_child`
(the client's process).
Scale: `scale` (command line), `scale_rows` (measurements), `scale_targets` (sizes, targets and
tables; pure), `scale_world` (processes), `scale_child` and `cold` (the client process).
"""
