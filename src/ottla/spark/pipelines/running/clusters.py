"""The clusters that a pipeline reads, for looks from outside of its query: which topics, as which group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.spark.connection import connect
from ottla.spark.pipelines.settings.model import PipelineSettings
from ottla.spark.source.options import ReadOptions, parse_read_options

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


def read_clusters(settings: PipelineSettings) -> list[ReadCluster]:
    """What the pipeline reads, in the order of its file. Raises PipelineSettingsError."""
    if settings.mirror is not None:
        from ottla.spark.pipelines.mirroring.start import reading_options

        options = reading_options(settings.mirror)
        return [ReadCluster(settings.mirror.source_alias, settings.mirror.group_id, options)]
    from ottla.spark.pipelines.queries.sources import read_options

    return [
        ReadCluster(each.name, each.group_id, read_options(each, schema=each.schema, starting=each.starting_offsets))
        for each in settings.sources
    ]
