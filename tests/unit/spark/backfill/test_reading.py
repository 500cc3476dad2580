"""Rows from segment files: those that a read_committed consumer gets."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.records.compression import Compression
from ottla.storage.truncation import delete_records
from support.storage_logs import NOW_MS, TOPIC
from support.transacted_logs import TransactedLog

pytestmark = pytest.mark.spec("D5")


def test_all_committed_records_of_several_segments(log: TransactedLog, plan, read) -> None:
    for number in range(100):
        log.write(3, compression=list(Compression)[number % 5])
    log.checkpoint()
    assert len(plan().ranges) == 1
    assert read() == log.expected()
    assert len(read()) == 300


def test_aborted_transactions_and_control_records_are_no_rows(log: TransactedLog, read) -> None:
    for turn in range(30):
        for producer in (1, 2):
            log.write(4, producer_id=producer)
        log.write(2)
        log.end(1, commit=turn % 2 == 0)
        log.end(2, commit=turn % 3 == 0)
    log.checkpoint()
    assert list(log.directory.glob("*.txnindex"))
    assert read() == log.expected()
    for index in log.directory.glob("*.txnindex"):
        index.unlink()
    assert read() == log.expected(), "by the control records alone"


def test_it_ends_where_the_first_open_transaction_begins(log: TransactedLog, plan, read) -> None:
    log.write(5)
    log.write(3, producer_id=1)
    log.write(3, producer_id=2)
    log.write(5)
    log.end(1, commit=False)
    log.write(5)
    log.checkpoint()
    assert plan().ending == {(TOPIC, 0): 8}
    assert plan().notes == ("orders-0: a transaction is open from offset 8 on",)
    assert read() == log.expected()
    assert [offset for offset, _, _ in read()] == [0, 1, 2, 3, 4], "the marker behind the end counts"


def test_a_marker_above_the_high_watermark_does_not_count(log: TransactedLog, plan) -> None:
    log.write(5)
    log.write(3, producer_id=1)
    marker = log.end(1, commit=True)
    log.checkpoint(high_watermark=marker)
    assert plan().ending == {(TOPIC, 0): 5}
    log.checkpoint(high_watermark=marker + 1)
    assert plan().ending == {(TOPIC, 0): marker + 1}


def test_nothing_is_read_beyond_the_high_watermark_or_below_the_log_start(tmp_path: Path, plan, read) -> None:
    log = TransactedLog(tmp_path, cleanup_policy="delete")
    for _ in range(50):
        log.write(3)
    delete_records(log.log, 31)
    log.checkpoint(high_watermark=90)
    assert plan().starting == {(TOPIC, 0): 31}
    assert plan().ending == {(TOPIC, 0): 90}
    assert read() == log.expected(end=90)
    assert [offset for offset, _, _ in read()] == list(range(31, 90))


@pytest.mark.parametrize("seed", range(8))
def test_any_history_in_any_division(log: TransactedLog, read, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.spark.backfill.plan.LEAST_RANGE_BYTES", 100)
    monkeypatch.setattr("ottla.spark.backfill.reading.WINDOW_BYTES", 700)
    chance = random.Random(seed)
    for _ in range(250):
        match chance.randrange(8):
            case 0 | 1 | 2:
                producer = chance.randrange(3)
                keys = [b"key%d" % chance.randrange(12) for _ in range(chance.randrange(1, 5))]
                log.write(producer_id=producer, keys=keys, compression=chance.choice(list(Compression)))
            case 3 | 4:
                keys = [b"key%d" % chance.randrange(12) for _ in range(chance.randrange(1, 8))]
                log.write(keys=keys, size=chance.choice((5, 50, 300)))
            case 5 | 6:
                if log.open_producers:
                    log.end(chance.choice(log.open_producers), commit=chance.random() < 0.5)
            case 7:
                chance.choice((log.clean, lambda: log.log.roll(NOW_MS)))()
        if chance.random() < 0.05:
            log.checkpoint()
            assert read() == log.expected()
    log.checkpoint()
    assert read() == log.expected()
    assert read(minPartitions=str(chance.randrange(2, 30))) == log.expected()
    end = log.log.last_stable_offset
    cut = chance.randrange(log.log.log_start_offset, end + 1)
    document = f'{{"{TOPIC}": {{"0": {cut}}}}}'
    assert read(endingOffsets=document) + read(startingOffsets=document) == log.expected()
    for index in [*log.directory.glob("*.txnindex"), *log.directory.glob("*.index"), *log.directory.glob("*.snapshot")]:
        index.unlink()
    assert read() == log.expected(), "without any index"
