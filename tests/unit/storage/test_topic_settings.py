from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest

from ottla.env.executor import InlineExecutor
from ottla.storage.log import PartitionLog
from ottla.storage.topic_settings import (
    TOPIC_SETTINGS_FILE,
    AdoptionMark,
    TopicSettings,
    TopicSettingsFiles,
    decode_topic_settings,
    encode_topic_settings,
    read_topic_settings,
)
from ottla.testing.disk_memory import MemoryDisk

SETTINGS = TopicSettings(UUID(int=77), {"retention.ms": "-1", "cleanup.policy": "compact"})


def test_settings_come_back() -> None:
    data = encode_topic_settings(SETTINGS)
    assert data == (
        b'{"version":1,"topic_id":"AAAAAAAAAAAAAAAAAAAATQ","config":{"cleanup.policy":"compact","retention.ms":"-1"}}\n'
    )
    assert decode_topic_settings(data) == SETTINGS


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0",
        b"[]",
        b"{}",
        b'{"version":2,"topic_id":"AAAAAAAAAAAAAAAAAAAATQ","config":{}}',
        b'{"version":1,"topic_id":"x","config":{}}',
        b'{"version":1,"topic_id":"AAAAAAAAAAAAAAAAAAAATQ","config":{"a":1}}',
        b'{"version":1,"topic_id":"AAAAAAAAAAAAAAAAAAAATQ","config":[]}',
        encode_topic_settings(SETTINGS)[:-9],
    ],
)
def test_damaged_settings_are_none(data: bytes) -> None:
    disk = MemoryDisk()
    disk.mkdirs("/t-0")
    assert read_topic_settings(disk, "/t-0") is None
    disk.write_atomic(f"/t-0/{TOPIC_SETTINGS_FILE}", data)
    assert read_topic_settings(disk, "/t-0") is None


def test_the_mark_of_an_adoption_is_for_one_cluster() -> None:
    disk = MemoryDisk()
    disk.mkdirs("/d")
    mark = AdoptionMark(disk, "/d")
    mark.clear()
    assert not mark.is_set("a")
    mark.set("a")
    assert (mark.is_set("a"), mark.is_set("b")) == (True, False)
    mark.clear()
    assert not mark.is_set("a")


class HeldJobs(InlineExecutor):
    """Keeps jobs until the test runs them."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], object]] = []

    def call(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.jobs.append(lambda: done(work(), None))


class OldIsSlow(MemoryDisk):
    """Whoever writes settings without any of their own waits until others were written, or it takes too long."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.others_written = threading.Event(), threading.Event()

    def write_atomic(self, path: str, data: bytes, sync: bool = True) -> None:
        if b'"config":{}' in data:
            self.begun.set()
            self.others_written.wait(0.2)
        super().write_atomic(path, data, sync)
        if b'"config":{}' not in data:
            self.others_written.set()


def settings_files(disk: MemoryDisk, jobs: HeldJobs, *topics: str) -> TopicSettingsFiles:
    class Log:
        def __init__(self, directory: str) -> None:
            self.directory = directory
            disk.mkdirs(directory)

    logs = {(topic, 0): cast(PartitionLog, Log(f"/{topic}-0")) for topic in topics}
    return TopicSettingsFiles(disk, jobs, logs, pytest.fail)


def test_what_a_disk_thread_has_not_begun_is_written_at_close() -> None:
    disk, jobs = MemoryDisk(), HeldJobs()
    kept = settings_files(disk, jobs, "t", "u")
    kept.keep("t", 0, TopicSettings(SETTINGS.topic_id, {}))
    kept.keep("t", 0, SETTINGS)
    kept.keep("u", 0, SETTINGS)
    kept.close()
    assert [read_topic_settings(disk, directory) for directory in ("/t-0", "/u-0")] == [SETTINGS, SETTINGS]
    jobs.jobs.pop()()
    assert read_topic_settings(disk, "/t-0") == SETTINGS, "a thread that comes late writes nothing older"


def test_close_waits_for_a_disk_thread_that_writes() -> None:
    disk, jobs = OldIsSlow(), HeldJobs()
    kept = settings_files(disk, jobs, "t")
    kept.keep("t", 0, TopicSettings(SETTINGS.topic_id, {}))
    writer = threading.Thread(target=jobs.jobs.pop())
    writer.start()
    assert disk.begun.wait(60)
    kept.keep("t", 0, SETTINGS)
    kept.close()
    writer.join(60)
    assert read_topic_settings(disk, "/t-0") == SETTINGS
