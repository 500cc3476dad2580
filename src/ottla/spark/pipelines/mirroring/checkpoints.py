"""Committed offsets of the source's groups, translated and written as MirrorMaker 2's checkpoints.

`RemoteClusterUtils.translateOffsets` reads them. A checkpoint is written where it differs from the last one: where the
group came further at the target, or went back at the source.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.spark.pipelines.mirroring.copying import names_of
from ottla.spark.pipelines.mirroring.ends import source_of, target_of
from ottla.spark.pipelines.mirroring.formats import GroupCheckpoint, MirrorRecordError
from ottla.spark.pipelines.mirroring.synced import SyncStore, TopicTail

if TYPE_CHECKING:
    from ottla.client.admin.model import GroupListing
    from ottla.client.sync import Client
    from ottla.spark.pipelines.settings.model import MirrorSettings

OF_CONSUMERS = ("", "consumer")
"""Protocol types of groups that have offsets of consumers; "" is a group that only commits."""

log = logging.getLogger(__name__)

Known = dict[tuple[str, TopicPartition], GroupCheckpoint]
"""The last checkpoint by group and partition of the target."""


class GroupTranslator:
    """Writes checkpoints. It keeps what it has read of syncs and checkpoints, and connects only while it translates."""

    def __init__(self, mirror: MirrorSettings) -> None:
        self._mirror = mirror
        self._names = names_of(mirror)
        self._syncs = SyncStore(self._names.offset_syncs_topic)
        self._written = TopicTail(self._names.checkpoints_topic)
        self._known: Known = {}

    def translate_all(self) -> int:
        """Translate the offsets of all groups; gives the number of checkpoints written. Raises ClientError."""
        source, target = source_of(self._mirror), target_of(self._mirror)
        with source.client() as client:
            self._syncs.refresh(client)
        with target.client() as client:
            self._read_written(client)
        written = 0
        with source.admin() as admin, target.producer() as producer:
            for listed in admin.list_groups():
                if self._is_translated(listed):
                    for checkpoint in self._changed(listed.group_id, admin.list_group_offsets(listed.group_id)):
                        producer.send(self._names.checkpoints_topic, checkpoint.value, checkpoint.key, 0)
                        written += 1
        return written

    def _is_translated(self, listed: GroupListing) -> bool:
        group = listed.group_id
        is_own = group == self._mirror.group_id
        return listed.protocol_type in OF_CONSUMERS and not is_own and self._names.is_translated(group)

    def _read_written(self, client: Client) -> None:
        for record in self._written.read(client):
            try:
                checkpoint = GroupCheckpoint.decode(record.key, record.value)
            except MirrorRecordError as problem:
                log.warning("a checkpoint at offset %d cannot be read: %s", record.offset, problem)
                continue
            self._known[checkpoint.group, checkpoint.partition] = checkpoint

    def _changed(self, group: str, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> Iterator[GroupCheckpoint]:
        for partition, offset in committed.items():
            if not self._names.is_mirrored(partition.topic):
                continue
            downstream = self._syncs.translate(partition, offset.offset)
            if downstream is None:
                continue
            remote = TopicPartition(self._names.remote_topic(partition.topic), partition.partition)
            checkpoint = GroupCheckpoint(group, remote, offset.offset, downstream, offset.metadata)
            if is_news(checkpoint, self._known.get((group, remote))):
                yield checkpoint


def is_news(checkpoint: GroupCheckpoint, last: GroupCheckpoint | None) -> bool:
    """Whether a checkpoint is worth writing: MirrorCheckpointTask.checkpointIsMoreRecent."""
    return (
        last is None
        or checkpoint.upstream_offset < last.upstream_offset
        or checkpoint.downstream_offset > last.downstream_offset
    )
