"""The log against a model that is a plain list."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.records.compression import Compression
from ottla.records.record import Record
from ottla.storage.log import AppendRefusal, PartitionLog, ReadRefusal
from ottla.storage.lookups import offset_for_timestamp
from ottla.storage.retention import delete_old_segments
from ottla.storage.truncation import delete_records, truncate_to
from ottla.testing.disk_memory import Change, MemoryDisk
from ottla.testing.disk_power import PowerLoss
from ottla.wire.errors import ErrorCode
from support.random_cases import cases
from support.storage_logs import NOW_MS, append, batch, decode, log_config, new_log, of_records, open_log, read_bytes

ROOT = "/data"
LIMITS = {"segment_bytes": 1200, "index_interval_bytes": 150, "segment_index_bytes": 96, "retention_bytes": 5000}


class LogMachine(RuleBasedStateMachine):
    """Appends, reads, lookups, truncation, retention, restarts: what is read is what the list holds."""

    def __init__(self) -> None:
        super().__init__()
        self.journal: list[Change] = []
        self.disk = MemoryDisk(journal=self.journal)
        self.disk.mkdirs(ROOT)
        self.disk.fsync_dir("/")
        self.config = log_config(**LIMITS)
        self.log: PartitionLog = new_log(self.disk, ROOT, self.config)
        self.log.flush()
        #: Value and timestamp by offset.
        self.model: list[tuple[bytes, int]] = []
        #: What was ever written at an offset: a truncation that is not forced to disk may be undone.
        self.written: dict[int, set[tuple[bytes, int]]] = {}
        self.sequence = 0
        self.epoch = 0

    def take(self, count: int, size: int, timestamp: int) -> list[Record]:
        start = len(self.model)
        return [
            Record(number, timestamp + number, b"k", (b"%d-" % (start + number)).ljust(size, b"."), ())
            for number in range(count)
        ]

    def note(self, content: list[Record]) -> None:
        for record in content:
            entry = (record.value or b"", record.timestamp)
            self.written.setdefault(len(self.model), set()).add(entry)
            self.model.append(entry)

    @rule(
        count=st.integers(1, 6),
        size=st.integers(1, 150),
        when=st.integers(-500, 500),
        codec=st.sampled_from(list(Compression)),
    )
    def append(self, count: int, size: int, when: int, codec: Compression) -> None:
        content = self.take(count, size, NOW_MS + when)
        info = append(self.log, of_records(content, compression=codec), leader_epoch=self.epoch)
        assert (info.first_offset, info.last_offset) == (len(self.model), len(self.model) + count - 1)
        self.note(content)

    @rule(count=st.integers(1, 4), again=st.booleans())
    def append_idempotent(self, count: int, again: bool) -> None:
        content = self.take(count, 20, NOW_MS)
        options = {"producer_id": 4, "producer_epoch": self.epoch, "base_sequence": self.sequence}
        info = append(self.log, of_records(content, **options), leader_epoch=self.epoch)
        assert not info.duplicate
        self.note(content)
        self.sequence += count
        if again:
            info = append(self.log, of_records(content, **options), leader_epoch=self.epoch)
            assert info.duplicate
            assert (info.first_offset, info.last_offset) == (len(self.model) - count, len(self.model) - 1)

    @rule(gap=st.integers(1, 50))
    def append_out_of_order(self, gap: int) -> None:
        if self.log.producers.get(4) is None:
            return
        buf = batch(1, producer_id=4, producer_epoch=self.epoch, base_sequence=self.sequence + gap)
        refusal = self.log.append(buf, leader_epoch=self.epoch, now_ms=NOW_MS)
        assert isinstance(refusal, AppendRefusal)
        assert refusal.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1
        self.sequence = 0
        self.log.assign_leader_epoch(self.epoch)

    @rule(data=st.data(), max_bytes=st.integers(0, 3000), min_one=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, min_one: bool) -> None:
        start, end = self.log.log_start_offset, len(self.model)
        offset = data.draw(st.integers(start, end))
        up_to = data.draw(st.integers(offset, end))
        found = decode(read_bytes(self.log.read(offset, max_bytes, up_to_offset=up_to, min_one_batch=min_one)))
        assert [(record.value, record.timestamp) for record in found] == (
            self.model[found[0].offset : found[-1].offset + 1] if found else []
        )
        if found:
            assert found[0].offset <= offset <= found[-1].offset
        elif min_one:
            # A limit within the only batch hides all of it; real limits lie between batches.
            assert offset >= up_to or up_to < end

    @rule(below=st.booleans())
    def read_out_of_range(self, below: bool) -> None:
        offset = self.log.log_start_offset - 1 if below else len(self.model) + 1
        refusal = self.log.read(offset, 100)
        assert isinstance(refusal, ReadRefusal)
        assert refusal.error == ErrorCode.OFFSET_OUT_OF_RANGE

    @rule(when=st.integers(-520, 520))
    def look_up_a_time(self, when: int) -> None:
        start = self.log.log_start_offset
        expected = next(
            (offset for offset in range(start, len(self.model)) if self.model[offset][1] >= NOW_MS + when), None
        )
        found = offset_for_timestamp(self.log, NOW_MS + when)
        assert not isinstance(found, ReadRefusal)
        assert (found.offset if found else None) == expected

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.log_start_offset, len(self.model)))
        assert delete_records(self.log, offset) == offset

    @rule()
    def retention(self) -> None:
        for path in delete_old_segments(self.log, NOW_MS):
            self.disk.remove(path)

    @precondition(lambda self: self.log.log_start_offset < len(self.model))
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        bases = [decode(part)[0].offset for part in self.log.read_batches(self.log.log_start_offset)]
        target = data.draw(st.sampled_from(bases))
        for path in truncate_to(self.log, target, NOW_MS):
            self.disk.remove(path)
        del self.model[target:]
        self.epoch += 1
        self.sequence = 0

    @rule(clean=st.booleans(), flushed=st.booleans())
    def restart(self, clean: bool, flushed: bool) -> None:
        if flushed:
            self.log.flush()
        start, recovery_point = self.log.log_start_offset, self.log.recovery_point
        before = self.log.producers.get(4)
        if clean:
            self.log.close()
            recovery_point = len(self.model)
        self.log = open_log(
            self.disk, ROOT, self.config, clean=clean, recovery_point=recovery_point, log_start_offset=start
        )
        after = self.log.producers.get(4)
        if before is not None:
            assert after is not None
            assert (after.epoch, after.last_sequence) == (before.epoch, before.last_sequence)
        assert self.log.leader_epoch <= self.epoch

    @rule(choice=st.randoms(use_true_random=False))
    def lose_power(self, choice: random.Random) -> None:
        """Everything that was forced is there; of what was not a part, which need not be the first."""
        safe, start = self.log.recovery_point, self.log.log_start_offset
        power = PowerLoss()
        for change in self.journal:
            power.take(change)
        disk = power.survivor(choice.randrange)
        if not disk.exists(self.log.directory):  # nothing is forced to disk for a log that never had records
            assert safe == 0
            return
        log = open_log(disk, ROOT, self.config, recovery_point=safe, log_start_offset=start)
        assert log.log_end_offset >= min(safe, len(self.model))
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            found = [record for record in decode(read_bytes(log.read(offset, 500))) if record.offset >= offset]
            if not found:
                break
            assert found[0].offset == offset or offset >= safe
            for record in found:
                assert (record.value, record.timestamp) in self.written[record.offset]
            offset = found[-1].offset + 1
        assert offset >= min(safe, len(self.model))

    @invariant()
    def ends_agree(self) -> None:
        log = self.log
        assert log.log_end_offset == log.high_watermark == len(self.model)
        assert 0 <= log.log_start_offset <= log.log_end_offset
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))
        assert all(segment.size <= LIMITS["segment_bytes"] for segment in log.segments)


TestLog = pytest.mark.spec("L1", "L2", "L9")(pytest.mark.slow(LogMachine.TestCase))
TestLog.settings = settings(
    max_examples=cases(200),
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
