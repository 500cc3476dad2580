"""The consumer of the ZooKeeper generation: a connector, its streams, and the rebalance that its group does by itself.

Names, settings and behaviour are those of Apache Kafka 0.8.2.2's `kafka.consumer`. Without a coordinator, each
consumer watches ZooKeeper, computes the whole group's assignment and claims its own part with ephemeral nodes.

The names below are imported when they are first used. Type checkers read the imports instead; a test keeps both alike.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.zkconsumer.connector import ConsumerConnector as ConsumerConnector
    from ottla.zkconsumer.connector import create_connector as create_connector
    from ottla.zkconsumer.highlevel_config import HighLevelConsumerConfig as HighLevelConsumerConfig
    from ottla.zkconsumer.streams import ConsumerTimeoutError as ConsumerTimeoutError
    from ottla.zkconsumer.streams import KafkaStream as KafkaStream
    from ottla.zkconsumer.streams import MessageAndMetadata as MessageAndMetadata
    from ottla.zkconsumer.topic_filters import Blacklist as Blacklist
    from ottla.zkconsumer.topic_filters import Whitelist as Whitelist

#: Where each public name is defined.
_EXPORTS = {
    "Blacklist": "ottla.zkconsumer.topic_filters",
    "ConsumerConnector": "ottla.zkconsumer.connector",
    "ConsumerTimeoutError": "ottla.zkconsumer.streams",
    "HighLevelConsumerConfig": "ottla.zkconsumer.highlevel_config",
    "KafkaStream": "ottla.zkconsumer.streams",
    "MessageAndMetadata": "ottla.zkconsumer.streams",
    "Whitelist": "ottla.zkconsumer.topic_filters",
    "create_connector": "ottla.zkconsumer.connector",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
