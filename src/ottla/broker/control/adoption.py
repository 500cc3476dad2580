"""Adoption of topics from partition directories: what the log directories hold, and the message to the operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.cluster.adoption import UNLIMITED_RETENTION, AdoptablePartition

if TYPE_CHECKING:
    from ottla.config.listeners import Endpoint
    from ottla.storage.manager import LogManager
    from ottla.storage.topic_settings import AdoptionMark

#: Topic names in one log line.
NAMES_SHOWN = 10


class PartitionDirectories:
    """The partition directories that a broker found at its start; this one has none."""

    found: Sequence[AdoptablePartition] = ()

    def settings_of(self, topic: str, topic_id: UUID | None, partitions: Iterable[int]) -> Mapping[str, str] | None:
        """See `cluster.adoption.SettingsOf`."""
        return None

    def is_adopting(self, cluster_id: str) -> bool:
        """Whether an adoption into this cluster was interrupted. Raises DiskError."""
        return False

    def begin_adopting(self, cluster_id: str) -> None:
        """Record that an adoption into this cluster is under way. Raises DiskError."""

    def end_adopting(self) -> None:
        """Record that the adoption is complete. Raises DiskError."""


class FoundPartitionDirectories(PartitionDirectories):
    """The partition directories of an opened `LogManager`."""

    def __init__(self, logs: LogManager, mark: AdoptionMark) -> None:
        self.found = [
            AdoptablePartition(one.topic, one.topic_id, one.partition, one.leader_epoch) for one in logs.found
        ]
        self._logs = logs
        self._mark = mark

    def settings_of(self, topic: str, topic_id: UUID | None, partitions: Iterable[int]) -> Mapping[str, str] | None:
        """See `cluster.adoption.SettingsOf`."""
        return self._logs.topic_settings.read(topic, topic_id, partitions)

    def is_adopting(self, cluster_id: str) -> bool:
        """See `PartitionDirectories.is_adopting`."""
        return self._mark.is_set(cluster_id)

    def begin_adopting(self, cluster_id: str) -> None:
        """See `PartitionDirectories.begin_adopting`."""
        self._mark.set(cluster_id)

    def end_adopting(self) -> None:
        """See `PartitionDirectories.end_adopting`."""
        self._mark.clear()


def adoption_warning(names: Sequence[str], endpoints: Sequence[Endpoint]) -> str:
    """The message to the operator about topics kept whole: how to give them back their settings."""
    shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
    server = f"{endpoints[0].host}:{endpoints[0].port}" if endpoints else "HOST:PORT"
    settings = ",".join(UNLIMITED_RETENTION)
    command = f"kafka-configs.sh --bootstrap-server {server} --alter --entity-type topics --entity-name {names[0]}"
    return (
        f"{len(names)} topics were adopted from log directories, and their settings are not known: {shown}. They are "
        "kept whole (retention.ms=-1, retention.bytes=-1, no compaction) until you give them their settings: "
        f"{command} --add-config retention.ms=604800000 (or cleanup.policy=compact, …); for the broker's defaults "
        f"{command} --delete-config {settings}"
    )
