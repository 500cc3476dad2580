"""A job for spark-submit: the records of a topic per key, written to another topic.

spark-submit --master spark://host:7077 submit.py 127.0.0.1:9092 readings counts
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

servers, topic, results = sys.argv[1:]
spark = SparkSession.builder.appName("submit").getOrCreate()
cluster = {"kafka.bootstrap.servers": servers}
readings = spark.read.format("ottla").options(**cluster).option("subscribe", topic).load()
counts = readings.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
counts.write.format("ottla").mode("append").options(**cluster).option("topic", results).save()
print(f"{readings.count()} records of {topic} counted in {results}")
spark.stop()
