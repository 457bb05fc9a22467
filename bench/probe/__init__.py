"""Probes that measure lower bounds; not for use."""
