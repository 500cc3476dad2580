"""The result of one `poll`: records by partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Generic

from ottla.client.model import TopicPartition
from ottla.records.consumed import ConsumerRecord
from ottla.records.type_variables import K, V


class ConsumerRecords(Generic[K, V]):
    """Records in partition order; iterate over all of them, or over those of one partition or topic."""

    __slots__ = ("_by_partition",)

    def __init__(self, by_partition: Mapping[TopicPartition, list[ConsumerRecord[K, V]]]) -> None:
        self._by_partition = by_partition

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        return chain.from_iterable(self._by_partition.values())

    def __len__(self) -> int:
        return sum(map(len, self._by_partition.values()))

    def __bool__(self) -> bool:
        return bool(self._by_partition)

    def __repr__(self) -> str:
        text = ", ".join(f"{each}: {len(records)}" for each, records in self._by_partition.items())
        return f"ConsumerRecords({text})"

    def partitions(self) -> set[TopicPartition]:
        """Return the partitions that have records."""
        return set(self._by_partition)

    def records(self, of: TopicPartition | str) -> list[ConsumerRecord[K, V]]:
        """Return the records of a partition, or of all partitions of a topic."""
        if isinstance(of, str):
            return [record for each, records in self._by_partition.items() if each.topic == of for record in records]
        return list(self._by_partition.get(of, ()))

    def count(self) -> int:
        """Return the number of records."""
        return len(self)
