"""A coordinator killed in each phase of a rebalance, played on a test cluster with members by hand."""
