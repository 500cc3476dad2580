"""Topics that were deleted and created again while a consumer reads them: their id shows it, and it is logged."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable

from ottla.client.consumer.subscription_state import OffsetReset
from ottla.peer.cluster import Cluster

log = logging.getLogger(__name__)


class RecreatedTopics:
    """Call `note` after each metadata response for the topics to read.

    As in Java's consumer, positions stay. They are validated when leader or epoch differ (KIP-320), and are reset where
    the new log ends before them.
    """

    def __init__(self, cluster: Cluster, default_reset: OffsetReset) -> None:
        self._cluster = cluster
        self._default_reset = default_reset
        #: The last id of each topic to read, also while it does not exist.
        self._ids: dict[str, uuid.UUID] = {}

    def note(self, topics: Iterable[str]) -> None:
        """Compare the ids with those of the last responses that had the topics; log what changed."""
        before, self._ids = self._ids, {}
        for name in topics:
            known = self._cluster.metadata.topics.get(name)
            former = before.get(name)
            topic_id = former if known is None or known.topic_id is None else known.topic_id
            if topic_id is None:
                continue
            self._ids[name] = topic_id
            if former is not None and topic_id != former:
                log.warning(
                    "topic %s was deleted and created again (its id was %s and is %s). The positions of this consumer "
                    "and the offsets it commits are still those of the deleted topic: new records before them are not "
                    "read, and where the new log ends before them auto.offset.reset=%s decides. Call "
                    "seek_to_beginning() to read the new topic from its beginning",
                    name,
                    former,
                    topic_id,
                    self._default_reset.value,
                )
