"""What does one RPC cost the client, next to grpcio in the same run?

`python bench/rpc.py` (or `python -m bench.rpc`) starts a backend and one warm process per client,
lets the clients take turns, and prints medians. `python bench/scale.py` does the same for large
meshes, and for meshes that change.

Pure: `workloads` (what is asked), `samples` (statistics), `targets` (met or missed), `report`
(table and JSON), `selection` (which names an option means).
Edges: `rpc` (command line), `interleave` (whose turn it is), `processes` (backend and client
processes), `child` (what runs inside a client process), `clients/` (one adapter per client),
`backend/` (the C echo server and how it is built), `probe/` (the floor: frames and no more),
`mesh` (what runs inside the control plane's process), `meshes` (what it tells), `pacing` (open
loops).
Of scale: `scale` (command line), `scale_rows` (what is done), `scale_targets` (sizes, targets and
how they are shown; pure), `scale_world` (processes), `scale_child` and `cold` (inside a client's).
"""
