"""A client of Spark Connect: the query runs on the server, the listener here.

python connect.py sc://host:15002 127.0.0.1:9092 readings archive
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from ottla.spark.listening import listen

remote, servers, topic, archive = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
options = {
    "kafka.bootstrap.servers": servers,
    "subscribe": topic,
    "startingOffsets": "earliest",
    "kafka.group.id": "archive",
}
with listen(spark, {"archive": options}, show=print) as listener:
    readings = spark.readStream.format("ottla").options(**options).load()
    values = readings.selectExpr("partition", "offset", "cast(value as string) as value")
    writer = values.writeStream.format("parquet").option("path", f"{archive}/rows")
    writer = writer.option("checkpointLocation", f"{archive}/checkpoint").queryName("archive")
    writer.trigger(availableNow=True).start().awaitTermination()
print(listener.report())
print(f"{spark.read.parquet(f'{archive}/rows').count()} rows in the archive")
spark.stop()
