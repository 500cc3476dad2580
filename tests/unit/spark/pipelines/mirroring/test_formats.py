"""Records that are none of MirrorMaker 2's are refused, whatever their bytes."""

from __future__ import annotations

import random

import pytest

from ottla.client.model import TopicPartition
from ottla.spark.pipelines.mirroring.formats import GroupCheckpoint, MirrorRecordError, OffsetSync

pytestmark = pytest.mark.spec("R6")

SYNC = OffsetSync(TopicPartition("t", 1), 2, 3)
CHECKPOINT = GroupCheckpoint("g", TopicPartition("t", 1), 2, 3, "m")


@pytest.mark.parametrize("whole", [SYNC, CHECKPOINT])
def test_other_bytes_are_refused(whole: OffsetSync | GroupCheckpoint) -> None:
    kind = type(whole)
    for key, value in ((None, whole.value), (whole.key, None), (b"", b""), (whole.key[:-1], whole.value)):
        with pytest.raises(MirrorRecordError):
            kind.decode(key, value)
    with pytest.raises(MirrorRecordError):
        kind.decode(whole.key, whole.value[:-1])
    chance = random.Random(16)
    for _ in range(500):
        key, value = chance.randbytes(chance.randrange(20)), chance.randbytes(chance.randrange(20))
        with pytest.raises(MirrorRecordError):
            kind.decode(key, value)


def test_a_checkpoint_of_a_later_version_is_refused() -> None:
    with pytest.raises(MirrorRecordError, match="version 1"):
        GroupCheckpoint.decode(CHECKPOINT.key, b"\x00\x01" + CHECKPOINT.value[2:])
