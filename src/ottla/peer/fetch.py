"""Fetch requests and what is in their answers, with a session or without one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.peer.fetch_session import FetchPlan, WantedFetch, fetch_topics
from ottla.peer.model import CONSUMER, READ_UNCOMMITTED, TopicPartition
from ottla.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData

NO_SESSION_ID = 0
FINAL_EPOCH = -1
"""With no session id: a fetch without a session (KIP-227)."""


class FetchLimits(NamedTuple):
    """How much one answer may bring, and how long a broker may wait for it."""

    max_bytes: int
    """Of all partitions; a single larger batch is sent whole all the same (KIP-74)."""
    min_bytes: int = 1
    max_wait_ms: int = 500
    isolation_level: int = READ_UNCOMMITTED


def fetch_without_session(
    wanted: Mapping[TopicPartition, WantedFetch], limits: FetchLimits, *, replica_id: int = CONSUMER, rack: str = ""
) -> FetchRequest:
    """The request for these partitions."""
    plan = FetchPlan(NO_SESSION_ID, FINAL_EPOCH, fetch_topics(wanted), [])
    return fetch_request(plan, limits, replica_id=replica_id, rack=rack)


def fetch_request(plan: FetchPlan, limits: FetchLimits, *, replica_id: int = CONSUMER, rack: str = "") -> FetchRequest:
    """The request of a session (`FetchSession.build`). A replica gives its broker's id, a consumer its rack."""
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation_level,
        session_id=plan.session_id,
        session_epoch=plan.session_epoch,
        topics=plan.topics,
        forgotten_topics_data=plan.forgotten,
        rack_id=rack,
    )


def partitions_in(answer: FetchResponse) -> Iterator[tuple[TopicPartition, PartitionData]]:
    """Each partition of a response with its data, in the response's order."""
    for topic in answer.responses:
        for data in topic.partitions:
            yield TopicPartition(topic.topic, data.partition_index), data


def aborted_in(data: PartitionData) -> list[tuple[int, int]]:
    """The aborted transactions that a read-committed answer names: first offset and producer id of each."""
    return [(each.first_offset, each.producer_id) for each in data.aborted_transactions or ()]
