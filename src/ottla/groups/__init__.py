"""Consumer groups: pure state machines, their log records, committed offsets, evidence of rebalances."""
