"""The same queries by our source and by Spark's own connector, on our broker and on Apache Kafka: equal rows."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from interop.spark.queries import QUERIES, REFUSED, Query, Topics, rows
from interop.spark.sides import OFFICIAL, OURS
from ottla.peer.errors import UnknownTopicError
from ottla.spark.errors import OptionError
from ottla.spark.source.data_source import OttlaDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.apache import ApacheKafka
    from support.ottla_server import OttlaServer

pytestmark = [pytest.mark.needs_connector, pytest.mark.needs_kafka]


@pytest.fixture(scope="module")
def topics(shared_ottla_server: OttlaServer, apache_kafka: ApacheKafka) -> Topics:
    """The same topics on both brokers."""
    made = Topics("equal-rows")
    made.fill(shared_ottla_server)
    made.fill(apache_kafka)
    return made


@pytest.mark.spec("D1", "D2")
@pytest.mark.parametrize(
    "query", [pytest.param(each, id=each.name, marks=[pytest.mark.long] if each.is_long else []) for each in QUERIES]
)
def test_our_broker_gives_both_connectors_the_rows_of_apache_kafka(
    spark: SparkSession, shared_ottla_server: OttlaServer, apache_kafka: ApacheKafka, topics: Topics, query: Query
) -> None:
    options = query.options(topics)
    expected = rows(spark, OFFICIAL, apache_kafka, options)
    assert expected.num_rows == query.rows
    served = rows(spark, OFFICIAL, shared_ottla_server, options)
    assert rows(spark, OURS, shared_ottla_server, options).equals(served)
    if query.is_stamped:
        served, expected = served.drop_columns("timestamp"), expected.drop_columns("timestamp")
    assert served.equals(expected)


@pytest.mark.long
@pytest.mark.spec("D1")
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_apache_kafka_gives_both_connectors_the_same_rows(
    spark: SparkSession, apache_kafka: ApacheKafka, topics: Topics, query: Query
) -> None:
    options = query.options(topics)
    assert rows(spark, OURS, apache_kafka, options).equals(rows(spark, OFFICIAL, apache_kafka, options))


@pytest.mark.spec("D1", "D2")
def test_options_that_cannot_be_had_are_refused(shared_ottla_server: OttlaServer, topics: Topics) -> None:
    taken = []
    for name, options in REFUSED.items():
        source = OttlaDataSource({"kafka.bootstrap.servers": shared_ottla_server.bootstrap} | options(topics))
        with suppress(OptionError, UnknownTopicError):
            source.reader(source.schema()).partitions()
            taken.append(name)
    assert taken == []


@pytest.mark.long
@pytest.mark.spec("D1", "D2")
@pytest.mark.parametrize("connector", [OURS, OFFICIAL])
def test_both_connectors_refuse_the_same_options(
    spark: SparkSession, shared_ottla_server: OttlaServer, topics: Topics, connector: str
) -> None:
    taken = []
    for name, options in REFUSED.items():
        # Each side has its own kinds of errors.
        with suppress(Exception):
            rows(spark, connector, shared_ottla_server, options(topics))
            taken.append(name)
    assert taken == []
