"""The sync clients: the asyncio clients, run in a thread of their own, behind blocking methods."""

from __future__ import annotations

from ottla.client.sync.admin import Admin
from ottla.client.sync.client import Client, ClientError, TopicPartition
from ottla.client.sync.consumer import Consumer
from ottla.client.sync.producer import Producer
from ottla.client.sync.simple import SimpleConsumer

__all__ = [
    "Admin",
    "Client",
    "ClientError",
    "Consumer",
    "Producer",
    "SimpleConsumer",
    "TopicPartition",
]
