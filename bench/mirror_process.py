"""A mirror pipeline in a process of its own, for bench/mirror.py: settings.json is its argument."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ottla.spark
from ottla.spark.pipelines.mirroring.start import start_mirror
from ottla.spark.pipelines.settings.model import MirrorSettings, PipelineKind, PipelineSettings, TriggerSettings


def main() -> None:
    """Run until killed."""
    path = Path(sys.argv[1])
    folder = path.parent
    spark = ottla.spark.session("mirror", cores=2, folder=folder / "spark", log_file=folder / "spark.log")
    settings = PipelineSettings(
        name="mirror",
        kind=PipelineKind.mirror,
        checkpoint=str(folder / "checkpoint"),
        trigger=TriggerSettings(interval_ms=1_000),
        mirror=MirrorSettings(**json.loads(path.read_text(encoding="utf-8"))),
    )
    start_mirror(spark, settings).awaitTermination()


if __name__ == "__main__":
    main()
