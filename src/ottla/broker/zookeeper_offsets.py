"""Consumer offsets in the coordination metadata, which version 0 of OffsetCommit and OffsetFetch writes and reads.

Consumers of Kafka 0.8.1 kept their offsets in ZooKeeper, and reached it through a broker with these versions. These
offsets belong to no group of the coordinator: membership is not checked, they do not expire, they stay when their topic
is deleted, and they are independent of those that later versions commit. Source: Apache Kafka 3.9 in ZooKeeper mode,
`KafkaApis.commitOffsetsToZookeeper`, `KafkaZkClient.setOrCreateConsumerOffset`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from ottla.broker.control.refusals import METADATA_ERRORS
from ottla.broker.slices import LoopSlices
from ottla.net.reports import LimitedReports, call_later
from ottla.wire.errors import ErrorCode
from ottla.zk.client import ZkClient
from ottla.zk.layout import ConsumerOffsetZnode, ZnodeDataError
from ottla.zk.tree import Create, NodeExistsError, NoNodeError, Operation, Set, ZkError, check_path, parent_of

log = logging.getLogger("ottla.broker")

POSITIONS_PER_TRANSACTION = 250
"""Offsets written in one transaction: a ZooKeeper request holds as many with the longest names."""


MOST_ATTEMPTS = 20
"""Attempts to write nodes that others create or delete at the same time."""


class OffsetZnodes:
    """The offsets below `/consumers`."""

    def __init__(self, zk: ZkClient, slices: LoopSlices) -> None:
        self._zk = zk
        self._slices = slices
        self._report = partial(LimitedReports(log.warning, call_later), "the offsets in znodes")

    async def commit(self, group: str, positions: Sequence[tuple[str, int, int]]) -> list[ErrorCode]:
        """Write offsets (topic, partition, offset); the last of a repeated partition counts. Return an error for each.

        The error is UNKNOWN_SERVER_ERROR, the only one that clients of that age know: for a group id that cannot be
        part of a path, or if the metadata cannot be written.
        """
        errors: list[ErrorCode] = []
        for start in range(0, len(positions), POSITIONS_PER_TRANSACTION):
            # The embedded server answers without another slice.
            await self._slices.point()
            part = positions[start : start + POSITIONS_PER_TRANSACTION]
            error = ErrorCode.NONE
            try:
                await self._write_in_spite_of_others(
                    {ConsumerOffsetZnode.path(group, t, index): offset for t, index, offset in part}
                )
            except METADATA_ERRORS as failure:
                self._report(f"offsets of group {group!r:.200} cannot be written to their znodes: {failure}")
                error = ErrorCode.UNKNOWN_SERVER_ERROR
            errors.extend([error] * len(part))
        return errors

    async def _write_in_spite_of_others(self, offsets: dict[str, int]) -> None:
        """Write offsets, retrying if others create the same parents at the same time, or delete the group."""
        for _ in range(MOST_ATTEMPTS - 1):
            with suppress(NodeExistsError, NoNodeError):
                await self._write(offsets)
                return
        await self._write(offsets)

    async def _write(self, offsets: dict[str, int]) -> None:
        operations: list[Operation] = []
        made: set[str] = set()
        for path, offset in offsets.items():
            check_path(path)
            data = ConsumerOffsetZnode.encode(offset)
            if path not in made and await self._zk.exists(path) is not None:
                operations.append(Set(path, data))
                continue
            missing = []
            above = parent_of(path)
            while above not in made and await self._zk.exists(above) is None:
                missing.append(above)
                above = parent_of(above)
            operations.extend(Create(node) for node in reversed(missing))
            operations.append(Create(path, data))
            made.update(missing, [path])
        await self._zk.multi(operations)

    async def fetch(self, group: str, topic: str, partition: int) -> int | ErrorCode:
        """Read an offset; UNKNOWN_TOPIC_OR_PARTITION if there is none, UNKNOWN_SERVER_ERROR if it is invalid."""
        path = ConsumerOffsetZnode.path(group, topic, partition)
        try:
            data, _ = await self._zk.get(path)
            return ConsumerOffsetZnode.decode(path, data)
        except NoNodeError:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        except (ZkError, ZnodeDataError) as failure:
            self._report(f"an offset of group {group!r:.200} cannot be read from its znode: {failure}")
            return ErrorCode.UNKNOWN_SERVER_ERROR
