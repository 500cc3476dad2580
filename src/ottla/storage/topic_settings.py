"""Topic settings kept beside the records, so that lost coordination metadata does not cost them.

One file per topic, in the folder of its first partition here. Apache Kafka's `LogLoader` passes over files
whose suffix it does not know, so the folder stays one that it can serve.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.cluster.ids import format_uuid, parse_uuid
from ottla.env.disk import DiskError
from ottla.env.executor import NoThread

if TYPE_CHECKING:
    from ottla.env.disk import Disk
    from ottla.env.executor import Executor
    from ottla.storage.checkpoints import TopicPartitionKey
    from ottla.storage.log import PartitionLog

TOPIC_SETTINGS_FILE: Final = "ottla-topic-settings"
#: In the first log directory while topics are adopted: whoever finds it goes on with that.
ADOPTION_FILE: Final = "ottla-adopting"
#: Topics whose files one disk thread writes before other jobs get their turn.
TOPICS_PER_JOB: Final = 100

_VERSION: Final = 1


class TopicSettings(NamedTuple):
    """The id of a topic, and the settings that it has of its own."""

    topic_id: UUID
    configs: Mapping[str, str]


def encode_topic_settings(settings: TopicSettings) -> bytes:
    """The content of the file: JSON."""
    document = {
        "version": _VERSION,
        "topic_id": format_uuid(settings.topic_id),
        "config": dict(sorted(settings.configs.items())),
    }
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def decode_topic_settings(data: bytes) -> TopicSettings | None:
    """The settings; None where the file is damaged or of a newer version."""
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


def read_topic_settings(disk: Disk, folder: str) -> TopicSettings | None:
    """The settings in a partition's folder; None where there are none to be read."""
    path = f"{folder}/{TOPIC_SETTINGS_FILE}"
    try:
        return decode_topic_settings(disk.read_bytes(path)) if disk.exists(path) else None
    except DiskError:
        return None


class AdoptionMark:
    """Says in the first log directory that adoption of its topics has begun and is not finished yet."""

    def __init__(self, disk: Disk, log_dir: str) -> None:
        self._disk = disk
        self._path = f"{log_dir}/{ADOPTION_FILE}"

    def is_set(self, cluster_id: str) -> bool:
        """Whether adoption into this cluster was interrupted. Raises DiskError."""
        return self._disk.exists(self._path) and self._disk.read_bytes(self._path) == cluster_id.encode()

    def set(self, cluster_id: str) -> None:
        """Adoption begins. Raises DiskError."""
        self._disk.write_atomic(self._path, cluster_id.encode())

    def clear(self) -> None:
        """Adoption has ended. Raises DiskError."""
        if self._disk.exists(self._path):
            self._disk.remove(self._path)


class TopicSettingsKeeper:
    """Writes the files, in disk threads, some time after a topic was made or its settings were changed.

    `logs` are those of the broker. Settings that could not be written are told to `note`: while the coordination
    metadata is there nothing is lost by it.
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
        self._is_writing = False

    def keep(self, topic: str, partition: int, settings: TopicSettings) -> None:
        """These are the topic's settings now, to be kept in the folder of this partition: its first one here."""
        self._due[topic] = partition, settings
        self._write_next()

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        self._due.pop(topic, None)

    def read(self, topic: str, topic_id: UUID | None, partitions: Iterable[int]) -> Mapping[str, str] | None:
        """The settings that the topic's folders hold; None where they hold none, or those of another topic."""
        for partition in partitions:
            log = self._logs.get((topic, partition))
            kept = read_topic_settings(self._disk, log.folder) if log is not None else None
            if kept is not None and kept.topic_id == topic_id:
                return kept.configs
        return None

    def close(self) -> None:
        """Write what is due, here and now."""
        self._is_writing = True
        while self._due:
            for problem in _write_all(self._disk, self._next_files()):
                self._note(problem)

    def _write_next(self) -> None:
        if self._is_writing or not self._due:
            return
        files = self._next_files()
        self._is_writing = True

        def written(problems: list[str] | None, error: BaseException | None) -> None:
            self._is_writing = False
            for problem in problems if problems is not None else [str(error)]:
                self._note(problem)
            if not isinstance(error, NoThread):
                self._write_next()

        self._executor.call(partial(_write_all, self._disk, files), written)

    def _next_files(self) -> list[tuple[str, bytes]]:
        files = []
        for topic in list(self._due)[:TOPICS_PER_JOB]:
            partition, settings = self._due.pop(topic)
            log = self._logs.get((topic, partition))
            if log is not None:
                files.append((log.folder, encode_topic_settings(settings)))
        return files


def _write_all(disk: Disk, files: Iterable[tuple[str, bytes]]) -> list[str]:
    """Write the files that say something else; what failed, but for folders that are gone."""
    problems = []
    for folder, data in files:
        path = f"{folder}/{TOPIC_SETTINGS_FILE}"
        try:
            is_new = not disk.exists(path)
            if is_new or disk.read_bytes(path) != data:
                # A new file is written with the first records; one that takes the place of another must not be lost.
                disk.write_atomic(path, data, sync=not is_new)
        except DiskError as error:
            if not error.missing:
                problems.append(f"the settings of a topic could not be kept beside its records: {error}")
    return problems
