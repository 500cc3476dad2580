from __future__ import annotations

from ottla.testing.disk_memory import Change, MemoryDisk, journal_bytes, replay


def test_a_journal_is_replayed_up_to_any_byte() -> None:
    journal: list[Change] = []
    disk = MemoryDisk(journal=journal)
    disk.mkdirs("/a")
    file = disk.open("/a/f", create=True)
    file.append([b"abc", b"def"])
    file.truncate(4)
    disk.write_atomic("/a/g", b"whole", sync=False)
    disk.rename("/a/g", "/a/h")
    file.append([b"xy"])
    disk.remove("/a/h")
    disk.remove_tree("/a")

    seen = []
    for cut in range(journal_bytes(journal) + 1):
        made = replay(journal, cut)
        names = made.listdir("/a") if made.is_dir("/a") else None
        seen.append((names, made.read_bytes("/a/f") if made.exists("/a/f") else None))
    assert seen[0] == (None, None)
    assert seen[1] == ([], None)
    assert [content for _, content in seen[2:9]] == [b"", b"a", b"ab", b"abc", b"abcd", b"abcde", b"abcdef"]
    assert seen[9] == (["f"], b"abcd")
    assert seen[10] == (["f", "g"], b"abcd")
    assert seen[11] == (["f", "h"], b"abcd")
    assert [content for _, content in seen[12:14]] == [b"abcdx", b"abcdxy"]
    assert seen[14] == (["f"], b"abcdxy")
    assert seen[15] == (None, None)
    assert len(seen) == 16


def test_time_stamps_come_from_the_clock_given() -> None:
    now = 7
    disk = MemoryDisk(lambda: now)
    file = disk.open("/f", create=True)
    now = 9
    assert disk.modified_ms("/f") == 7
    file.append([b"x"])
    assert disk.modified_ms("/f") == 9


def test_a_byte_can_be_damaged() -> None:
    disk = MemoryDisk()
    disk.open("/f", create=True).append([b"\x00\x00"])
    disk.flip("/f", 1, 0x80)
    assert disk.read_bytes("/f") == b"\x00\x80"
