"""Randomized simulation runs of the whole mesh: `python -m tools.simulation`, `make sim`.

A run takes ten virtual minutes in a world of `proxyless.sim`; its seed chooses the mesh, the load
and the faults.

options, scenario            the options of a seed, and one run with them
plans                        the configuration of the mesh, generation by generation
workloads                    traffic, changes and faults
records, fault_log           records of a run, and the faults of each backend
checkers, expected_failures  checks of every run
probes, report               rare situations that were reached, and the summary of many seeds
run, shrink                  the command, and the search for a smaller run that fails
random_choices               random choices of workloads
explore                      exhaustive exploration of the event orders of a small world
"""
