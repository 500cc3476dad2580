"""Topic settings stored beside the records, so that they survive a loss of the coordination metadata.

One file per topic, in the directory of its first partition here. Apache Kafka's `LogLoader` ignores files with unknown
suffixes, so it can still serve the directory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.cluster.ids import format_uuid, parse_uuid
from ottla.env.disk import Disk, DiskError
from ottla.env.executor import Executor, NoThread, one_at_a_time
from ottla.storage.checkpoints import TopicPartitionKey
from ottla.storage.log import PartitionLog

TOPIC_SETTINGS_FILE: Final = "ottla-topic-settings"
#: In the first log directory while topics are adopted: an interrupted adoption is continued.
ADOPTION_FILE: Final = "ottla-adopting"
#: Topics whose files one disk thread writes before other jobs get their turn.
TOPICS_PER_JOB: Final = 100

_VERSION: Final = 1


class TopicSettings(NamedTuple):
    """A topic's id and its own settings."""

    topic_id: UUID
    configs: Mapping[str, str]


def encode_topic_settings(settings: TopicSettings) -> bytes:
    """Encode the file: JSON."""
    document = {
        "version": _VERSION,
        "topic_id": format_uuid(settings.topic_id),
        "config": dict(sorted(settings.configs.items())),
    }
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def decode_topic_settings(data: bytes) -> TopicSettings | None:
    """The settings; None if the file is damaged or of a newer version."""
    try:
        document = json.loads(data)
        if document["version"] != _VERSION:
            return None
        configs = document["config"]
        if not all(isinstance(text, str) for text in (*configs.keys(), *configs.values())):
            return None
        return TopicSettings(parse_uuid(document["topic_id"]), configs)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def read_topic_settings(disk: Disk, directory: str) -> TopicSettings | None:
    """The settings in a partition directory; None if there are none that can be read."""
    path = f"{directory}/{TOPIC_SETTINGS_FILE}"
    try:
        return decode_topic_settings(disk.read_bytes(path)) if disk.exists(path) else None
    except DiskError:
        return None


def copy_topic_settings(disk: Disk, directory: str, to: str) -> None:
    """Copy the settings in a partition directory, if there are any, into another one. Raises DiskError."""
    path = f"{directory}/{TOPIC_SETTINGS_FILE}"
    if disk.exists(path):
        disk.write_atomic(f"{to}/{TOPIC_SETTINGS_FILE}", disk.read_bytes(path))


class AdoptionMark:
    """Marker file in the first log directory: adoption of its topics has begun and is not finished yet."""

    def __init__(self, disk: Disk, log_dir: str) -> None:
        self._disk = disk
        self._path = f"{log_dir}/{ADOPTION_FILE}"

    def is_set(self, cluster_id: str) -> bool:
        """Whether adoption into this cluster was interrupted. Raises DiskError."""
        return self._disk.exists(self._path) and self._disk.read_bytes(self._path) == cluster_id.encode()

    def set(self, cluster_id: str) -> None:
        """Mark the beginning of adoption. Raises DiskError."""
        self._disk.write_atomic(self._path, cluster_id.encode())

    def clear(self) -> None:
        """Mark the end of adoption. Raises DiskError."""
        if self._disk.exists(self._path):
            self._disk.remove(self._path)


class TopicSettingsFiles:
    """Writes the files, in disk threads, some time after a topic was created or its settings were changed.

    `logs` are those of the broker. Failures are reported to `note`: nothing is lost while the coordination metadata
    exists.
    """

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        logs: Mapping[TopicPartitionKey, PartitionLog],
        note: Callable[[str], None],
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._logs = logs
        self._note = note
        self._due: dict[str, tuple[int, TopicSettings]] = {}
        #: Files passed to a disk thread that it has not taken yet.
        self._passed: list[tuple[str, bytes]] = []
        #: Held while files are taken from `_passed` and written: what is older cannot replace what is newer.
        self._lock = one_at_a_time()
        self._is_writing = False

    def keep(self, topic: str, partition: int, settings: TopicSettings) -> None:
        """Schedule writing the topic's settings to the directory of this partition: its first one here."""
        self._due[topic] = partition, settings
        self._write_next()

    def forget(self, topic: str) -> None:
        """Forget a deleted topic."""
        self._due.pop(topic, None)

    def read(self, topic: str, topic_id: UUID | None, partitions: Iterable[int]) -> Mapping[str, str] | None:
        """The settings in the topic's directories; None if there are none, or those of another topic id."""
        for partition in partitions:
            log = self._logs.get((topic, partition))
            stored = read_topic_settings(self._disk, log.directory) if log is not None else None
            if stored is not None and stored.topic_id == topic_id:
                return stored.configs
        return None

    def close(self) -> None:
        """Write what is due, synchronously; waits for a disk thread that is writing."""
        self._is_writing = True
        files: list[tuple[str, bytes]] = []
        while self._due:
            files += self._next_files()
        for problem in self._write_passed(files):
            self._note(problem)

    def _write_next(self) -> None:
        if self._is_writing or not self._due:
            return
        self._passed += self._next_files()
        self._is_writing = True

        def written(problems: list[str] | None, error: BaseException | None) -> None:
            self._is_writing = False
            for problem in problems if problems is not None else [str(error)]:
                self._note(problem)
            if not isinstance(error, NoThread):
                self._write_next()

        self._executor.call(self._write_passed, written)

    def _write_passed(self, more: Iterable[tuple[str, bytes]] = ()) -> list[str]:
        with self._lock:
            files, self._passed = [*self._passed, *more], []
            return _write_all(self._disk, files)

    def _next_files(self) -> list[tuple[str, bytes]]:
        files = []
        for topic in list(self._due)[:TOPICS_PER_JOB]:
            partition, settings = self._due.pop(topic)
            log = self._logs.get((topic, partition))
            if log is not None:
                files.append((log.directory, encode_topic_settings(settings)))
        return files


def _write_all(disk: Disk, files: Iterable[tuple[str, bytes]]) -> list[str]:
    """Write the files whose contents differ; returns failures, except for directories that no longer exist."""
    problems = []
    for directory, data in files:
        path = f"{directory}/{TOPIC_SETTINGS_FILE}"
        try:
            is_new = not disk.exists(path)
            if is_new or disk.read_bytes(path) != data:
                # A new file is synced with the first records; one that replaces another must not be lost.
                disk.write_atomic(path, data, sync=not is_new)
        except DiskError as error:
            if not error.missing:
                problems.append(f"the settings of a topic could not be kept beside its records: {error}")
    return problems
