"""A mirror to its end: `settings.json` is the first argument, the address of a Spark Connect server the second."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from ottla.spark.pipelines.mirroring.start import start_mirror
from ottla.spark.pipelines.settings.model import MirrorSettings, PipelineKind, PipelineSettings, TriggerSettings

given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
builder = SparkSession.builder.appName("mirror")
spark = builder.remote(sys.argv[2]).getOrCreate() if len(sys.argv) > 2 else builder.getOrCreate()
settings = PipelineSettings(
    name="mirror",
    kind=PipelineKind.mirror,
    checkpoint=given["checkpoint"],
    trigger=TriggerSettings(available_now=True),
    mirror=MirrorSettings(**given["mirror"]),
)
query = start_mirror(spark, settings)
query.awaitTermination()
print("mirrored", flush=True)
spark.stop()
