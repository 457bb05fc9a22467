"""The policies that are not specific to xDS, named as in configs.

per_endpoint       base of the policies with one pick_first child per endpoint (A61)
pick_first         sends all RPCs to the first address that connects
round_robin        sends RPCs to the READY endpoints in turn
random             sends each RPC to a random READY endpoint
ring_hash          sends RPCs with the same hash to the same endpoint (A42, A61, A76)
priority           sends all RPCs to the highest usable priority (A56)
least_request      compares random READY endpoints by their RPCs in progress (A48)
peak_ewma          compares two random READY endpoints by latency and RPCs in progress
weighted_round_robin
                   sends RPCs in proportion to weights from load reports (A58)
weighted_target    sends RPCs to children in proportion to configured weights
random_subsetting  gives its child a random subset of the endpoints (A68)
outlier_detection  ejects endpoints whose RPCs fail (A50)

This package imports none of them: the code that builds a registry does (ADR 0003).
"""
