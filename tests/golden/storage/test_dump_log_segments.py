"""Apache Kafka's own log tool reads our files and finds nothing wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.env.disk import RealDisk
from ottla.records.compression import Compression
from ottla.storage.log import PartitionLog
from support.java import java_tool
from support.storage_logs import NOW_MS, append, batch, log_config, new_log, open_log

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.spec("L3")]

COMPLAINTS = re.compile(
    r"mismatch|Missing|not found|out of order|Non-secutive|Non-consecutive|corrupt|invalid|error|"
    r"exception|incomplete|oops|truncat",
    re.IGNORECASE,
)


def dump(folder: Path, *options: str) -> str:
    """DumpLogSegments over every file of a partition's folder."""
    files = sorted(
        str(path) for path in folder.iterdir() if path.suffix in {".log", ".index", ".timeindex", ".snapshot"}
    )
    return java_tool("kafka.tools.DumpLogSegments", "--files", ",".join(files), *options).stdout


def filled_log(root: Path) -> PartitionLog:
    """Several segments, all codecs, idempotent producers, two leader epochs, timestamps that go back and forth."""
    log = new_log(RealDisk(), str(root), log_config(segment_bytes=20_000, index_interval_bytes=512))
    sequence = 0
    for number in range(400):
        codec = list(Compression)[number % len(Compression)]
        timestamp = NOW_MS + (number * 37) % 101 - (1000 if number % 7 == 0 else 0)
        if number % 3 == 0:
            buf = batch(
                2,
                size=120,
                timestamp=timestamp,
                compression=codec,
                producer_id=7,
                producer_epoch=1,
                base_sequence=sequence,
            )
            sequence += 2
        else:
            buf = batch(1 + number % 5, size=100, timestamp=timestamp, compression=codec)
        append(log, buf, leader_epoch=number // 250)
    return log


def check_dumps(folder: Path) -> str:
    for options in (["--deep-iteration", "--print-data-log"], [], ["--index-sanity-check"]):
        out = dump(folder, *options)
        complaints = [line for line in out.splitlines() if COMPLAINTS.search(line) and "isvalid: true" not in line]
        assert not complaints, (options, complaints[:5])
        if options == ["--index-sanity-check"]:
            assert out.count("passed sanity check") + out.count("index is empty") == 2 * len(list(folder.glob("*.log")))
    return dump(folder, "--deep-iteration")


def test_a_closed_log(tmp_path: Path) -> None:
    log = filled_log(tmp_path)
    end, segments = log.log_end_offset, len(log.segments)
    assert segments > 2
    log.close()
    folder = Path(log.directory)
    out = check_dumps(folder)
    assert len(re.findall(r"^\| offset: ", out, re.MULTILINE)) == end
    assert len(re.findall(r"isvalid: true", out)) == 400
    assert "producerId: 7 producerEpoch: 1" in out
    assert (folder / f"{end:020d}.snapshot").exists()


def test_a_log_that_was_killed_and_recovered(tmp_path: Path) -> None:
    log = filled_log(tmp_path)
    end = log.log_end_offset
    with open(log.segments[-1].log.path, "ab") as torn:
        torn.write(bytes(batch(3))[:70])
    recovered = open_log(RealDisk(), str(tmp_path), log.config)
    assert recovered.log_end_offset == end
    append(recovered, leader_epoch=3)
    recovered.close()
    check_dumps(Path(log.directory))
