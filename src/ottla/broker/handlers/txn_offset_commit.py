"""TxnOffsetCommit (key 28), versions 0-4: a group's positions, in force once the transaction is committed (KIP-98).

1 has no change; 2 adds the leader epoch; 3 is flexible, and has generation and member (KIP-447); 4 adds
TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ottla.broker.authorization import Access, Accesses, on_group, on_topics
from ottla.broker.context import RequestContext
from ottla.broker.coordinators.group_kind import OFFSETS_TOPIC
from ottla.broker.handlers.produce import RETRIED
from ottla.broker.replicas.partition import Partition
from ottla.cluster.acls import Operation, ResourceType
from ottla.env.futures import settle
from ottla.groups.events import CommitResult, OffsetCommit
from ottla.groups.records import NO_EXPIRY, StoredOffset
from ottla.records.batch import NO_SEQUENCE
from ottla.storage.producer_state import NOT_VERIFIED, Verification
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.sliced import mapped

ABORTABLE_SINCE = 4
#: Offsets passed to a group at a time.
OFFSETS_PER_COMMIT = 1_000

_Offsets = list[tuple[str, int, StoredOffset]]
_Errors = dict[tuple[str, int], ErrorCode]


def accesses(context: RequestContext, request: TxnOffsetCommitRequest) -> Accesses:
    yield Access(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    yield on_group(Operation.READ, request.group_id)
    yield from on_topics(Operation.READ, (topic.name for topic in request.topics))


def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> None:
    """Commit the offsets of known partitions; the others get an error each."""
    if not context.permits(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        _reply(context, request, {}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not context.permits(Operation.READ, ResourceType.GROUP, request.group_id):
        _reply(context, request, {}, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    else:
        context.run(_commit(context, request))


async def _commit(context: RequestContext, request: TxnOffsetCommitRequest) -> None:
    offsets = await _known_offsets(context, request)
    errors: _Errors = {}
    if offsets:
        outcome = await _verified(context, request)
        for start in range(0, len(offsets), OFFSETS_PER_COMMIT):
            part = offsets[start : start + OFFSETS_PER_COMMIT]
            codes = (
                [outcome] * len(part)
                if isinstance(outcome, ErrorCode)
                else await _submit(context, request, part, outcome)
            )
            errors.update({(name, index): error for (name, index, _), error in zip(part, codes, strict=True)})
            await context.broker.slices.point()
    _reply(context, request, errors, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def _known_offsets(context: RequestContext, request: TxnOffsetCommitRequest) -> _Offsets:
    broker = context.broker
    now_ms = broker.groups.now_ms()
    found: dict[tuple[str, int], StoredOffset] = {}
    for topic in request.topics:
        known = broker.image.topics.get(topic.name)
        if known is None or not context.permits(Operation.READ, ResourceType.TOPIC, topic.name):
            continue
        for partition in topic.partitions:
            await broker.slices.point()
            if 0 <= partition.partition_index < len(known.partitions):
                found[topic.name, partition.partition_index] = StoredOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    now_ms,
                    NO_EXPIRY,
                )
    return [(name, index, value) for (name, index), value in found.items()]


class _Verified(NamedTuple):
    """The group's partition, its term when the verification began, and the verification to write there."""

    partition: Partition
    term: int
    verification: Verification | None

    def refusal(self, producer_id: int) -> ErrorCode:
        """Why the verification holds no more, if so; after a change of role it has to be repeated."""
        if self.partition.term != self.term:
            return ErrorCode.NOT_COORDINATOR
        may_write = self.partition.log.producers.may_write(producer_id, self.verification)
        return ErrorCode.NONE if may_write else ErrorCode.INVALID_TXN_STATE


async def _verified(context: RequestContext, request: TxnOffsetCommitRequest) -> _Verified | ErrorCode:
    """Have the transaction's coordinator confirm that the group's partition is in the transaction."""
    broker = context.broker
    index = broker.groups.router.partition_of(request.group_id)
    partition = broker.partitions.get(OFFSETS_TOPIC, index)
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if partition is None or partition.leader is None:
        return ErrorCode.NOT_COORDINATOR
    term = partition.term
    if not broker.config.get_boolean("transaction.partition.verification.enable"):
        return _Verified(partition, term, NOT_VERIFIED)
    producer = request.producer_id, request.producer_epoch
    verification = partition.log.producers.begin_verification(*producer, NO_SEQUENCE, broker.clock.now_ms())
    if verification is not None:
        asked = (OFFSETS_TOPIC, index)
        knows_abortable = context.api_version >= ABORTABLE_SINCE
        verifier = broker.transactions.verifier
        errors = await verifier.verify(request.transactional_id, *producer, [asked], knows_abortable=knows_abortable)
        if errors[asked] is not ErrorCode.NONE:
            # Java's producer tries again after this one, and after no other that may stand for all of these.
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if errors[asked] in RETRIED else errors[asked]
    return _Verified(partition, term, verification)


async def _submit(
    context: RequestContext, request: TxnOffsetCommitRequest, part: _Offsets, verified: _Verified
) -> Sequence[ErrorCode]:
    refusal = verified.refusal(request.producer_id)
    if refusal is not ErrorCode.NONE:
        return [refusal] * len(part)
    answered: asyncio.Future[CommitResult] = asyncio.get_running_loop().create_future()
    context.broker.groups.submit(
        OffsetCommit(
            partial(settle, answered),
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            part,
            request.producer_id,
            request.producer_epoch,
        )
    )
    return (await answered).errors


def _reply(context: RequestContext, request: TxnOffsetCommitRequest, errors: _Errors, others: ErrorCode) -> None:
    """Send the errors in the order of the request; partitions that were not submitted get the error `others`."""

    def topic_result(topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitResponseTopic:
        name, error = topic.name, others
        is_of_topic = others is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_of_topic and not context.permits(Operation.READ, ResourceType.TOPIC, name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return TxnOffsetCommitResponseTopic(
            name=name,
            partitions=mapped(
                topic.partitions,
                lambda partition: TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=errors.get((name, partition.partition_index), error),
                ),
            ),
        )

    context.reply_in_slices(TxnOffsetCommitResponse(topics=mapped(request.topics, topic_result)))
