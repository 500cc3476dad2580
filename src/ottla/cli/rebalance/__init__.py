"""`ottla rebalance`: what would move if a group changed, and how rebalances go, without touching anything."""
