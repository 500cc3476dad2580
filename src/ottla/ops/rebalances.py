"""Causes of rebalances: the evidence that an ottla coordinator writes to `__ottla_rebalances`, read over the wire.

The record format is described in `docs/rebalances.md`. Apache Kafka writes no such evidence.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.client.errors import OffsetOutOfRange, UnknownTopicError
from ottla.client.fetcher import RangeFetcher
from ottla.client.model import EARLIEST, LATEST, TopicPartition
from ottla.client.offsets import offsets_at
from ottla.groups.evidence import EVIDENCE_TOPIC
from ottla.peer.cluster import Cluster
from ottla.records.errors import BatchError
from ottla.records.record import Record, decode_batch

WINDOW_RECORDS = 1_000
"""Offsets read per step, from the end backwards, in the search for a group's last rebalances."""

CAUSE_WORDS: Mapping[str, str] = {
    "member_joined": "{who} joined",
    "member_left": "{who} left",
    "session_expired": "{who} was not heard of for its session timeout",
    "rebalance_timeout": "{who} did not join again in time",
    "sync_timeout": "{who} did not ask for its assignment in time",
    "subscription_changed": "{who} subscribed to other topics",
    "partitions_given_up": "{who} gave partitions up for others",
    "metadata_changed": "{who} changed its metadata",
    "partitions_added": "partitions were added to a topic",
    "topic_created": "a topic was created",
    "topic_deleted": "a topic was deleted",
    "leader_rejoined": "the leader, {who}, asked for it",
    "static_member_replaced": "static member {who} was replaced",
    "assignment_not_written": "the assignment could not be written",
    "coordinator_moved": "the coordinator of the group moved",
    "rebalance_requested": "a client outside the group asked for it",
    "group_too_large": "the group has too many members",
}


@dataclass(slots=True, frozen=True)
class RebalanceRecord:
    """The evidence of one rebalance: `value` is the JSON object of the record."""

    value: dict[str, Any]

    @property
    def group(self) -> str:
        """The group id."""
        return str(self.value["group"])

    @property
    def started_at_ms(self) -> int:
        """When it started, in milliseconds since the Unix epoch."""
        return int(self.value["started_at_ms"])

    @property
    def longest_pause_ms(self) -> int:
        """The longest pause of a member."""
        return max((each.get("pause_ms") or 0 for each in self.value["members"]), default=0)


def parse_rebalance(value: bytes) -> RebalanceRecord | None:
    """Parse a record's value; None if it is not evidence: anybody may write to a topic."""
    try:
        evidence = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(evidence, dict):
        return None
    return RebalanceRecord(evidence) if _is_well_formed(evidence) else None


_NUMBERS = (
    *("generation", "previous_generation", "started_at_ms", "duration_ms"),
    *("cause_count", "member_count", "moved_count", "kept_count"),
)
_MEMBER_NUMBERS = (
    *("told_at_ms", "joined_at_ms", "synced_at_ms", "answered_at_ms", "pause_ms"),
    *("partitions_before", "partitions_after", "partitions_kept", "partitions_gained", "partitions_given_up"),
)


def _is_well_formed(evidence: dict[str, Any]) -> bool:
    """Whether the fields that are displayed have the right types."""
    lists = [evidence.get(name) for name in ("causes", "members", "removed", "moved")]
    if not all(isinstance(each, list) and all(isinstance(one, dict) for one in each) for each in lists):
        return False
    causes, members, removed, moved = evidence["causes"], evidence["members"], evidence["removed"], evidence["moved"]
    return (
        all(isinstance(evidence.get(name), int) for name in _NUMBERS)
        and all(isinstance(evidence.get(name), str) for name in ("group", "outcome"))
        and all(isinstance(evidence.get(name), int | None) for name in ("joined_at_ms", "stable_at_ms"))
        and all(isinstance(evidence.get(name), str | None) for name in ("assignor", "leader"))
        and all(isinstance(each.get("member_id"), str) for each in (*causes, *members, *removed))
        and all(isinstance(each.get(name), int | None) for each in members for name in _MEMBER_NUMBERS)
        and all(isinstance(each.get("topic"), str) and isinstance(each.get("partition"), int) for each in moved)
        and all(isinstance(each.get(name), str | None) for each in moved for name in ("from", "to"))
    )


