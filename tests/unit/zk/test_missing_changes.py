"""Changes of the tree that were on the disk and are not there any more: the start refuses, or says what is missing."""

from __future__ import annotations

import pytest

from ottla.env.clock import VirtualClock
from ottla.env.executor import InlineExecutor
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk.store import LOG_NAME, SNAPSHOT_NAME, TreeDamaged, TreeStore
from ottla.zk.tree import Create
from ottla.zk.tree_marker import MARKER_BYTES, MARKER_NAME, Marked, TreeMarker, decode_marked, encode_marked

pytestmark = pytest.mark.spec("Z1")

CLOCK = VirtualClock(1_700_000_000_000)
LOG, SNAPSHOT, MARKER = f"/t/{LOG_NAME}", f"/t/{SNAPSHOT_NAME}", f"/t/{MARKER_NAME}"


def opened(disk: MemoryDisk, *, unclean: bool = False, flush_on_ack: bool = False) -> TreeStore:
    return TreeStore.open(disk, "/t", CLOCK, InlineExecutor(), flush_on_ack, unclean_start=unclean)


def filled(*, with_snapshot: bool, clean: bool) -> MemoryDisk:
    """Five nodes, of which the snapshot holds two. Not clean: the process was killed."""
    disk = MemoryDisk()
    store = opened(disk)
    for number in range(5):
        if number == 2 and with_snapshot:
            store.snapshot()
        store.execute([Create(f"/node{number}")], 1)
    if clean:
        store.close()
    return disk


def refusal(disk: MemoryDisk) -> str:
    """Why the tree is not opened; twice, since a refusal changes nothing."""
    texts = []
    for _ in range(2):
        with pytest.raises(TreeDamaged) as refused:
            opened(disk)
        texts.append(str(refused.value))
    assert texts[0] == texts[1]
    assert "ottla.tree.unclean.start.enable=true" in texts[0]
    assert "--unclean-start" in texts[0]
    return texts[0]


def names(store: TreeStore) -> list[str]:
    return sorted(path for path in store.tree.nodes if path.startswith("/node"))


def record_ends(content: bytes) -> list[int]:
    ends = [0]
    while ends[-1] < len(content):
        ends.append(ends[-1] + 8 + int.from_bytes(content[ends[-1] : ends[-1] + 4], "big"))
    return ends


@pytest.mark.parametrize("with_snapshot", [True, False])
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_was_cut_anywhere(with_snapshot: bool, clean: bool) -> None:
    whole = filled(with_snapshot=with_snapshot, clean=clean).read_bytes(LOG)
    ends = record_ends(whole)
    first = 2 if with_snapshot else 0
    for kept in range(len(whole)):
        disk = filled(with_snapshot=with_snapshot, clean=clean)
        disk.write_atomic(LOG, whole[:kept])
        told = refusal(disk)
        assert "was cut or is damaged at its end" in told
        assert disk.read_bytes(LOG) == whole[:kept]
        again = opened(disk, unclean=True)
        count = first + max(number for number, end in enumerate(ends) if end <= kept)
        assert names(again) == [f"/node{number}" for number in range(count)]
        assert "Continuing with what there is" in again.notes[0]
        again.close()
        assert names(opened(disk)) == names(again), "the next start needs no permission"


@pytest.mark.parametrize("with_snapshot", [True, False])
def test_a_log_that_was_removed(with_snapshot: bool) -> None:
    disk = filled(with_snapshot=with_snapshot, clean=True)
    disk.remove(LOG)
    told = refusal(disk)
    assert LOG in told
    if with_snapshot:
        # Known without the marker, too.
        disk.remove(MARKER)
        assert f"{SNAPSHOT} is there, and {LOG}" in refusal(disk)
    assert names(opened(disk, unclean=True)) == (["/node0", "/node1"] if with_snapshot else [])


