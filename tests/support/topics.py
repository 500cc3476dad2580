"""Topics of a broker under test, made and changed by librdkafka."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

TIMEOUT_S = 60.0


class Topics:
    """Makes and changes topics of a broker."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, name: str, partitions: int = 3) -> None:
        """A new topic."""
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(TIMEOUT_S)

    def add_partitions(self, name: str, partitions: int) -> None:
        """More partitions: this many in all."""
        self._admin.create_partitions([NewPartitions(name, partitions)])[name].result(TIMEOUT_S)

    def delete(self, name: str) -> None:
        """A topic goes."""
        self._admin.delete_topics([name])[name].result(TIMEOUT_S)
