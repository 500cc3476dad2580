"""The driver's work on each batch: its tasks copy the records, then the syncs are written, then Spark's log.

A driver that dies before Spark's log is written leaves a batch that the next driver sends again: at least once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.client.model import TopicPartition
from ottla.spark.pipelines import crash_points
from ottla.spark.pipelines.mirroring.checkpoints import GroupTranslator
from ottla.spark.pipelines.mirroring.copying import RESULT, CopyTask, names_of
from ottla.spark.pipelines.mirroring.ends import source_of
from ottla.spark.pipelines.mirroring.synced import MirrorCounts, SyncStore, write_syncs
from ottla.spark.pipelines.mirroring.translation import Sync
from ottla.spark.versions import Versioned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow
    from pyspark.sql import DataFrame

    from ottla.spark.pipelines.settings.model import MirrorSettings

log = logging.getLogger(__name__)


class MirrorBatches(Versioned):
    """The function of `foreachBatch`. `reading` are the options that the stream is read with.

    With `translates` offsets of groups are translated after each batch: for a query that ends by itself.
    """

    def __init__(self, mirror: MirrorSettings, reading: Mapping[str, str], *, translates: bool) -> None:
        self._mirror = mirror
        self._reading = dict(reading)
        self._translator = GroupTranslator(mirror) if translates else None
        self._newest: dict[TopicPartition, Sync] | None = None
        self._counts: dict[TopicPartition, MirrorCounts] = {}

    def __call__(self, ranges: DataFrame, batch_id: int) -> None:
        """Copy one batch. Raises what the tasks raise, ClientError."""
        is_first = self._newest is None
        newest = self._read_syncs() if self._newest is None else self._newest
        task = CopyTask(self._mirror, self._reading, newest, may_repeat=is_first)
        rows = ranges.mapInArrow(_function_of(task), RESULT).collect()
        crash_points.reach(crash_points.MIRROR_PRODUCED)
        copied: dict[TopicPartition, list[Sync]] = {}
        batch = MirrorCounts()
        for row in rows:
            partition = TopicPartition(row.topic, row.partition)
            counts = MirrorCounts(row.records, row.repeated)
            copied.setdefault(partition, []).append(Sync(row.upstream, row.downstream))
            self._counts[partition] = self._counts.get(partition, MirrorCounts()) + counts
            batch += counts
        self._write_syncs(copied)
        self._newest = newest | {partition: syncs[-1] for partition, syncs in copied.items()}
        crash_points.reach(crash_points.MIRROR_PRODUCED)
        log.info(
            "mirror batch %d: %d records of %d partitions, %d of them sent again",
            batch_id,
            batch.records,
            len(copied),
            batch.repeated,
        )
        if self._translator is not None:
            self._translator.translate_all()

    def _read_syncs(self) -> dict[TopicPartition, Sync]:
        store = SyncStore(names_of(self._mirror).offset_syncs_topic)
        with source_of(self._mirror).client() as client:
            store.refresh(client)
        self._counts = dict(store.counts)
        return store.newest()

    def _write_syncs(self, copied: Mapping[TopicPartition, list[Sync]]) -> None:
        if not copied:
            return
        topic = names_of(self._mirror).offset_syncs_topic
        with source_of(self._mirror).producer() as producer:
            for partition, syncs in copied.items():
                write_syncs(producer, topic, partition, syncs, self._counts[partition])
            producer.flush()


def _function_of(task: CopyTask) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    def copy(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        return task.copy_all(batches)

    return copy
