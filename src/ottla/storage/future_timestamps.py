"""Records whose timestamp lies far in the future: their segments are not past `retention.ms`, nor is what follows."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final

from ottla.storage.checkpoints import TopicPartitionKey
from ottla.storage.log import PartitionLog
from ottla.storage.retention import oldest_by_age

#: Clocks differ by less: the default of `message.timestamp.after.max.ms` since Kafka 4.0 (KIP-937).
CLOCKS_DIFFER_MS: Final = 3_600_000


class FutureTimestamps:
    """Passes a message to `note` about each partition that keeps records for that reason, once."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._noted: set[TopicPartitionKey] = set()

    def retain(self, keys: Container[TopicPartitionKey]) -> None:
        """Forget the partitions that are not here any more."""
        self._noted = {key for key in self._noted if key in keys}

    def check(self, log: PartitionLog, now_ms: int) -> None:
        """Look at a log from which the expired segments were deleted. Raises DiskError."""
        key = (log.topic, log.partition)
        segment = None if key in self._noted else oldest_by_age(log)
        if segment is None or (timestamp := segment.largest_timestamp_so_far()) <= now_ms + CLOCKS_DIFFER_MS:
            return
        self._noted.add(key)
        self._note(
            f"{log.name} keeps records for longer than retention.ms={log.config.retention_ms}: segment "
            f"{segment.base_offset} has a record with the timestamp {timestamp}, in the batch that ends at offset "
            f"{segment.max_timestamp_offset}, and the time is {now_ms} (ms). retention.ms deletes neither this segment "
            "nor those after it until that time has passed. Let the producer send milliseconds since 1970; "
            f"message.timestamp.after.max.ms={CLOCKS_DIFFER_MS} of topic {log.topic} refuses such records. Those that "
            "are here are deleted by kafka-delete-records.sh, Admin.delete_records or retention.bytes"
        )
