"""Feasibility probes: where the floor is, not how to build the house."""
