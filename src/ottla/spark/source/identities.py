"""Topics that were deleted and recreated while a query runs, found by their ids. Pure.

Ids are known as long as the query runs: its checkpoint has no place for them (docs/decisions/0097).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from ottla.client.model import TopicPartition


class TopicIdentities:
    """The ids that topics had, since the query was started."""

    def __init__(self) -> None:
        self._ids: dict[str, set[UUID]] = {}

    def recreated(self, found: Mapping[TopicPartition, UUID | None], read: Collection[TopicPartition]) -> set[str]:
        """The topics with partitions that were `read` whose id is none of those that they had.

        `found` has the ids of now, None where a broker knows none. A new id is accepted once nothing of its topic was
        read. A broker that lags behind may still give an old one.
        """
        topics = {each.topic for each in read}
        remade: set[str] = set()
        for topic, topic_id in {each.topic: topic_id for each, topic_id in found.items()}.items():
            known = self._ids.setdefault(topic, set())
            if topic_id is None or topic_id in known:
                continue
            if known and topic in topics:
                remade.add(topic)
            else:
                known.add(topic_id)
        return remade
