"""The policies that are not xDS's own, one file each, named as in configs.

pick_first       the first address that can be reached takes all RPCs
round_robin      every endpoint that is connected takes its turn
priority         the highest priority that works takes all RPCs (A56)
weighted_target  children take RPCs in proportion to their weights

Imports nothing: a policy's file is imported by whoever builds a registry (ADR 0003).
"""
