"""Rebalances to learn from: what a change would move, worked examples, and the two group designs compared."""
