from __future__ import annotations

import struct
import zlib

import pytest

from ottla.records.batch import patch_batch
from ottla.records.errors import BatchError
from ottla.storage import scan
from ottla.storage.scan import (
    SMALLEST_MESSAGE,
    Place,
    ScannedBatch,
    batch_at,
    find_batch,
    max_timestamp_at,
    scan_batches,
)
from ottla.testing.disk_memory import MemoryDisk, MemoryFile
from support.storage_logs import NOW_MS, batch


def file_of(*parts: bytes | memoryview) -> MemoryFile:
    file = MemoryDisk().open("/f", create=True)
    file.append(list(parts))
    return file


def batches(*counts: int, size: int = 10) -> list[bytes]:
    made, offset = [], 0
    for count in counts:
        buf = batch(count, size=size)
        patch_batch(buf, 0, offset, 0)
        made.append(bytes(buf))
        offset += count
    return made


def message(offset: int, magic: int, value: bytes, timestamp: int = NOW_MS) -> bytes:
    """A message of the formats before 2."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", timestamp) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("window", [40, 64, 100, 8192])
def test_batches_are_found_across_windows(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(scan, "LOOKUP_BYTES", window)
    made = batches(3, 1, 5, 2)
    file = file_of(*made)
    for offset, number in ((0, 0), (2, 0), (3, 1), (4, 2), (8, 2), (9, 3), (10, 3)):
        place = find_batch(file, 0, file.size, offset)
        assert place is not None
        assert place.position == sum(map(len, made[:number]))
        assert place.length == len(made[number])
    assert find_batch(file, 0, file.size, 11) is None
    assert find_batch(file, 0, len(made[0]), 3) is None
    assert batch_at(file, len(made[0])) == find_batch(file, 0, file.size, 3)
    assert batch_at(file, file.size) is None


def test_the_shortest_message_of_all_is_found_at_the_end_of_a_file() -> None:
    body = struct.pack(">bbii", 0, 0, -1, -1)
    shortest = struct.pack(">qiI", 7, len(body) + 4, zlib.crc32(body)) + body
    assert len(shortest) == SMALLEST_MESSAGE
    file = file_of(*batches(3), shortest)
    at = file.size - len(shortest)
    assert find_batch(file, 0, file.size, 3) == batch_at(file, at) == Place(at, len(shortest), 7, 7)
    cut = file_of(*batches(3), shortest[:-1])
    for call in (lambda: find_batch(cut, 0, cut.size, 3), lambda: batch_at(cut, at)):
        with pytest.raises(BatchError, match=f"position {at}: 25 bytes are left"):
            call()


def test_no_batch_is_an_error_and_no_endless_loop() -> None:
    file = file_of(bytes(500))
    with pytest.raises(BatchError, match="no record batch at position 0"):
        find_batch(file, 0, 500, 7)
    negative = file_of(struct.pack(">qi", 0, -100) + bytes(100))
    with pytest.raises(BatchError):
        find_batch(negative, 0, negative.size, 7)


@pytest.mark.parametrize("window", [70, 200, 1 << 20])
def test_a_scan_gives_all_that_is_whole(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(scan, "SCAN_BYTES", window)
    made = batches(3, 1, 5, 2, size=30)
    whole = b"".join(made)
    for cut in (0, 1, 11, 12, 60, len(made[0]), len(made[0]) + 70, len(whole) - 1, len(whole)):
        file = file_of(whole[:cut])
        found = list(scan_batches(file, 0, file.size))
        expected = [count for count in range(len(made) + 1) if sum(map(len, made[:count])) <= cut][-1]
        assert [bytes(one.data) for one in found] == made[:expected]
        assert [one.last_offset for one in found] == [2, 3, 8, 10][:expected]


def test_a_scan_stops_at_damage() -> None:
    made = batches(3, 1, 5)
    whole = bytearray(b"".join(made))
    for position in range(len(made[0]) + 8, len(made[0]) + len(made[1])):
        if 12 <= position - len(made[0]) < 16:
            continue  # the leader epoch is outside the checksum
        damaged = bytearray(whole)
        damaged[position] ^= 0x41
        file = file_of(damaged)
        assert len(list(scan_batches(file, 0, file.size))) == 1, position


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_damaged_length_does_not_bring_the_rest_of_the_file_into_memory(
    monkeypatch: pytest.MonkeyPatch, magic: int
) -> None:
    monkeypatch.setattr(scan, "SCAN_BYTES", 256)
    reads: list[int] = []
    pread = MemoryFile.pread
    monkeypatch.setattr(
        MemoryFile, "pread", lambda file, length, at: (reads.append(length), pread(file, length, at))[1]
    )
    large = batches(1, size=5000)[0] if magic == 2 else message(0, magic, bytes(5000))
    whole = large + b"".join(batches(*[3] * 300))

    def scanned(data: bytes) -> tuple[list[ScannedBatch], int]:
        reads.clear()
        return list(scan_batches(file_of(data), 0, len(data), 256)), max(reads)

    found, read = scanned(whole)
    assert (bytes(found[0].data), read) == (large, len(large)), "a sound one is read whole"
    for length in (len(whole) - 12, len(whole) // 2):
        found, read = scanned(whole[:8] + struct.pack(">i", length) + whole[12:])
        assert (found, read) == ([], 256)


def test_old_formats_are_walked() -> None:
    parts = [message(0, 0, b"zero"), message(5, 1, b"wrapper", NOW_MS + 1), *batches(2)]
    file = file_of(*parts)
    assert [(one.magic, one.last_offset, one.max_timestamp) for one in scan_batches(file, 0, file.size)][:2] == [
        (0, 0, -1),
        (1, 5, NOW_MS + 1),
    ]
    place = find_batch(file, 0, file.size, 3)
    assert place is not None
    assert (place.position, place.last_offset) == (len(parts[0]), 5)
    assert [max_timestamp_at(file, position) for position in (0, len(parts[0]), len(parts[0]) + len(parts[1]))] == [
        -1,
        NOW_MS + 1,
        NOW_MS + 1,
    ]
    assert max_timestamp_at(file, file.size) == -1
    damaged = bytearray(parts[0])
    damaged[-1] ^= 1
    assert list(scan_batches(file_of(damaged), 0, len(damaged))) == []
