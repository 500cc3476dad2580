"""Offsets of a group: commit, deletion, expiry, and removal of a group that has nothing left. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.assign.consumer_protocol import PROTOCOL_TYPE
from ottla.groups.events import (
    CommitResult,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsResult,
    ErrorResult,
    ExpireOffsets,
    OffsetCommit,
    Reply,
    Step,
    TopicsDeleted,
)
from ottla.groups.offsets import TopicPartition, metadata_size
from ottla.groups.rebalancing import RebalancingGroup, StagedKind
from ottla.groups.records import GroupRecord, LogRecord, OffsetRecord
from ottla.groups.states import GroupState, OffsetDeleteRule
from ottla.wire.errors import ErrorCode


class OffsetHandling(RebalancingGroup):
    """Commits and deletions of offsets."""

    __slots__ = ()

    def _commit(self, event: OffsetCommit, step: Step, now_ms: int) -> None:
        self.is_registered = True
        error = self._commit_refusal(event, now_ms)
        if error is not None:
            step.replies.append(Reply(event.token, CommitResult([error] * len(event.offsets))))
            return
        limit = self.limits.offset_metadata_max_bytes
        errors: list[ErrorCode] = []
        records: list[LogRecord] = []
        for topic, partition, value in event.offsets:
            if metadata_size(value.metadata) > limit:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                errors.append(ErrorCode.NONE)
                records.append(OffsetRecord(self.group_id, topic, partition, value))
        step.replies.append(Reply(event.token, CommitResult(errors)))
        if records:
            self._stage(step, StagedKind.COMMIT, records, now_ms)

    def _delete(self, event: DeleteGroup, step: Step, now_ms: int) -> None:
        error = self.rules.delete
        step.replies.append(Reply(event.token, ErrorResult(error)))
        if error is ErrorCode.NONE:
            self._remove_offsets(self.offsets.all_keys(), step, now_ms, is_deleted=True)

    def _delete_offsets(self, event: DeleteOffsets, step: Step, now_ms: int) -> None:
        """Delete offsets of topics without subscribers, and an empty group if it has no offsets left."""
        is_free = self.rules.delete_offsets is OffsetDeleteRule.DELETE
        if not is_free and self.protocol_type != PROTOCOL_TYPE:
            step.replies.append(Reply(event.token, DeleteOffsetsResult(ErrorCode.NON_EMPTY_GROUP)))
            return
        held = () if is_free else self.subscribed_topics
        errors = [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if held is None or topic in held else ErrorCode.NONE
            for topic, _ in event.partitions
        ]
        step.replies.append(Reply(event.token, DeleteOffsetsResult(ErrorCode.NONE, errors)))
        present = dict.fromkeys(self.offsets.all_keys())
        outcomes = zip(event.partitions, errors, strict=True)
        keys = list(dict.fromkeys(key for key, error in outcomes if error is ErrorCode.NONE and key in present))
        self._remove_offsets(keys, step, now_ms)

    def _expire_offsets(self, event: ExpireOffsets, step: Step, now_ms: int) -> None:
        self._remove_offsets(self._expired_offsets(event.retention_ms, now_ms), step, now_ms)

    def _topics_deleted(self, event: TopicsDeleted, step: Step, now_ms: int) -> None:
        self._remove_offsets([key for key in self.offsets.all_keys() if key[0] in event.topics], step, now_ms)

    def _remove_offsets(
        self, keys: Sequence[TopicPartition], step: Step, now_ms: int, is_deleted: bool = False
    ) -> None:
        """Write tombstones for offsets and, if an empty group has none left, for the group.

        As in Apache Kafka, pending member ids do not keep it. A group that never had members has no record.
        """
        records: list[LogRecord] = [OffsetRecord(self.group_id, topic, index, None) for topic, index in keys]
        is_last = len(keys) == len(self.offsets.all_keys()) and not self.offsets.has_transactional
        if is_deleted or (is_last and self.state is GroupState.EMPTY):
            for member_id in list(self.members.pending):
                self._drop_pending(member_id)
            self.is_registered = False
            if self.generation_id > 0:
                records.append(GroupRecord(self.group_id, None))
        if records:
            self._stage(step, StagedKind.REMOVAL, records, now_ms)
