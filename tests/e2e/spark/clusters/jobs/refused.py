"""Reads and writes a topic, and reads its segment files; prints what the user is told of each.

python refused.py 127.0.0.1:9092 TOPIC LOG_DIRECTORY
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from pyspark.sql import SparkSession

BOOTSTRAP = "kafka.bootstrap.servers"

servers, topic, log_dir = sys.argv[1:]
spark = SparkSession.builder.appName("refused").getOrCreate()
options = {BOOTSTRAP: servers, "subscribe": topic}
rows = spark.sql("select 'a' value")
tries: dict[str, Callable[[], object]] = {
    "read": spark.read.format("ottla").options(**options).load().collect,
    "segments": spark.read.format("ottla").options(**options, segments=log_dir).load().collect,
    "write": rows.write.format("ottla").mode("append").options(**{BOOTSTRAP: servers, "topic": topic}).save,
}
for name, run in tries.items():
    try:
        run()
    except Exception as error:
        print(f"<{name}>{error}</{name}>", flush=True)
spark.stop()
