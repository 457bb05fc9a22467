"""Fuzzer of a mesh: our xDS client and grpcio's under load, while the mesh changes at random.

Both clients use one control plane and the same backends. An RPC that fails in our client only, or
waits in our client only, is a failure. The seed gives the plan; the times of the run are real.

mesh      Mesh: clusters, endpoints and routes as values, and their resources
state     WorldState: what a plan has done so far, and which backends can serve
changes   random changes of clusters, endpoints and routes
faults    random faults of backends, of the control plane, and of the config
plan      make_plan: the steps of a seed
backends  backend processes: started, killed, stopped, drained
client    the process of one client, which sends the RPCs and records them
records   what the clients recorded, and when the steps were carried out
stalls    watch_stalls: when a process did not get the CPU
run       run_seed: carries out a plan
judge     judge: compares the records of both clients
report    texts for the terminal, and the JSON log
"""
