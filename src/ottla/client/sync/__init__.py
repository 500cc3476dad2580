"""The sync clients: the asyncio clients, run in a thread of their own, behind blocking methods.

The names below are imported at first use, so that a process that needs one client does not load all, such as the
workers of Spark. Type checkers read the imports instead; a test keeps the two in step.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.errors import ClientError as ClientError
    from ottla.client.model import TopicPartition as TopicPartition
    from ottla.client.sync.admin import Admin as Admin
    from ottla.client.sync.client import Client as Client
    from ottla.client.sync.consumer import Consumer as Consumer
    from ottla.client.sync.producer import Producer as Producer
    from ottla.client.sync.simple import SimpleConsumer as SimpleConsumer

#: Where each public name is defined.
_EXPORTS = {
    "Admin": "ottla.client.sync.admin",
    "Client": "ottla.client.sync.client",
    "ClientError": "ottla.client.errors",
    "Consumer": "ottla.client.sync.consumer",
    "Producer": "ottla.client.sync.producer",
    "SimpleConsumer": "ottla.client.sync.simple",
    "TopicPartition": "ottla.client.model",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
