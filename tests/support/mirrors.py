"""The counts of a mirror, as the topic of offset syncs keeps them."""

from __future__ import annotations

from ottla.client.model import TopicPartition
from ottla.spark.pipelines.mirroring.copying import names_of
from ottla.spark.pipelines.mirroring.ends import source_of
from ottla.spark.pipelines.mirroring.synced import MirrorCounts, SyncStore
from ottla.spark.pipelines.settings.model import MirrorSettings


def read_counts(mirror: MirrorSettings) -> dict[TopicPartition, MirrorCounts]:
    """By partition of the source; those without a record are left out. Raises ClientError."""
    store = SyncStore(names_of(mirror).offset_syncs_topic)
    with source_of(mirror).client() as client:
        store.refresh(client)
    return store.counts
