"""DescribeLogDirs (key 35), versions 0-4: the folders of the log and the size of what lies in them (KIP-113).

1 is the same as 0, 2 is flexible, 3 adds an error of the whole, 4 the size of each folder's volume (KIP-827). A folder
that has failed is told with KAFKA_STORAGE_ERROR and without content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.env.disk import DiskError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.storage.manager import FolderContent

MIN_VERSION = 0
MAX_VERSION = 4

#: Keys of partitions asked for; None for all.
Wanted = set[tuple[str, int]] | None


def handle(context: RequestContext, request: DescribeLogDirsRequest) -> None:
    """Answer when the volumes were asked for their sizes, away from the loop: a disk may take its time."""
    context.spawn(_answer(context, request))


async def _answer(context: RequestContext, request: DescribeLogDirsRequest) -> None:
    wanted: Wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    broker = context.broker
    paths = [content.path for content in broker.logs.contents() if content.failure is None]
    sizes = await broker.executor.submit(lambda: {path: _size(context, path) for path in paths})
    # What came or went while the volumes were asked is in the answer.
    results = [_result(content, sizes.get(content.path), wanted) for content in broker.logs.contents()]
    context.reply(DescribeLogDirsResponse(results=results))


def _size(context: RequestContext, path: str) -> tuple[int, int] | None:
    """Bytes of a folder's volume, and those of them that can be used; None where the disk does not say."""
    try:
        return context.broker.disk.space(path)
    except DiskError:
        return None


def _result(content: FolderContent, size: tuple[int, int] | None, wanted: Wanted) -> DescribeLogDirsResult:
    if content.failure is not None or size is None:
        return DescribeLogDirsResult(
            error_code=int(ErrorCode.KAFKA_STORAGE_ERROR), log_dir=content.absolute_path, topics=[]
        )
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for log in content.logs:
        partitions = topics.setdefault(log.topic, [])
        if wanted is None or (log.topic, log.partition) in wanted:
            partitions.append(
                DescribeLogDirsPartition(
                    partition_index=log.partition, partition_size=log.size_bytes, offset_lag=0, is_future_key=False
                )
            )
    return DescribeLogDirsResult(
        error_code=0,
        log_dir=content.absolute_path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=size[0],
        usable_bytes=size[1],
    )
