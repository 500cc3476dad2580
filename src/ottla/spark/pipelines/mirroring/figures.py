"""How many records a mirror has sent, and how many of them again: read from the topic of offset syncs, so that no
process of the mirror needs to live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.model import TopicPartition
from ottla.spark.pipelines.mirroring.copying import names_of
from ottla.spark.pipelines.mirroring.ends import source_of
from ottla.spark.pipelines.mirroring.synced import MirrorFigures, SyncStore

if TYPE_CHECKING:
    from ottla.spark.pipelines.settings.model import MirrorSettings


def read_figures(mirror: MirrorSettings) -> dict[TopicPartition, MirrorFigures]:
    """By partition of the source; those without a record are left out. Raises ClientError."""
    store = SyncStore(names_of(mirror).offset_syncs_topic)
    with source_of(mirror).client() as client:
        store.refresh(client)
    return store.figures
