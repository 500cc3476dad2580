"""The clients for callers without an event loop: the same code as with one, run by a thread."""

from ottla.client.sync.client import Client, ClientError, Producer, TopicPartition

__all__ = ["Client", "ClientError", "Producer", "TopicPartition"]
