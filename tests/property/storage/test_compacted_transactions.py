"""Transactions by chance, compacted in many rounds and opened again in every way: what ended stays ended.

Compaction leaves bare heads of batches, those of transactions included. One whose marker were gone would be taken for
an open transaction at the next start, and readers of committed records would wait for its end for ever.
"""

from __future__ import annotations

import random

import pytest

from ottla.env.disk import Disk
from ottla.records.batch import split_batches
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.record import Record
from ottla.storage.log import COORDINATOR, AppendInfo, PartitionLog
from ottla.testing.disk_memory import MemoryDisk
from support.compaction import cleaning, compact_config
from support.storage_logs import NOW_MS, of_records, open_log

pytestmark = [pytest.mark.spec("L5", "L9"), pytest.mark.slow]

FOLDER = "/data"
STEPS = 120
PRODUCERS = 4


class Story:
    """What producers and coordinators do to a log, and which transactions are open after it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk: Disk = MemoryDisk()
        self.disk.mkdirs(FOLDER)
        self.config = compact_config(
            segment_bytes=self.chance.choice([200, 400, 1000]),
            delete_retention_ms=self.chance.choice([0, 1000, 100_000]),
        )
        self.cleaning = cleaning((self.disk, FOLDER), self.config)
        #: First offsets of open transactions, by producer.
        self.open: dict[int, int] = {}
        self._sequences: dict[int, int] = dict.fromkeys(range(PRODUCERS), 0)
        self._epochs: dict[int, int] = dict.fromkeys(range(PRODUCERS), 0)

    @property
    def log(self) -> PartitionLog:
        return self.cleaning.log

    def step(self) -> None:
        chance = self.chance
        self.cleaning.clock.advance(chance.choice([0, 10, 2000]))
        producer_id, what = chance.randrange(PRODUCERS), chance.random()
        if what < 0.5:
            self._write(producer_id)
        elif what < 0.75:
            if producer_id in self.open or chance.random() < 0.1:
                self._end(producer_id)
        elif what < 0.85:
            self.log.roll(NOW_MS)
        elif what < 0.9:
            self.log.producers.expire(NOW_MS * 2, 1)
        else:
            self.log.flush()
            self.cleaning.clean()
            if chance.random() < 0.4:
                self.reopen()

    def _write(self, producer_id: int) -> None:
        chance, sequence = self.chance, self._sequences[producer_id]
        content = [
            Record(number, NOW_MS, b"k%d" % chance.randrange(5), chance.choice([b"v" * 20, None]), ())
            for number in range(chance.randrange(1, 4))
        ]
        in_transaction = producer_id in self.open or chance.random() < 0.7
        records = of_records(
            content,
            producer_id=producer_id,
            producer_epoch=self._epochs[producer_id],
            base_sequence=sequence,
            is_transactional=in_transaction,
        )
        info = self.log.append(records, leader_epoch=0, now_ms=NOW_MS, origin=COORDINATOR)
        if not isinstance(info, AppendInfo):
            # Its sequence numbers were forgotten with it.
            self._bump(producer_id)
            return
        self._sequences[producer_id] += len(content)
        if in_transaction:
            self.open.setdefault(producer_id, info.first_offset)

    def _end(self, producer_id: int) -> None:
        if self.chance.random() < 0.3:
            self._bump(producer_id)
        kind = self.chance.choice([ControlRecordType.ABORT, ControlRecordType.COMMIT])
        marker = of_records(
            [Record(0, NOW_MS, *end_transaction_record(kind, 0), ())],
            producer_id=producer_id,
            producer_epoch=self._epochs[producer_id],
            base_sequence=-1,
            is_transactional=True,
            is_control=True,
        )
        info = self.log.append(marker, leader_epoch=0, now_ms=NOW_MS, origin=COORDINATOR)
        assert isinstance(info, AppendInfo), info
        self.open.pop(producer_id, None)

    def _bump(self, producer_id: int) -> None:
        self._epochs[producer_id] += 1
        self._sequences[producer_id] = 0

    def reopen(self) -> None:
        clean = self.chance.random() < 0.5
        self.log.close()
        if not clean and self.chance.random() < 0.5:
            for name in self.disk.listdir(self.log.directory):
                if name.endswith(".snapshot"):
                    self.disk.remove(f"{self.log.directory}/{name}")
        self.cleaning.log = open_log(self.disk, FOLDER, self.config, clean=clean)
        assert self.log.producers.open_transactions == self.open
        assert self.log.last_stable_offset == min([*self.open.values(), self.log.log_end_offset])


def bare_heads(log: PartitionLog) -> int:
    """Batches of transactions that compaction left without records."""
    return sum(
        header.is_transactional and not header.is_control and not header.records_count
        for data in log.read_batches(0)
        for header in split_batches(data)
    )


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(20), id="20"),
        pytest.param(range(20, 520), id="500", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
def test_what_ended_stays_ended(seeds: range) -> None:
    heads = 0
    for seed in seeds:
        story = Story(seed)
        for _ in range(STEPS):
            story.step()
        story.log.flush()
        story.cleaning.clean()
        heads += bare_heads(story.log)
        story.reopen()
    assert heads > len(seeds), "the stories are about them"
