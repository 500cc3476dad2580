"""`ottla log dump` says of our files what Apache Kafka's own log tool says of them, field by field."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.env.disk import RealDisk
from ottla.inspection.repair import carry_out
from ottla.inspection.verify import VerifyWish
from ottla.records.compression import Compression
from ottla.records.message_set import encode_messages
from ottla.records.record import Record
from ottla.storage.log import PartitionLog
from support.dumped_logs import INDEX, PRODUCER, TIME_INDEX, dumped_by_apache, dumped_by_us
from support.java import java_tool
from support.storage_logs import NOW_MS, append, batch, log_config, new_log

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.spec("L3")]


def filled_log(root: Path) -> PartitionLog:
    log = new_log(RealDisk(), str(root), log_config(segment_bytes=10_000, index_interval_bytes=512))
    sequence = 0
    for number in range(150):
        codec = list(Compression)[number % len(Compression)]
        timestamp = NOW_MS + (number * 37) % 101
        if number % 3 == 0:
            fields = {"producer_id": 7, "producer_epoch": 1, "base_sequence": sequence}
            sequence += 2
            append(log, batch(2, size=120, timestamp=timestamp, compression=codec, **fields), leader_epoch=number // 80)
        else:
            append(log, batch(1 + number % 5, size=100, timestamp=timestamp, compression=codec))
    return log


def test_batches_records_indexes_and_snapshots(tmp_path: Path) -> None:
    log = filled_log(tmp_path)
    log.close()
    folder = Path(log.directory)
    files = [path for path in folder.iterdir() if path.suffix in (".log", ".index", ".timeindex", ".snapshot")]
    theirs = dumped_by_apache(files, "--print-data-log")
    assert len(theirs) == len(files) > 10
    for path in files:
        rows = theirs[str(path)]
        if path.suffix == ".snapshot":
            rows = [{name: value for name, value in row.items() if name in PRODUCER} for row in rows]
        if path.suffix in (".index", ".timeindex") and not path.stat().st_size:
            # Of an empty index the tool shows an entry that is not there.
            rows = []
        assert dumped_by_us(path, records=True) == rows, path.name
    assert {frozenset(row) for path in files if path.suffix == ".index" for row in dumped_by_us(path)} == {
        frozenset(INDEX)
    }
    times = {frozenset(row) for path in files if path.suffix == ".timeindex" for row in dumped_by_us(path)}
    assert times == {frozenset(TIME_INDEX)}


@pytest.mark.spec("L7")
@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_of_old_formats(tmp_path: Path, magic: int) -> None:
    path = tmp_path / f"{0:020}.log"
    data, offset = b"", 0
    for codec in (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4):
        timestamps = [NOW_MS + n if magic else -1 for n in range(3)]
        content = [Record(offset + n, time, b"key" if n else None, b"v%d" % n) for n, time in enumerate(timestamps)]
        data += encode_messages(content, magic, compression=codec)
        offset += 3
    path.write_bytes(data)
    theirs = dumped_by_apache([path], "--print-data-log")[str(path)]
    assert dumped_by_us(path, records=True) == theirs
    assert len(theirs) == 12 + 6


@pytest.mark.spec("L9")
def test_apaches_tool_finds_nothing_wrong_with_what_was_repaired(tmp_path: Path) -> None:
    log = filled_log(tmp_path)
    log.close()
    folder = Path(log.directory)
    logs = sorted(folder.glob("*.log"))
    for path, at in ((logs[0], 1_500), (logs[0], 10), (logs[1], 0), (logs[1], 3_000)):
        data = bytearray(path.read_bytes())
        data[at] ^= 2
        path.write_bytes(data)
    for path in (logs[1].with_suffix(".index"), logs[2].with_suffix(".timeindex")):
        path.write_bytes(b"\x07" * 29)
    plan = carry_out(RealDisk(), str(folder), VerifyWish())
    assert plan.to_repair == []
    files = [path for path in folder.iterdir() if path.suffix in (".log", ".index", ".timeindex")]
    done = java_tool("kafka.tools.DumpLogSegments", "--print-data-log", "--files", ",".join(map(str, files)))
    told = done.stdout + done.stderr
    assert "isvalid: false" not in told
    # The gaps where damaged batches were are the only thing that it remarks on.
    assert told.count("Non-consecutive offsets in") <= 2
    assert "mismatch" not in told.lower().replace("mismatches in :", "")
    assert "Mismatches in" not in told
