"""The policies that are not xDS's own, one file each, named as in configs.

per_endpoint       base of the policies with one pick_first per endpoint (A61)
pick_first         the first address that can be reached takes all RPCs
round_robin        every endpoint that is connected takes its turn
random             each RPC goes to any endpoint that is connected
ring_hash          RPCs with the same hash go to the same endpoint (A42, A61, A76)
priority           the highest priority that works takes all RPCs (A56)
least_request      of a few endpoints, the one with the fewest RPCs under way takes the next (A48)
weighted_round_robin
                   endpoints take turns in proportion to what they say they can do (A58)
weighted_target    children take RPCs in proportion to their weights
random_subsetting  the child gets a few of many endpoints (A68)
outlier_detection  endpoints whose RPCs fail are left alone for a while (A50), with its parts
                   outlier_config, outlier_algorithms and outlier_endpoints

Imports nothing: a policy's file is imported by whoever builds a registry (ADR 0003).
"""
