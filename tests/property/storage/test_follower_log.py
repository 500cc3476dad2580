"""The log of a follower against a model: a list of the batches that it was sent."""

from __future__ import annotations

import copy
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.records.batch import parse_batch_header, patch_batch
from ottla.records.compression import Compression
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.record import Record
from ottla.storage.following import append_as_follower
from ottla.storage.log import PartitionLog
from ottla.storage.results import FollowerAppend
from ottla.storage.truncation import truncate_fully_and_start_at, truncate_to
from ottla.testing.disk_memory import MemoryDisk
from support.random_cases import cases
from support.storage_logs import NOW_MS, batch, log_config, new_log, of_records, open_log

ROOT = "/data"
LIMITS = {"segment_bytes": 1500, "index_interval_bytes": 150}
FOLLOWED = 1_000_000


class SentBatch(NamedTuple):
    """A batch as the leader has it."""

    first: int
    end: int
    epoch: int
    data: bytes


def producers(log: PartitionLog) -> dict[int, tuple[int, int]]:
    """The last sequence number of each producer, and where its transaction began."""
    return {entry.producer_id: (entry.last_sequence, entry.transaction_start) for entry in log.producers}


class FollowerMachine(RuleBasedStateMachine):
    """Ranges of all kinds of batches, cut anywhere; truncation; new beginnings; restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.disk.mkdirs(ROOT)
        self.config = log_config(**LIMITS)
        self.log: PartitionLog = new_log(self.disk, ROOT, self.config)
        self.model: list[SentBatch] = []
        self.start = self.end = 0
        self.epoch = 0
        self.sequences: dict[int, int] = {}

    def made(self, kind: str, count: int, producer: int) -> memoryview:
        if kind in ("abort", "commit"):
            marker = ControlRecordType.ABORT if kind == "abort" else ControlRecordType.COMMIT
            key, value = end_transaction_record(marker, 0)
            content = [Record(0, NOW_MS, key, value, ())]
            return of_records(content, producer_id=producer, producer_epoch=0, is_transactional=True, is_control=True)
        if kind == "plain":
            return batch(count, compression=Compression.GZIP if count % 2 else Compression.NONE)
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + count
        is_transactional = kind == "transactional"
        return batch(
            count,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )

    @rule(
        kinds=st.lists(
            st.tuples(
                st.sampled_from(["plain", "idempotent", "transactional", "abort", "commit"]),
                st.integers(1, 5),
                st.integers(0, 2),
                st.sampled_from([0, 0, 0, 7]),
            ),
            min_size=1,
            max_size=12,
        ),
        part=st.floats(0.1, 1),
        new_epoch=st.booleans(),
    )
    def fetch(self, kinds: list[tuple[str, int, int, int]], part: float, new_epoch: bool) -> None:
        """The leader's next batches arrive, perhaps not all of the last one; some were compacted away before it."""
        batches: list[SentBatch] = []
        at = self.end
        for number, (kind, count, producer, gap) in enumerate(kinds):
            # An idempotent producer and a transactional one are never the same.
            data = self.made(kind, count, producer + (10 if kind == "idempotent" else 0))
            if new_epoch and number == len(kinds) // 2:
                self.epoch += 1
            patch_batch(data, 0, at + gap, self.epoch)
            end = parse_batch_header(data).next_offset
            batches.append(SentBatch(at + gap, end, self.epoch, bytes(data)))
            at = end
        whole = b"".join(each.data for each in batches)
        sent = memoryview(whole[: max(1, int(len(whole) * part))])
        taken: list[SentBatch] = []
        size = 0
        for each in batches:
            if size + len(each.data) > len(sent):
                break
            size += len(each.data)
            taken.append(each)
        done = append_as_follower(self.log, sent, leader_epoch=FOLLOWED, now_ms=NOW_MS)
        assert done == FollowerAppend(size, taken[-1].end if taken else self.end)
        self.model += taken
        self.end = taken[-1].end if taken else self.end

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(0, self.start - 3), self.end + 2))
        for path in truncate_to(self.log, offset, NOW_MS):
            self.disk.remove(path)
        cut = [each.first for each in self.model if each.first < offset < each.end]
        end = cut[0] if cut else min(offset, self.end)
        self.model = [each for each in self.model if each.end <= end]
        self.start, self.end = min(self.start, end), end
        self.epoch += 1

    @rule(offset=st.integers(0, 500))
    def truncate_fully(self, offset: int) -> None:
        for path in truncate_fully_and_start_at(self.log, offset, NOW_MS):
            self.disk.remove(path)
        self.model = []
        self.start = self.end = offset
        self.epoch += 1

    @rule(data=st.data())
    def learn(self, data: st.DataObject) -> None:
        self.log.update_high_watermark(data.draw(st.integers(self.log.high_watermark, self.end)))

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        high_watermark = self.log.high_watermark
        self.log.flush()
        if clean:
            self.log.close()
        self.log = open_log(
            self.disk,
            ROOT,
            self.config,
            clean=clean,
            recovery_point=self.log.recovery_point,
            log_start_offset=self.start,
        )
        self.end = self.log.log_end_offset  # a gap at the end is not on the disk
        assert self.end >= (self.model[-1].end if self.model else self.start)
        self.log.update_high_watermark(high_watermark)

    @invariant()
    def bytes_are_those_sent(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.high_watermark <= self.end
        found = b"".join(segment.log.get().pread(segment.size, 0) for segment in log.segments)
        assert found == b"".join(each.data for each in self.model)
        assert all(segment.size <= LIMITS["segment_bytes"] for segment in log.segments)

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        begins: dict[int, int] = {}
        for each in self.model:
            begins.setdefault(each.epoch, each.first)
        assert self.log.epochs.entries == list(begins.items())

    @invariant()
    def recovery_finds_the_same(self) -> None:
        """What is kept in memory and in the indexes is what a scan of all batches gives."""
        disk = copy.deepcopy(self.disk)
        for name in disk.listdir(self.log.directory):
            if name.endswith((".index", ".timeindex", ".txnindex", ".snapshot", "-checkpoint")):
                disk.remove(f"{self.log.directory}/{name}")
        scanned = open_log(disk, ROOT, self.config)
        assert scanned.epochs.entries == self.log.epochs.entries
        assert scanned.producers.open_transactions == self.log.producers.open_transactions
        kept = {entry.producer_id: (entry.last_sequence, entry.transaction_start) for entry in self.log.producers}
        assert {
            entry.producer_id: (entry.last_sequence, entry.transaction_start) for entry in scanned.producers
        } == kept
        assert self.log.aborted_transactions(0, self.end) == scanned.aborted_transactions(0, self.end)
        for each in self.model:
            found = self.log.read(each.first, 1 << 20) if each.first >= self.start else None
            if found is not None:
                assert found.slice.read().startswith(each.data)  # type: ignore[union-attr]
                found.slice.release()  # type: ignore[union-attr]


TestFollowerLog = pytest.mark.spec("R2", "L1", "L5")(pytest.mark.slow(FollowerMachine.TestCase))
TestFollowerLog.settings = settings(
    max_examples=cases(100),
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
