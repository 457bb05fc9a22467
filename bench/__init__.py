"""What does one RPC cost the client, next to grpcio in the same run?

`python bench/rpc.py` (or `python -m bench.rpc`) starts a backend and one warm process per client,
lets the clients take turns, and prints medians.

Pure: `workloads` (what is asked), `samples` (statistics), `targets` (met or missed), `report`
(table and JSON), `selection` (which names an option means).
Edges: `rpc` (command line), `interleave` (whose turn it is), `processes` (backend and client
processes), `child` (what runs inside a client process), `clients/` (one adapter per client),
`backend/` (the C echo server and how it is built), `probe/` (the floor: frames and no more).
"""
