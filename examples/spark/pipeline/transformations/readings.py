"""A streaming table of the readings in a topic."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def readings() -> DataFrame:
    """The readings as they come."""
    source = spark.readStream.format("ottla").option("startingOffsets", "earliest")
    source = source.option("kafka.bootstrap.servers", spark.conf.get("example.servers"))
    stream = source.option("subscribe", spark.conf.get("example.topic")).load()
    return stream.selectExpr("partition", "offset", "cast(value as string) as value")
