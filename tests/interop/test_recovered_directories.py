"""A log whose damaged batches recovery took out, under Apache's own tool: segments and indexes fit each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.env.disk import RealDisk
from ottla.records.compression import Compression
from support.java import java_tool
from support.storage_logs import append, batch, log_config, new_log, open_log, read_all

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.spec("L9", "L3")]

DUMP = "kafka.tools.DumpLogSegments"
CONFIG = log_config(segment_bytes=3000, index_interval_bytes=500)


def test_what_recovery_leaves_is_in_order_for_apache(tmp_path: Path) -> None:
    disk = RealDisk()
    log = new_log(disk, str(tmp_path), CONFIG)
    for number in range(60):
        codec = (Compression.NONE, Compression.LZ4, Compression.ZSTD)[number % 3]
        append(log, batch(4, producer_id=8, producer_epoch=0, base_sequence=4 * number, compression=codec))
    assert len(log.segments) > 2
    for segment in log.segments:
        segment.close()
    for segment, position in ((log.segments[0], 900), (log.segments[1], 10), (log.segments[-1], 150)):
        path = Path(segment.log.path)
        content = bytearray(path.read_bytes())
        content[position] ^= 4
        path.write_bytes(bytes(content))
    again = open_log(disk, str(tmp_path), CONFIG)
    offsets = [record.offset for record in read_all(again)]
    assert len(offsets) == 240 - 3 * 4
    again.close()

    folder = Path(again.directory)
    assert len(list(folder.glob("*.damaged"))) == 3
    files = [str(path) for suffix in ("log", "index", "timeindex", "snapshot") for path in folder.glob(f"*.{suffix}")]
    told = java_tool(DUMP, "--files", ",".join(sorted(files)), "--print-data-log").stdout
    assert [int(offset) for offset in re.findall(r"^\| offset: (\d+)", told, re.M)] == offsets
    assert "isvalid: false" not in told
    assert "Mismatches in" not in told
    assert "Found" not in told
    assert re.search(r"producerId: 8 producerEpoch: 0 .*lastSequence: 239", told)
