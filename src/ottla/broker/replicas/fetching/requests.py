"""The requests of a follower to its leader. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from ottla.broker.replicas.fetching.machine import NO_TOPIC_ID, FetchRound, PartitionKey
from ottla.config.broker import BrokerConfig
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

#: The replica id in versions that name the replica elsewhere.
CONSUMER = -1


@dataclass(frozen=True, slots=True)
class ReplicaFetcherSettings:
    """The settings `replica.fetch.…` and `replica.socket.timeout.ms`."""

    max_bytes: int
    response_max_bytes: int
    min_bytes: int
    max_wait_ms: int
    backoff_ms: int
    timeout_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> ReplicaFetcherSettings:
        """The settings of a broker."""
        return cls(
            config.get_int("replica.fetch.max.bytes"),
            config.get_int("replica.fetch.response.max.bytes"),
            config.get_int("replica.fetch.min.bytes"),
            config.get_int("replica.fetch.wait.max.ms"),
            config.get_int("replica.fetch.backoff.ms"),
            config.get_int("replica.socket.timeout.ms"),
        )


def fetch_request(
    fetch_round: FetchRound,
    settings: ReplicaFetcherSettings,
    topic_id_of: Callable[[PartitionKey], UUID],
    broker_id: int,
    broker_epoch: int,
    max_bytes_of: Callable[[PartitionKey], int] | None = None,
    most_wait_ms: int | None = None,
) -> FetchRequest:
    """The request of a round: topics by ids, with the replica's state, or in older versions by names.

    `max_bytes_of` says how many bytes of a partition are asked for, where a quota limits some; `most_wait_ms` is given
    where the leader is not to wait as long as usual, since partitions are left out that may be asked for sooner.
    """
    by_id = fetch_round.with_topic_ids
    wait_ms = settings.max_wait_ms if most_wait_ms is None else min(settings.max_wait_ms, most_wait_ms)
    topics: list[FetchTopic] = []
    by_name: dict[str, FetchTopic] = {}
    for key, (leader_epoch, hosted) in fetch_round.changed.items():
        name = key[0]
        topic_id = topic_id_of(key) if by_id else NO_TOPIC_ID
        topic = by_name.get(name)
        if topic is None or topic.topic_id != topic_id:
            topic = by_name[name] = FetchTopic(topic="" if by_id else name, topic_id=topic_id, partitions=[])
            topics.append(topic)
        topic.partitions.append(
            FetchPartition(
                partition=key[1],
                current_leader_epoch=leader_epoch,
                fetch_offset=hosted.end_offset,
                last_fetched_epoch=hosted.last_epoch,
                log_start_offset=hosted.start_offset,
                partition_max_bytes=settings.max_bytes if max_bytes_of is None else max_bytes_of(key),
            )
        )
    forgotten: dict[tuple[str, UUID], ForgottenTopic] = {}
    for key, old_id in fetch_round.forgotten:
        name, topic_id = ("", old_id) if by_id else (key[0], NO_TOPIC_ID)
        leaving = forgotten.setdefault((name, topic_id), ForgottenTopic(topic=name, topic_id=topic_id, partitions=[]))
        leaving.partitions.append(key[1])
    return FetchRequest(
        replica_id=CONSUMER if by_id else broker_id,
        replica_state=ReplicaState(replica_id=broker_id, replica_epoch=broker_epoch) if by_id else ReplicaState(),
        max_wait_ms=0 if fetch_round.is_partial else wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.response_max_bytes,
        session_id=fetch_round.session_id,
        session_epoch=fetch_round.session_epoch,
        topics=topics,
        forgotten_topics_data=list(forgotten.values()),
    )


def list_offsets_request(epochs: Mapping[PartitionKey, int], timestamp: int, broker_id: int) -> ListOffsetsRequest:
    """The request for the ends or starts of the leader's logs."""
    topics: dict[str, ListOffsetsTopic] = {}
    for (name, index), leader_epoch in epochs.items():
        topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
        topic.partitions.append(
            ListOffsetsPartition(partition_index=index, current_leader_epoch=leader_epoch, timestamp=timestamp)
        )
    return ListOffsetsRequest(replica_id=broker_id, topics=list(topics.values()))
