"""A session of your own: format("ottla") needs no registration.

python session.py 127.0.0.1:9092 readings
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

servers, topic = sys.argv[1:]
spark = SparkSession.builder.appName("session").master("local[2]").getOrCreate()
readings = spark.read.format("ottla").option("kafka.bootstrap.servers", servers).option("subscribe", topic).load()
for row in readings.groupBy("partition").count().orderBy("partition").collect():
    print(f"partition {row.partition}: {row['count']} records")
spark.stop()
