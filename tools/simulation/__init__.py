"""Randomized simulation runs of the whole mesh: `python -m tools.simulation`, `make sim`.

A run takes ten virtual minutes in a world of `proxyless.sim`; its seed chooses the mesh, the load
and the faults.

options, scenario            what a seed chooses, and one run with it
plans                        the configuration of the mesh, generation by generation
workloads                    traffic, changes and faults
records, fault_log           what happened, and which backend was faulty when
checkers, expected_failures  what must hold in every run
probes, report               rare situations that were reached, and the summary of many seeds
run, shrink                  the command, and the search for a smaller run that fails
random_choices               random choices of workloads
explore                      every order of events of a small world, instead of random ones
"""
