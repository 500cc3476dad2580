"""DescribeLogDirs (key 35), versions 0-4: the log directories and the sizes of their partitions (KIP-113).

1 is the same as 0, 2 is flexible, 3 adds a top-level error, 4 the size of each log directory's volume (KIP-827). A
failed log directory is returned with KAFKA_STORAGE_ERROR and without partitions. A partition that is being moved stands
in both, in the new one as a future replica with its lag. From 2 on a partition may have a
tagged field of ottla's own: the reports of lost records, and why the last records were not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.broker.authorization import Accesses, on_cluster
from ottla.broker.context import RequestContext
from ottla.broker.slices import LoopSlices
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.env.disk import DiskError
from ottla.storage.log import PartitionLog
from ottla.storage.manager import LogDirectoryState
from ottla.wire.errors import ErrorCode
from ottla.wire.lost_records import (
    LOST_RECORDS_TAG,
    REFUSED_RECORDS_TAG,
    LostRecords,
    encode_lost_records,
    encode_refusal,
)
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.wire.sliced import mapped

#: The first version with tagged fields, of which ottla has some of its own (`ottla.wire.lost_records`).
TAGS_SINCE = 2
#: The first version whose response has a top-level error.
ERROR_SINCE = 3
#: Logs processed between two slices.
LOGS_PER_SLICE = 256
#: Requested partitions by topic; None for all.
Wanted = dict[str, set[int]] | None
#: The lost records of a partition.
Lost = Callable[[str, int], Sequence[LostRecords]]


def accesses(context: RequestContext, request: DescribeLogDirsRequest) -> Accesses:
    return (on_cluster(Operation.DESCRIBE),)


def handle(context: RequestContext, request: DescribeLogDirsRequest) -> None:
    """Reply once the sizes of the volumes are known; they are read in threads, since a disk may be slow."""
    context.spawn(_answer(context, request))


async def _answer(context: RequestContext, request: DescribeLogDirsRequest) -> None:
    if not context.permits(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        refused = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED) if context.api_version >= ERROR_SINCE else 0
        context.reply(DescribeLogDirsResponse(error_code=refused, results=[]))
        return
    broker = context.broker
    wanted: Wanted = None
    if request.topics is not None:
        wanted = {}
        for topic in request.topics:
            wanted.setdefault(topic.topic, set()).update(topic.partitions)
            await broker.slices.point()
    paths = [content.path for content in broker.logs.contents() if content.failure is None]
    sizes = await broker.executor.submit(lambda: {path: _size(context, path) for path in paths})
    # Logs created or deleted meanwhile are taken into account.
    results = []
    lost = broker.partitions.losses.of if context.api_version >= TAGS_SINCE else None
    for content in broker.logs.contents():
        logs = await _by_topic(broker.slices, [*content.logs, *content.futures], wanted)
        partitions = _partition_of(context, set(content.futures), lost)
        results.append(_result(content, sizes.get(content.path), logs, partitions))
    await context.replied(DescribeLogDirsResponse(results=results))


async def _by_topic(slices: LoopSlices, logs: list[PartitionLog], wanted: Wanted) -> dict[str, list[PartitionLog]]:
    topics: dict[str, list[PartitionLog]] = {}
    for number, log in enumerate(logs):
        if number % LOGS_PER_SLICE == 0:
            await slices.point()
        partitions = topics.setdefault(log.topic, [])
        if wanted is None or log.partition in wanted.get(log.topic, ()):
            partitions.append(log)
    return topics


def _size(context: RequestContext, path: str) -> tuple[int, int] | None:
    """Total and usable bytes of a log directory's volume; None if the disk returns an error."""
    try:
        return context.broker.disk.space(path)
    except DiskError:
        return None


def _result(
    content: LogDirectoryState,
    size: tuple[int, int] | None,
    logs: dict[str, list[PartitionLog]],
    described: Callable[[PartitionLog], DescribeLogDirsPartition],
) -> DescribeLogDirsResult:
    if content.failure is not None or size is None:
        return DescribeLogDirsResult(
            error_code=int(ErrorCode.KAFKA_STORAGE_ERROR), log_dir=content.absolute_path, topics=[]
        )
    return DescribeLogDirsResult(
        error_code=0,
        log_dir=content.absolute_path,
        topics=mapped(
            logs.items(),
            lambda item: DescribeLogDirsTopic(name=item[0], partitions=mapped(item[1], described)),
        ),
        total_bytes=size[0],
        usable_bytes=size[1],
    )


def _partition_of(
    context: RequestContext, futures: set[PartitionLog], lost: Lost | None
) -> Callable[[PartitionLog], DescribeLogDirsPartition]:
    """How a log is described: a future one with what it lacks, others with ottla's own fields unless `lost` is None."""
    partitions = context.broker.partitions

    def described(log: PartitionLog) -> DescribeLogDirsPartition:
        is_future = log in futures
        lag = partitions.moves().lag(log.topic, log.partition) if is_future else 0
        partition = DescribeLogDirsPartition(
            partition_index=log.partition, partition_size=log.size_bytes, offset_lag=lag, is_future_key=is_future
        )
        if lost is not None and not is_future:
            tags = {}
            if reports := lost(log.topic, log.partition):
                tags[LOST_RECORDS_TAG] = encode_lost_records(reports)
            if reason := log.failure or log.unwritten:
                tags[REFUSED_RECORDS_TAG] = encode_refusal(reason)
            if tags:
                partition.unknown_tagged_fields = tags
        return partition

    return described
