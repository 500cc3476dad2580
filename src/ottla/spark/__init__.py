"""Spark without jars: a source and a sink for Kafka-compatible clusters, a local session, and three pipelines.

    import ottla.spark
    spark = ottla.spark.session("my query")
    spark.readStream.format("ottla").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "flights")

Any other session finds the format by itself (`pyspark_ottla`). On a cluster of many machines, ottla must be installed
where the tasks run.
"""

from __future__ import annotations

from ottla.spark.errors import in_spark_worker
from ottla.spark.local import register, session

__all__ = ["register", "session"]

if in_spark_worker():
    from ottla.spark.worker_memory import give_back

    give_back()
