"""A cluster in one process on virtual time: shipped brokers and clients, faults by seed, a check of what was seen."""
