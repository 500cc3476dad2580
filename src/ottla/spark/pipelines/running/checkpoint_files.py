"""How Spark's Java writes a checkpoint in a local folder: with one program for each file, not many.

Spark's own checkpoint file manager (`FileContextBasedCheckpointFileManager`) runs `chmod` and `readlink` several times
for each small file and its checksum, which is most of the time that a batch spends on its checkpoint. The other one, on
Hadoop's plain local files, runs one `chmod`. In both a file is written under another name, then renamed; the plain
files have no checksums (`.crc`) beside them, and each manager reads what the other has written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.spark.pipelines.settings.model import PipelineSettings
from ottla.spark.pipelines.tables.filesystems import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_FILES: Final = "spark.hadoop.fs.file.impl"
_BY_FILE_SYSTEM = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_PLAIN_FILES = "org.apache.hadoop.fs.RawLocalFileSystem"


def conf_of_checkpoint(settings: PipelineSettings, *, java_computes: bool) -> dict[str, str]:
    """The Spark settings for the checkpoint.

    Empty where the checkpoint is not local, `[spark.conf]` sets one of them, or Java may need Hadoop's local files with
    checksums: for RocksDB's state, where rows go through Java, and for other file systems that `[spark.conf]` names.
    """
    mine, own = {FILE_MANAGER: _BY_FILE_SYSTEM, LOCAL_FILES: _PLAIN_FILES}, settings.spark.conf
    is_possible = not java_computes and all(map(is_local, (settings.checkpoint, *own.values())))
    return mine if is_possible and not mine.keys() & own.keys() else {}


def use_if_known(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Go back to Spark's own way where this Spark has no such class. `conf` is what `conf_of_checkpoint` gave."""
    if FILE_MANAGER not in conf:
        return
    from py4j.protocol import Py4JJavaError

    loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    try:
        loader.loadClass(conf[FILE_MANAGER])
    except Py4JJavaError:
        spark.conf.unset(FILE_MANAGER)
