"""The Java runtime and Apache Kafka's jars, which judge what we write and speak."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from support.processes import run_tool

PROJECT = Path(__file__).resolve().parents[2]
OLDEST_JAVA = 17
TOOL_TIMEOUT_S = 180.0
#: Apache Kafka's tool for groups; it waits five seconds for an answer unless it is started with another time.
GROUP_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
#: Short-lived processes: the quick compiler only, classes shared with the runtime's archive, a small heap.
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m")
#: Classes of Apache Kafka's programs as a JVM maps them, made by `support.class_archive`; `.made-of` beside it.
CLASS_ARCHIVE = PROJECT / ".cache" / "java-classes.jsa"


@cache
def java_executable() -> str | None:
    """The path of a Java 17 or newer: of JAVA_HOME, else of the search path; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home, "bin", "java"))] if home else []
    on_path = shutil.which("java")
    candidates += [on_path] if on_path else []
    return next((java for java in candidates if java_version(java) >= OLDEST_JAVA), None)


def java_version(java: str) -> int:
    """The major version of the runtime at path `java`; 0 if it does not run."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=240, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(\d+)(?:\.(\d+))?', told)
    if match is None:
        return 0
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major


def kafka_libs() -> Path | None:
    """The folder with the jars of Apache Kafka 3.9.1 (`OTTLA_KAFKA_LIBS`, else `.cache/kafka-libs`), or None."""
    folder = Path(os.environ.get("OTTLA_KAFKA_LIBS") or PROJECT / ".cache" / "kafka-libs")
    return folder if next(folder.glob("kafka_2.13-*.jar"), None) else None


def older_libs() -> Path | None:
    """The folder with Apache Kafka's clients of all ages (`OTTLA_KAFKA_OLDER`, else `.cache/kafka-older`), or None."""
    folder = Path(os.environ.get("OTTLA_KAFKA_OLDER") or PROJECT / ".cache" / "kafka-older")
    return folder if next(folder.glob("kafka-clients-*.jar"), None) else None


def spark_connector() -> list[Path]:
    """The jars of Spark's own Kafka connector (in `OTTLA_SPARK_KAFKA`, else `.cache/spark-kafka`); none if missing."""
    folder = Path(os.environ.get("OTTLA_SPARK_KAFKA") or PROJECT / ".cache" / "spark-kafka")
    return sorted(folder.glob("*.jar"))


def zookeeper_082_libs() -> Path | None:
    """The same folder, where it has what the programs of 0.8.2.2 need that go to ZooKeeper; or None."""
    folder = older_libs()
    needed = ("zookeeper-3.4.6.jar", "jopt-simple-3.2.jar")
    return folder if folder is not None and all((folder / name).exists() for name in needed) else None


def streams_libs() -> Path | None:
    """The folder with Kafka Streams and Connect's file connectors, or None.

    It is `OTTLA_KAFKA_STREAMS`, else `.cache/kafka-streams`.
    """
    folder = Path(os.environ.get("OTTLA_KAFKA_STREAMS") or PROJECT / ".cache" / "kafka-streams")
    return folder if next(folder.glob("kafka-streams-*.jar"), None) else None


#: What clients need beside their own jar; of lz4 the older ones need one of their time.
_BESIDE_CLIENTS = ("slf4j-api-", "slf4j-reload4j-", "reload4j-", "snappy-java-", "zstd-jni-", "lz4-java-")
_SCALA_CLIENT = (
    "kafka_2.11-0.8.2.2",
    "scala-library-2.11",
    "scala-parser-combinators_2.11",
    "zkclient-0.3",
    "zookeeper-3.4.6",
    "jopt-simple-3.2",
)


def older_client_command(version: str, *arguments: str, classes: Path | None = None) -> list[str]:
    """The command line that runs `arguments` with the clients of that version of Apache Kafka; 0.8.2.2 has Scala's.

    `classes` is a folder with compiled classes of the test's own.
    """
    java, libs, older = java_executable(), kafka_libs(), older_libs()
    if java is None or libs is None or older is None:
        raise AssertionError("Java or Apache Kafka's jars are missing; mark the test needs_older")
    jars = [*([classes] if classes is not None else []), older / f"kafka-clients-{version}.jar"]
    if version.startswith(("0.8", "0.9")):
        jars.append(older / "lz4-1.2.0.jar")
    elif version.startswith(("0.10", "0.11", "1.0")):
        jars.append(older / "lz4-1.3.0.jar")
    if version.startswith("0.8"):
        jars += [jar for name in _SCALA_CLIENT for jar in older.glob(f"{name}*.jar")]
        jars += libs.glob("metrics-core-2*.jar")
    jars += [jar for name in _BESIDE_CLIENTS for jar in sorted(libs.glob(f"{name}*.jar"))]
    log4j = Path(__file__).with_name("kafka") / "log4j.properties"
    classpath = os.pathsep.join(map(str, jars))
    return [java, *QUICK_START, f"-Dlog4j.configuration=file:{log4j}", "-cp", classpath, *arguments]


def kcat_executable() -> str | None:
    """The path of kcat, or None."""
    return shutil.which("kcat") or shutil.which("kafkacat")


def archive_made_of() -> str:
    """What the archive of classes fits: the runtime, and the jars in the order in which Java finds them."""
    java, libs = java_executable(), kafka_libs()
    if java is None or libs is None:
        return ""
    binary = Path(java).resolve()
    files = [binary, *(libs / name for name in os.listdir(libs))]
    return "".join(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}\n" for path in files)


@cache
def class_archive() -> Path | None:
    """The archive of classes, if there is one that fits the runtime and the jars."""
    made_of = CLASS_ARCHIVE.with_suffix(".made-of")
    fits = CLASS_ARCHIVE.exists() and made_of.exists() and made_of.read_text() == archive_made_of()
    return CLASS_ARCHIVE if fits else None


def java_command(*arguments: str, options: tuple[str, ...] = QUICK_START, beside: Path | None = None) -> list[str]:
    """The command line that runs `arguments` (a class and its arguments, or a `.java` file) with Kafka's jars.

    Options that begin with QUICK_START use the archive of classes, too. `beside` is a folder with further jars.
    """
    java, libs = java_executable(), kafka_libs()
    if java is None or libs is None:
        raise AssertionError("Java or Apache Kafka's jars are missing; mark the test needs_kafka")
    if arguments[:1] == (GROUP_TOOL,) and "--timeout" not in arguments:
        arguments = (*arguments, "--timeout", str(int(TOOL_TIMEOUT_S * 1000)))
    archive = class_archive()
    if archive is not None and options[: len(QUICK_START)] == QUICK_START:
        options = (*options, f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off")
    log4j = Path(__file__).with_name("kafka") / "log4j.properties"
    classpath = f"{libs}/*" if beside is None else f"{libs}/*{os.pathsep}{beside}/*"
    return [java, *options, f"-Dlog4j.configuration=file:{log4j}", "-cp", classpath, *arguments]


def java_tool(
    *arguments: str, stdin: str | None = None, timeout_s: float = TOOL_TIMEOUT_S, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run one of Apache Kafka's tools to its end: `java_tool("org.apache.kafka.tools.TopicCommand", "--list", …)`."""
    return run_tool(java_command(*arguments), stdin=stdin, timeout_s=timeout_s, check=check)