def cause_in_words(cause: Mapping[str, Any], who: str) -> str:
    """Describe one of `causes` as a phrase about the member `who`."""
    name = str(cause.get("cause"))
    return CAUSE_WORDS.get(name, name.replace("_", " ").replace("{", "(").replace("}", ")") + " ({who})").format(
        who=who or "a member"
    )


class RebalanceLog:
    """The evidence of a cluster's rebalances. `follow` continues where `last` or its previous call ended."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._positions: dict[TopicPartition, int] = {}

    async def is_there(self) -> bool:
        """Whether the cluster has evidence: its topic is created at the first rebalance, and never by Apache Kafka."""
        return bool(await self._partitions())

    async def last(self, group: str, count: int, generation: int | None = None) -> list[RebalanceRecord]:
        """Return the last `count` rebalances of a group, oldest first; with `generation`, only those that led to it."""
        partitions = await self._partitions()
        starts = await offsets_at(self._cluster, partitions, EARLIEST)
        found: list[RebalanceRecord] = []
        for partition, end in (await offsets_at(self._cluster, partitions, LATEST)).items():
            found += await self._last_of(partition, starts[partition], end, group, count, generation)
        found.sort(key=lambda each: each.started_at_ms)
        return found[-count:]

    async def _last_of(
        self, partition: TopicPartition, start: int, end: int, group: str, count: int, generation: int | None
    ) -> list[RebalanceRecord]:
        key = group.encode()
        found: deque[RebalanceRecord] = deque()
        while end > start and len(found) < count:
            begin = max(start, end - WINDOW_RECORDS)
            window: deque[RebalanceRecord] = deque(maxlen=count - len(found))
            async for record in _records(self._cluster, partition, begin, end):
                if record.key == key:
                    evidence = _parsed([record])
                    window.extend(each for each in evidence if generation in (None, each.value["generation"]))
            found.extendleft(reversed(window))
            end = begin
        return list(found)

    async def skip_to_end(self) -> None:
        """Make `follow` start at the current end."""
        self._positions = await offsets_at(self._cluster, await self._partitions(), LATEST)

    async def follow(self) -> list[RebalanceRecord]:
        """Return the evidence written since the last call, ordered by the start of the rebalances."""
        partitions = await self._partitions()
        starts = await offsets_at(self._cluster, partitions, EARLIEST)
        fresh: list[RebalanceRecord] = []
        for partition, end in (await offsets_at(self._cluster, partitions, LATEST)).items():
            position = self._positions.get(partition, 0)
            if not starts[partition] <= position <= end:  # retention deleted it, or the topic was created again
                position = starts[partition]
            fresh += _parsed([each async for each in _records(self._cluster, partition, position, end)])
            self._positions[partition] = end
        return sorted(fresh, key=lambda each: each.started_at_ms)

    async def _partitions(self) -> list[TopicPartition]:
        self._cluster.metadata.expire([EVIDENCE_TOPIC])
        try:
            (topic,) = await self._cluster.retry(
                f"looking up {EVIDENCE_TOPIC}", lambda: self._cluster.topics([EVIDENCE_TOPIC])
            )
        except UnknownTopicError:
            return []
        return [TopicPartition(EVIDENCE_TOPIC, each.partition) for each in topic.partitions]


def _parsed(records: Iterable[Record]) -> list[RebalanceRecord]:
    parsed = [parse_rebalance(record.value) for record in records if record.value is not None]
    return [each for each in parsed if each is not None]


async def _records(cluster: Cluster, partition: TopicPartition, start: int, end: int) -> AsyncIterator[Record]:
    """Yield the records in a range of offsets, as far as they (still) exist and are intact."""
    fetcher = RangeFetcher(cluster, partition, start, end)
    try:
        while (fetched := await fetcher.next()) is not None:
            for header in fetched.headers:
                for record in decode_batch(fetched.buffer, header):
                    if start <= record.offset < end:
                        yield record
    except (OffsetOutOfRange, BatchError):
        return
    finally:
        await fetcher.close()
