"""Makes the archive of classes of Apache Kafka's programs: `python -m support.class_archive`, which `./run` calls.

A JVM that maps it takes about half the processor time to start (class data sharing, JEP 310). `support.java` uses it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from support.apache import ApacheKafka, ApacheZooKeeper
from support.java import (
    CLASS_ARCHIVE,
    GROUP_TOOL,
    QUICK_START,
    TOOL_TIMEOUT_S,
    archive_made_of,
    class_archive,
    java_command,
    java_executable,
    kafka_libs,
)
from support.processes import run_tool

#: A program from its source: the compiler's classes.
SOURCE = Path(__file__).resolve().parents[1] / "golden" / "wire" / "ErrorCodes.java"
TOOLS = (
    ("org.apache.kafka.tools.TopicCommand", "--create", "--topic", "t", "--partitions", "2"),
    ("org.apache.kafka.tools.TopicCommand", "--list"),
    (GROUP_TOOL, "--list"),
    ("kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics"),
    ("kafka.tools.ConsoleProducer", "--topic", "t"),
    (
        *("org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", "t", "--group", "g", "--from-beginning"),
        *("--max-messages", "1", "--timeout-ms", "20000"),
    ),
)


def main() -> int:
    """Make it unless it is there, or Java or the jars are not; 1 where that fails. Tests run without it, too."""
    if java_executable() is None or kafka_libs() is None or class_archive() is not None:
        return 0
    print("run: making an archive of Java's classes, with which Java starts faster", file=sys.stderr, flush=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder))
    except AssertionError as failed:
        print(f"run: it could not be made: {str(failed)[:500]}", file=sys.stderr)
        return 1
    return 0


def make(folder: Path) -> None:
    """Run a few of the programs in `folder`, and archive what they load."""
    lists = list(class_lists(folder))
    seen: dict[str, None] = {}
    for path in lists:
        seen |= dict.fromkeys(line for line in path.read_text().splitlines() if not line.startswith("#"))
    together = folder / "all.classlist"
    together.write_text("\n".join(seen) + "\n")
    dumped = folder / "classes.jsa"
    options = (
        "-Xshare:dump",
        "-Xlog:cds=off",
        f"-XX:SharedClassListFile={together}",
        f"-XX:SharedArchiveFile={dumped}",
    )
    run_tool(java_command(options=(*options, "-Xmx512m")), timeout_s=TOOL_TIMEOUT_S)
    CLASS_ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    ready = CLASS_ARCHIVE.with_suffix(".new")
    ready.write_bytes(dumped.read_bytes())
    ready.rename(CLASS_ARCHIVE)
    CLASS_ARCHIVE.with_suffix(".made-of").write_text(archive_made_of())


def class_lists(folder: Path) -> Iterable[Path]:
    """The lists of what servers, tools and a program from source load."""

    def listed(name: str) -> tuple[str, ...]:
        return (*QUICK_START, f"-XX:DumpLoadedClassList={folder / name}.classlist")

    zookeeper = ApacheZooKeeper(folder / "zookeeper", jvm_options=listed("zookeeper"))
    kafka = ApacheKafka(folder / "kafka", zookeeper=zookeeper, jvm_options=listed("kafka"))
    try:
        zookeeper.start()
        kafka.start()
        for number, tool in enumerate(TOOLS):
            command = java_command(*tool, "--bootstrap-server", kafka.bootstrap, options=listed(f"tool-{number}"))
            run_tool(command, stdin="a line\n", timeout_s=TOOL_TIMEOUT_S)
        run_tool(java_command(str(SOURCE), options=listed("source")), timeout_s=TOOL_TIMEOUT_S)
    finally:
        kafka.stop()
        zookeeper.stop()
    return sorted(folder.glob("*.classlist"))


if __name__ == "__main__":
    sys.exit(main())
