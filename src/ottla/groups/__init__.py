"""Consumer groups: pure machines, their log records, committed offsets, evidence of rebalances."""
