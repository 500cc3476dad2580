"""Faults of a cluster as a client meets them: its addresses, topics, groups and a broker's disk, beside its health."""
