from __future__ import annotations

from uuid import UUID

import pytest

from ottla.storage.topic_settings import (
    TOPIC_SETTINGS_FILE,
    AdoptionMark,
    TopicSettings,
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
