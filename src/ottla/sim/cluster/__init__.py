"""A cluster in one process on virtual time: shipped brokers and clients, faults by seed, checks of what was seen."""
