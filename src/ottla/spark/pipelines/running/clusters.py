"""The clusters that a pipeline reads, for looks from outside of its query: which topics, as which group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError
from ottla.spark.connection import connect
from ottla.spark.errors import SparkRefusal
from ottla.spark.pipelines.queries.checkpoint import QueryCheckpoint
from ottla.spark.pipelines.queries.sources import read_options
from ottla.spark.pipelines.settings.model import PipelineSettings
from ottla.spark.source.offsets import Offsets, by_partition
from ottla.spark.source.options import ReadOptions, parse_read_options
from ottla.spark.source.partitions import earliest_offsets, selected_partitions, starting_offsets

if TYPE_CHECKING:
    from ottla.client.sync import Client


@dataclass(frozen=True, slots=True)
class ReadCluster:
    """One source of a pipeline, or the source of a mirror: its name in the file, its options of `format("ottla")`."""

    name: str
    group_id: str
    options: Mapping[str, str]

    def parsed(self) -> ReadOptions:
        """The options, checked. Raises OptionError."""
        return parse_read_options(self.options, streaming=True)

    def client(self, api_timeout_ms: int) -> Client:
        """A client of the cluster; the caller closes it. Raises OptionError."""
        return connect(self.parsed().connection, api_timeout_ms)


def run_start(settings: PipelineSettings, timeout_ms: int) -> Offsets | None:
    """Find a run's first offsets: the newest finished batch's end, else by its settings; None where no broker answers.

    Raises PipelineError for a checkpoint that cannot be read.
    """
    checkpoint = QueryCheckpoint(settings.checkpoint)
    finished = checkpoint.newest_finished()
    batch = None if finished is None else checkpoint.batch(finished)
    found: Offsets = {}
    try:
        for cluster in read_clusters(settings):
            options = cluster.parsed()
            with cluster.client(timeout_ms) as client:
                wanted = list(selected_partitions(client, options.selection))
                found |= earliest_offsets(client, wanted) if batch else starting_offsets(client, wanted, options)
    except (ClientError, SparkRefusal):
        return None
    for source in () if batch is None else batch.sources:
        found |= by_partition(source or {})
    return found


def read_clusters(settings: PipelineSettings) -> list[ReadCluster]:
    """List the clusters read, in the order of the pipeline's file. Raises PipelineSettingsError."""
    if settings.mirror is not None:
        from ottla.spark.pipelines.mirroring.start import reading_options

        options = reading_options(settings.mirror)
        return [ReadCluster(settings.mirror.source_alias, settings.mirror.group_id, options)]

    return [
        ReadCluster(each.name, each.group_id, read_options(each, schema=each.schema, starting=each.starting_offsets))
        for each in settings.sources
    ]
