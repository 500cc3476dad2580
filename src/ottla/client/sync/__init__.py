"""The clients for callers without an event loop: the same code as with one, run by a thread.

What belongs to the consumer of the ZooKeeper generation, which has no other interface, is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.client.sync.admin import Admin
from ottla.client.sync.client import Client, ClientError, TopicPartition
from ottla.client.sync.consumer import Consumer
from ottla.client.sync.producer import Producer
from ottla.client.sync.simple import SimpleConsumer

if TYPE_CHECKING:
    from ottla.client.highlevel.connector import ConsumerConnector, create_connector
    from ottla.client.highlevel.topic_filters import Blacklist, Whitelist

__all__ = [
    "Admin",
    "Blacklist",
    "Client",
    "ClientError",
    "Consumer",
    "ConsumerConnector",
    "Producer",
    "SimpleConsumer",
    "TopicPartition",
    "Whitelist",
    "create_connector",
]

_HIGH_LEVEL = frozenset(("Blacklist", "ConsumerConnector", "Whitelist", "create_connector"))


def __getattr__(name: str) -> Any:
    if name not in _HIGH_LEVEL:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("ottla.client"), name)
