"""The clients for callers without an event loop: the same code as with one, run by a thread."""

from ottla.client.sync.client import Client, ClientError, Producer, TopicPartition
from ottla.client.sync.consumer import Consumer

__all__ = ["Client", "ClientError", "Consumer", "Producer", "TopicPartition"]
