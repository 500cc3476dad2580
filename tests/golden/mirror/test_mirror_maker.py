"""The mirror's records, names, filters and translated offsets against those of MirrorMaker 2's own classes.

`mirror_maker.txt` is what `MirrorMaker.java` prints; record it again with `OTTLA_RECORD=1`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.client.model import TopicPartition
from ottla.spark.pipelines.mirroring.formats import GroupCheckpoint, MirrorHeartbeat, OffsetSync
from ottla.spark.pipelines.mirroring.naming import MirrorNames
from ottla.spark.pipelines.mirroring.topics import NOT_FOLLOWED
from ottla.spark.pipelines.mirroring.translation import Sync, SyncHistory
from support.java import java_tool

HERE = Path(__file__).parent
RECORDED = HERE / "mirror_maker.txt"
PARTITION = TopicPartition("tøpic", 7)

pytestmark = pytest.mark.spec("R6")


def recorded(prefix: str = "") -> dict[str, str]:
    lines = [line for line in RECORDED.read_text().splitlines() if line.startswith(prefix)]
    return dict(line.removeprefix(prefix).rsplit(" ", 1) for line in lines)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("sync", OffsetSync(PARTITION, 1234567890123, 42)),
        ("checkpoint", GroupCheckpoint("grøup", PARTITION, 1234567890123, 42, "where I am")),
        ("plain-checkpoint", GroupCheckpoint("g", TopicPartition("west.t", 0), 0, 0, "")),
        ("heartbeat", MirrorHeartbeat("west", "east", 1700000000001)),
    ],
)
def test_records_have_the_bytes_of_mirror_maker(
    name: str, written: OffsetSync | GroupCheckpoint | MirrorHeartbeat
) -> None:
    found = recorded(f"{name}-record")
    assert (written.key.hex(), written.value.hex()) == (found["Key"], found["Value"])
    if not isinstance(written, MirrorHeartbeat):
        assert type(written).decode(written.key, written.value) == written


@pytest.mark.parametrize("unchanged", [False, True])
def test_the_same_topics_are_mirrored_under_the_same_names(unchanged: bool) -> None:
    names = MirrorNames("west", "east", "(?!payments).*", unchanged=unchanged)
    expected = recorded("unchanged-" if unchanged else "topic-")
    assert len(expected) > 20
    assert {topic: names.remote_topic(topic) if names.is_mirrored(topic) else "-" for topic in expected} == expected


def test_mirror_makers_own_topics_have_its_names() -> None:
    names, found = MirrorNames("west", "east", ".*"), recorded()
    assert names.offset_syncs_topic == found["offset-syncs-topic"]
    assert names.checkpoints_topic == found["checkpoints-topic"]


def test_the_same_groups_and_settings_are_followed() -> None:
    names = MirrorNames("west", "east", ".*")
    for group, followed in recorded("group-").items():
        assert names.is_translated(group) == (followed == "true"), group
    for setting, followed in recorded("setting-").items():
        assert (setting not in NOT_FOLLOWED) == (followed == "true"), setting


@pytest.mark.parametrize(
    ("name", "syncs"),
    [
        ("none", []),
        ("one", [(100, 40)]),
        ("three", [(100, 40), (150, 90), (200, 141)]),
        ("again", [(100, 100), (199, 199), (100, 200), (199, 299)]),
    ],
)
def test_offsets_are_translated_as_mirror_maker_does_it(name: str, syncs: Sequence[tuple[int, int]]) -> None:
    history = SyncHistory()
    for sync in syncs:
        history.add(Sync(*sync))
    for offset, expected in recorded(f"{name}-").items():
        if offset.isdigit():
            assert history.translate(int(offset)) == (None if expected in ("none", "-1") else int(expected)), offset


def test_syncs_before_what_was_sent_again_still_count_which_mirror_maker_drops() -> None:
    history = SyncHistory()
    for sync in ((100, 100), (200, 200), (150, 260)):
        history.add(Sync(*sync))
    expected = {int(offset): int(found) for offset, found in recorded("rewound-").items()}
    assert expected.pop(100) == expected.pop(101) == -1
    assert (history.translate(100), history.translate(101)) == (100, 101)
    assert {offset: history.translate(offset) or -1 for offset in expected} == expected


@pytest.mark.needs_kafka
@pytest.mark.slow
def test_the_recorded_facts_are_those_of_mirror_maker() -> None:
    printed = java_tool(str(HERE / "MirrorMaker.java")).stdout
    if os.environ.get("OTTLA_RECORD"):
        RECORDED.write_text(printed)
    assert printed == RECORDED.read_text()