def test_an_older_snapshot() -> None:
    disk = filled(with_snapshot=True, clean=True)
    older = disk.read_bytes(SNAPSHOT)
    store = opened(disk)
    store.snapshot()
    newer = store.tree.last_zxid
    store.close()
    disk.write_atomic(SNAPSHOT, older)
    assert f"ends with transaction 2, and one was on the disk that ended with {newer}" in refusal(disk)
    disk.remove(SNAPSHOT)
    assert f"{SNAPSHOT} is missing" in refusal(disk)


def test_a_flipped_bit_in_the_last_record_is_no_torn_write() -> None:
    whole = filled(with_snapshot=True, clean=False).read_bytes(LOG)
    for position in range(record_ends(whole)[-2], len(whole)):
        disk = filled(with_snapshot=True, clean=False)
        disk.flip(LOG, position)
        assert "transactions up to 5 were on the disk" in refusal(disk)
        again = opened(disk, unclean=True)
        assert names(again) == ["/node0", "/node1", "/node2", "/node3"]
        (aside,) = [name for name in disk.listdir("/t") if name.endswith(".damaged")]
        assert len(disk.read_bytes(f"/t/{aside}")) == len(whole)


def test_a_hole_in_what_was_forced_is_no_loss_of_power() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    for number in range(5):
        store.execute([Create(f"/node{number}", bytes(2000))], 1)
    store.close()
    content = bytearray(disk.read_bytes(LOG))
    start = record_ends(bytes(content))[2]
    content[start + 20 : start + 1044] = bytes(1024)
    disk.write_atomic(LOG, bytes(content))
    assert "it goes up to transaction 2, and transactions up to 5 were on the disk" in refusal(disk)


def test_damage_among_other_records_is_passed_with_permission_only() -> None:
    disk = filled(with_snapshot=False, clean=True)
    disk.flip(LOG, record_ends(disk.read_bytes(LOG))[1] + 20)
    assert "and continues at byte" in refusal(disk)
    assert names(opened(disk, unclean=True)) == ["/node0"]


def test_a_tree_of_an_older_version_has_no_marker() -> None:
    disk = filled(with_snapshot=True, clean=True)
    disk.remove(MARKER)
    again = opened(disk)
    assert names(again) == [f"/node{number}" for number in range(5)]
    assert again.notes == []


def test_permission_changes_nothing_where_nothing_is_missing() -> None:
    disk = filled(with_snapshot=True, clean=False)
    again = opened(disk, unclean=True)
    assert names(again) == [f"/node{number}" for number in range(5)]
    assert again.notes == []
    assert not [name for name in disk.listdir("/t") if name.endswith(".damaged")]


def test_what_was_not_forced_is_not_marked() -> None:
    """A loss of power takes it, and the next start must not ask for it."""
    disk = MemoryDisk()
    store = TreeStore.open(disk, "/t", CLOCK)  # without a disk thread nothing is forced before the end
    store.execute([Create("/node0")], 1)
    assert not disk.exists(MARKER)
    store.close()
    assert decode_marked(disk.read_bytes(MARKER)) == Marked(1, 0)


def test_the_last_whole_entry_of_a_marker_counts() -> None:
    content = encode_marked(Marked(5, 2)) + encode_marked(Marked(9, 7))
    assert decode_marked(content) == Marked(9, 7)
    assert decode_marked(content + b"torn") == Marked(9, 7)
    assert decode_marked(content[:-1] + b"?") == Marked(5, 2)
    assert decode_marked(b"") is None
    assert decode_marked(b"x" * 19) is None


def test_a_marker_stays_small() -> None:
    disk = MemoryDisk()
    disk.mkdirs("/t")
    marker = TreeMarker(disk, "/t")
    for zxid in range(2 * MARKER_BYTES // 20):
        marker.note(Marked(zxid, 0))
        assert disk.file_size(MARKER) <= MARKER_BYTES + 20
    assert marker.read() == Marked(zxid, 0)
    marker.close()
