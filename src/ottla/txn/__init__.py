"""Transactions: the coordinator's pure state machine, one for each transactional id, and its log records."""
