"""The replicas that a broker holds: their roles, how far they are committed, and who waits for that."""
