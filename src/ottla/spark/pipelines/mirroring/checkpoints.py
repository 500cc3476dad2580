"""Committed offsets of the source's groups, translated and written as MirrorMaker 2's checkpoints.

`RemoteClusterUtils.translateOffsets` reads them. A checkpoint is written where it differs from the last one: where the
group came further at the target, or went back at the source.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.spark.pipelines.mirroring.copying import names_of
from ottla.spark.pipelines.mirroring.ends import source_of, target_of
from ottla.spark.pipelines.mirroring.formats import GroupCheckpoint, MirrorRecordError
from ottla.spark.pipelines.mirroring.synced import SyncStore, TopicTail

if TYPE_CHECKING:
    from ottla.spark.pipelines.settings.model import MirrorSettings

OF_CONSUMERS = ("", "consumer")
"""Protocol types of groups that have offsets of consumers; "" is a group that only commits."""

log = logging.getLogger(__name__)

Known = dict[tuple[str, TopicPartition], GroupCheckpoint]
"""The last checkpoint by group and partition of the target."""


class GroupTranslator:
    """Writes checkpoints. It holds connections to both clusters until it is closed."""

    def __init__(self, mirror: MirrorSettings) -> None:
        self._names = names_of(mirror)
        self._own_group = mirror.group_id
        self._open = ExitStack()
        with ExitStack() as opening:
            source, target = source_of(mirror), target_of(mirror)
            self._admin = opening.enter_context(source.admin())
            self._syncs = SyncStore(opening.enter_context(source.client()), self._names.offset_syncs_topic)
            self._written = TopicTail(opening.enter_context(target.client()), self._names.checkpoints_topic)
            self._producer = opening.enter_context(target.producer())
            self._open = opening.pop_all()
        self._known: Known = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._open.close()

    def translate_all(self) -> int:
        """Translate the offsets of all groups; gives the number of checkpoints written. Raises ClientError."""
        self._syncs.refresh()
        self._read_written()
        written = 0
        for listed in self._admin.list_groups():
            group = listed.group_id
            if listed.protocol_type not in OF_CONSUMERS or group == self._own_group:
                continue
            if not self._names.is_translated(group):
                continue
            for checkpoint in self._changed(group, self._admin.list_group_offsets(group)):
                self._producer.send(self._names.checkpoints_topic, checkpoint.value, checkpoint.key, 0)
                written += 1
        self._producer.flush()
        return written

    def _read_written(self) -> None:
        for record in self._written.read():
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
