"""How a pipeline stands, by its checkpoint and its groups: no process of it needs to live."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ottla.client.errors import ClientError
from ottla.client.model import TopicPartition
from ottla.spark.errors import SparkRefusal
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.queries.checkpoint import QueryCheckpoint
from ottla.spark.pipelines.running.clusters import ReadCluster, read_clusters
from ottla.spark.pipelines.running.control import Runner, RunnerNotes
from ottla.spark.pipelines.running.process import host_name, is_running
from ottla.spark.pipelines.settings.model import PipelineSettings
from ottla.spark.pipelines.tables.filesystems import open_filesystem
from ottla.spark.source.offsets import by_partition
from ottla.spark.source.partitions import latest_offsets, selected_partitions


@dataclass(frozen=True, slots=True)
class ReadPartition:
    """One partition that is read. Each offset is that of the next record; None where it is not known.

    `position` is where the newest finished batch ended, `committed` what the group has, `end` the end of the log.
    """

    source: str
    partition: TopicPartition
    position: int | None
    committed: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        """Offsets from the position to the end."""
        if self.end is None or self.position is None:
            return None
        return max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """A pipeline as it stands. Batches are None before the first one; times are ms since 1970.

    A planned batch that is not finished is in work, or runs again at the next start. `problems` are clusters that could
    not be asked, each in a sentence.
    """

    name: str
    kind: str
    query_id: str | None
    planned_batch: int | None
    finished_batch: int | None
    finished_ms: int | None
    watermark_ms: int | None
    runner: Runner
    partitions: tuple[ReadPartition, ...]
    problems: tuple[str, ...]

    @property
    def lag(self) -> int | None:
        """Of all partitions; None where that of one is not known."""
        lags = [each.lag for each in self.partitions]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if known and len(known) == len(lags) else None


def read_status(settings: PipelineSettings, timeout_ms: int, now_s: Callable[[], float] = time.time) -> PipelineStatus:
    """Read checkpoint and groups; clusters have `timeout_ms` to answer. Raises PipelineError."""
    checkpoint = QueryCheckpoint(settings.checkpoint)
    planned, finished = checkpoint.newest_planned(), checkpoint.newest_finished()
    batch = None if finished is None else checkpoint.batch(finished)
    newest = batch if planned is None else checkpoint.batch(planned) or batch
    positions: dict[TopicPartition, int] = {}
    for source in () if batch is None else batch.sources:
        positions |= by_partition(source or {})
    partitions: list[ReadPartition] = []
    problems: list[str] = []
    for cluster in read_clusters(settings):
        try:
            partitions.extend(_ask(cluster, timeout_ms, positions))
        except (ClientError, SparkRefusal) as problem:
            problems.append(f"{cluster.name}: {problem}")
            partitions.extend(
                ReadPartition(cluster.name, each, position, None, None)
                for each, position in sorted(positions.items())
                if cluster.parsed().selection.selects_topic(each.topic)
            )
    return PipelineStatus(
        name=settings.name,
        kind=settings.kind.value,
        query_id=checkpoint.query_id(),
        planned_batch=planned,
        finished_batch=finished,
        finished_ms=None if finished is None else _finished_ms(settings.checkpoint, finished),
        watermark_ms=None if newest is None else newest.watermark_ms,
        runner=RunnerNotes(settings.checkpoint).runner(host_name(), round(now_s() * 1_000), is_running),
        partitions=tuple(partitions),
        problems=tuple(problems),
    )


def _finished_ms(checkpoint: str, batch: int) -> int | None:
    """When Spark noted the end of a batch: the time of its file. Raises PipelineError."""
    filesystem, root = open_filesystem(checkpoint, {})
    try:
        written_ns = filesystem.get_file_info(f"{root}/commits/{batch}").mtime_ns
    except OSError as problem:
        raise PipelineError(f"cannot read the checkpoint {checkpoint}: {problem}; check the path") from None
    return None if written_ns is None else int(written_ns) // 1_000_000


def _ask(cluster: ReadCluster, timeout_ms: int, positions: dict[TopicPartition, int]) -> list[ReadPartition]:
    with cluster.client(timeout_ms) as client:
        wanted = sorted(selected_partitions(client, cluster.parsed().selection))
        ends = latest_offsets(client, wanted)
        committed = client.committed(cluster.group_id, wanted) if wanted else {}
    return [
        ReadPartition(
            source=cluster.name,
            partition=each,
            position=positions.get(each),
            committed=None if committed.get(each, -1) < 0 else committed[each],
            end=ends.get(each),
        )
        for each in wanted
    ]
