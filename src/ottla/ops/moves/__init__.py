"""Partitions moved as Kafka's kafka-reassign-partitions does it, with its files and throttles."""
