"""Fuzzer of a mesh: our xDS client and grpcio's under load, while the mesh changes at random.

Both clients use one control plane and the same backends. An RPC that fails in our client only, or
waits in our client only, is a failure. The seed gives the plan; the times of the run are real.

mesh      Mesh: clusters, endpoints and routes as values, and their resources
state     WorldState: the state of mesh and backends while a plan is made
changes   random changes of clusters, endpoints and routes
faults    random faults of backends, of the control plane, and of the config
plan      make_plan: the steps of a seed
backends  backend processes: started, killed, stopped, drained
client    the process of one client, which sends the RPCs and records them
records   records of the clients, and times of the steps
stalls    watch_stalls: times in which a process did not get the CPU
run       run_seed: carries out a plan
judge     judge: compares the records of both clients
report    texts for the terminal, and the JSON log
"""
