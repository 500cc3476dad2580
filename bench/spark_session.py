"""A Spark session with one of the two connectors, driven by `bench/spark.py`: not run by hand.

    python bench/spark_session.py CONNECTOR FOLDER BOOTSTRAP [JARS]

Each line of standard input is a JSON object that names a query of `spark_queries.py` and its arguments; each gets a
line of JSON on standard output with the seconds it took and what it gave. Both connectors run with the same settings,
Spark's own apart from the memory and what a quiet log needs.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from spark_floor import FLOOR_FORMAT, ConstantSource
from spark_queries import OTTLA_FORMAT, QUERIES, Connector

DRIVER_MEMORY = "1g"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    # Idle triggers are measured, too.
    "spark.sql.streaming.noDataProgressEventInterval": "0",
    "spark.sql.streaming.numRecentProgressUpdates": "5000",
}


def make_session(folder: Path, jars: str | None) -> SparkSession:
    """A session on two cores."""
    builder = SparkSession.builder.master("local[2]").appName("bench")
    settings = SETTINGS | {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    if jars is not None:
        settings["spark.jars"] = jars
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    """Serve queries until the input ends."""
    connector, folder, bootstrap, *jars = sys.argv[1:]
    replies = sys.stdout
    sys.stdout = sys.stderr
    spark = make_session(Path(folder), jars[0] if jars else None)
    spark.sparkContext.setLogLevel("ERROR")
    if connector == OTTLA_FORMAT:
        import ottla.spark

        ottla.spark.register(spark)
    elif connector == FLOOR_FORMAT:
        spark.dataSource.register(ConstantSource)
    replies.write(json.dumps({"ready": spark.version}) + "\n")
    replies.flush()
    for line in sys.stdin:
        arguments = json.loads(line)
        query = QUERIES[arguments.pop("query")]
        began_s = time.perf_counter()
        found = query(Connector(spark, connector, bootstrap, Path(folder)), **arguments)
        seconds = time.perf_counter() - began_s
        replies.write(json.dumps({"seconds": seconds, "found": found}) + "\n")
        replies.flush()
    spark.stop()


if __name__ == "__main__":
    main()
