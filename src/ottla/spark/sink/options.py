"""Options of writing with `format("ottla")`: the names of Spark's own Kafka sink, checked before anything is sent.

Each problem is an `OptionError` that names the option and the cure. Source: Spark's Structured Streaming + Kafka
integration guide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.spark.connection import CONNECTION_OPTIONS, NOT_SERVED, ConnectionOptions, parse_producer_connection
from ottla.spark.errors import OptionError
from ottla.spark.options import SparkOptions

OF_EVERY_STREAM = ("checkpointLocation", "queryName")
"""Options of every streaming write, which Spark hands on to the sink."""

WRITE_OPTIONS = (*CONNECTION_OPTIONS, "topic", "includeHeaders", *OF_EVERY_STREAM)

DEFAULTS = {
    # A task has all its rows at hand.
    "batch.size": str(128 * 1024),
    "linger.ms": "5",
}
"""Settings of the producer that differ from Kafka's, unless `kafka.` options say otherwise."""


_NOT_SERVED = NOT_SERVED | dict.fromkeys(
    ("path", "subscribe", "subscribePattern", "assign"), "name the topic with topic, or in a column of that name"
)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Checked options of a writer. `topic`, where given, wins over the column of that name."""

    connection: ConnectionOptions
    topic: str | None = None


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write. Raises OptionError."""
    checked = SparkOptions(options, WRITE_OPTIONS, "writing", _NOT_SERVED)
    topic = checked.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("option topic is empty; name a topic, or leave it out and write a column topic")
    checked.boolean("includeHeaders", default=False)
    return WriteOptions(parse_producer_connection(checked, DEFAULTS), topic)
