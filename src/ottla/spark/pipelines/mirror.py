"""Mirror: every record of a topic to the same partition of a topic of another cluster, in the same order.

Key, value, headers and timestamp are kept. A batch that is run again after a crash is sent again: at least once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.spark.connection import BOOTSTRAP, ConnectionOptions, connect
from ottla.spark.pipelines.config import PipelineConfig, PipelineConfigError, read_stream, write_stream

if TYPE_CHECKING:
    from pyspark.sql.session import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConfig(PipelineConfig):
    """`target_bootstrap_servers` is the other cluster; `target_topic` defaults to the name of the source's topic."""

    target_bootstrap_servers: str
    target_topic: str | None = None


def start(spark: SparkSession, config: MirrorConfig) -> StreamingQuery:
    """Start the query, after making the target topic where it is missing. Raises PipelineConfigError."""
    topic = config.target_topic or config.topic
    _prepare_target(config, topic)
    records = read_stream(spark, config, include_headers=True)
    rows = records.select("key", "value", "headers", "partition", "timestamp")
    return (
        write_stream(rows, config, "mirror")
        .format("ottla")
        .option(BOOTSTRAP, config.target_bootstrap_servers)
        .option("topic", topic)
        .outputMode("append")
        .start()
    )


def _prepare_target(config: MirrorConfig, topic: str) -> None:
    with connect(ConnectionOptions(config.bootstrap_servers)) as source:
        wanted = len(source.partitions([config.topic])[config.topic])
    with connect(ConnectionOptions(config.target_bootstrap_servers)) as target:
        if topic not in target.topics():
            target.create_topic(topic, wanted)
            return
        found = len(target.partitions([topic])[topic])
    if found < wanted:
        raise PipelineConfigError(
            f"topic {topic} of {config.target_bootstrap_servers} has {found} partitions, {config.topic} has {wanted}; "
            "add partitions to it or mirror to another topic"
        )
