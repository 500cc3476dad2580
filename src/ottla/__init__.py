"""Ottla: a Kafka-compatible event-streaming platform in Python."""
