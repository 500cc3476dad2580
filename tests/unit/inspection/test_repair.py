"""Repair: what is whole stays, what can be known is put right, what is taken out is kept."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from ottla.env.disk import RealDisk
from ottla.inspection import repair
from ottla.inspection.batch_rows import RecordWish
from ottla.inspection.directories import NothingThere
from ottla.inspection.dump import DumpWish, dump
from ottla.inspection.findings import LogFinding, Severity, Tally
from ottla.inspection.repair import LogDirectoryInUse, carry_out, make_plan
from ottla.inspection.verify import VerifyWish, verify
from support.inspected_logs import fill, starts, transactional
from support.storage_logs import append, log_config, open_log, read_all

pytestmark = pytest.mark.spec("L9")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("made"))


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.parent, tmp_path / "data")) / made.name


def mend(path: Path) -> repair.Plan:
    return carry_out(RealDisk(), str(path), VerifyWish(), interval=300)


def severe(path: Path) -> list[LogFinding]:
    return [one for one in verify(RealDisk(), str(path), VerifyWish(), Tally()) if one.severity is Severity.DAMAGE]


def records(folder: Path) -> dict[int, str]:
    rows = dump(RealDisk(), str(folder), DumpWish(records=RecordWish(records=True)))
    return {row["offset"]: f"{row['key']} {row['value']} {row['timestamp']}" for row in rows if row["type"] == "record"}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_nothing_to_repair(folder: Path) -> None:
    before = contents(folder)
    assert make_plan(RealDisk(), str(folder.parent), VerifyWish()).findings == []
    mend(folder.parent)
    assert contents(folder) == before


def test_a_plan_changes_nothing(folder: Path) -> None:
    path = sorted(folder.glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    before = contents(folder)
    plan = make_plan(RealDisk(), str(folder), VerifyWish())
    assert len(plan.to_repair) == 1
    assert contents(folder) == before


def test_a_damaged_batch_goes_and_all_others_stay(folder: Path) -> None:
    before = records(folder)
    path = sorted(folder.glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    at = starts(data)
    data[at[2] + 65] ^= 8
    path.write_bytes(data)
    first = int.from_bytes(data[at[2] : at[2] + 8], "big")
    plan = mend(folder)
    assert plan.to_repair == []
    assert records(folder) == {offset: text for offset, text in before.items() if offset not in (first, first + 1)}
    kept = folder / f"{path.name}.{at[2]}.damaged"
    assert kept.read_bytes() == data[at[2] : at[3]]
    assert severe(folder.parent) == [], "the gap is told of, as one that a repair made"
    assert [one.kind for one in plan.findings] == ["gap"]


@pytest.mark.parametrize(("at", "name"), [(0, "base offset"), (8, "length"), (13, "epoch"), (16, "format")])
def test_a_damaged_head_is_put_right_byte_for_byte(folder: Path, at: int, name: str) -> None:
    before = contents(folder)
    path = sorted(folder.glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[starts(data)[3] + at] ^= 0x10
    path.write_bytes(data)
    assert mend(folder).findings == [], name
    after = contents(folder)
    assert after[path.name] == before[path.name]
    assert {name: after[name] for name in before} == before, "the indexes are as they were"
    assert len(after) == len(before) + 1


def test_indexes_are_those_that_brokers_write(folder: Path) -> None:
    before = contents(folder)
    for path in [*folder.glob("*.index"), *folder.glob("*.timeindex")]:
        path.unlink()
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n9 9\n")
    mend(folder)
    after = contents(folder)
    assert after.pop("leader-epoch-checkpoint.damaged") == b"0\n1\n9 9\n"
    assert after == before


def test_a_torn_end(folder: Path) -> None:
    before = records(folder)
    path = sorted(folder.glob("*.log"))[-1]
    data = path.read_bytes()
    path.write_bytes(data[:-10])
    plan = mend(folder.parent)
    assert plan.to_repair == []
    assert {one.kind for one in plan.beyond_repair} == {"lost-end"}
    last = int.from_bytes(data[starts(data)[-1] :][:8], "big")
    assert records(folder) == {offset: text for offset, text in before.items() if offset < last}


def test_zeros_are_not_kept(folder: Path) -> None:
    path = sorted(folder.glob("*.log"))[-1]
    data = path.read_bytes()
    path.write_bytes(data + bytes(100_000))
    mend(folder)
    assert path.read_bytes() == data
    assert not list(folder.glob("*.damaged"))


def test_a_segment_of_which_nothing_is_left(folder: Path) -> None:
    logs = sorted(folder.glob("*.log"))
    logs[1].write_bytes(b"\xff" * 3_000)
    logs[-1].write_bytes(b"\xff" * 100)
    assert mend(folder).to_repair == []
    assert not logs[1].exists()
    assert logs[-1].read_bytes() == b""
    assert len(list(folder.glob("*.damaged"))) >= 2
    assert max(records(folder)) == int(logs[1].stem) - 1


def test_small_files(folder: Path) -> None:
    root = folder.parent
    other = Path(shutil.copytree(folder, root / "orders-1"))
    (other / "partition.metadata").write_text("damaged")
    (root / "replication-offset-checkpoint").write_text("0\n3\norders 0 120\norders 1 x\nothers 0 7\n")
    next(folder.glob("*.snapshot")).write_bytes(b"\x00")
    (root / "recovery-point-offset-checkpoint").write_text("0\n2\norders 0 120\norders 1 120\n")
    assert mend(root).to_repair == []
    assert (other / "partition.metadata").read_bytes() == (folder / "partition.metadata").read_bytes()
    assert (root / "replication-offset-checkpoint").read_text() == "0\n2\norders 0 120\nothers 0 7\n"
    assert len(list(root.rglob("*.damaged"))) == 3
    assert severe(root) == []


def test_transaction_indexes_are_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    transactional(folder / f"{0:020}.log")
    mend(folder)
    made = (folder / f"{0:020}.txnindex").read_bytes()
    assert len(made) == 2 * 34
    assert severe(folder) == []
    (folder / f"{0:020}.txnindex").write_bytes(made[:-3])
    mend(folder)
    assert (folder / f"{0:020}.txnindex").read_bytes() == made


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_damaged_only_damaged_batches_are_lost(folder: Path, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    before = records(folder)
    original = tmp_path / "original"
    shutil.copytree(folder, original)
    for _ in range(4):
        files = [path for path in sorted(folder.iterdir()) if path.stat().st_size and path.suffix != ".metadata"]
        for path in chance.sample(files, 3):
            data = bytearray(path.read_bytes())
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
        mend(folder)
        assert make_plan(RealDisk(), str(folder), VerifyWish()).to_repair == []
        after = records(folder)
        assert all(before[offset] == text for offset, text in after.items())
        assert len(before) - len(after) <= 3 * 2, "batches of two records, at most three of them"
        log = open_log(RealDisk(), str(folder.parent), log_config(segment_bytes=3_000))
        assert {one.offset for one in read_all(log)} == set(after)
        append(log)
        log.close()
        shutil.rmtree(folder)
        shutil.copytree(original, folder)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 200))])
def test_many_damages_side_by_side_cost_no_healthy_batch(folder: Path, seed: int) -> None:
    """One batch of eight is damaged, heads and bodies alike.

    (Where nearly every other one is, first offsets may be damaged in a way that makes a batch look like another one,
    whose neighbours are damaged, too: then nothing tells which of the two is right.)
    """
    chance = random.Random(100 + seed)
    before = records(folder)
    touched: set[int] = set()
    for path in sorted(folder.glob("*.log")):
        data = bytearray(path.read_bytes())
        begin = starts(data)
        for start, end in zip(begin, [*begin[1:], len(data)], strict=True):
            if chance.random() < 0.125:
                base = int.from_bytes(data[start : start + 8], "big")
                touched.update(range(base, base + 2))
                at = start + (chance.randrange(20) if chance.random() < 0.5 else chance.randrange(end - start))
                data[at] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    assert mend(folder).to_repair == []
    after = records(folder)
    healthy = {offset: text for offset, text in before.items() if offset not in touched}
    assert {offset: after.get(offset) for offset in healthy} == healthy


def test_a_directory_in_use_is_left_alone(folder: Path) -> None:
    next(folder.glob("*.index")).unlink()
    lock = RealDisk().lock(f"{folder.parent}/.lock")
    assert lock is not None
    with pytest.raises(LogDirectoryInUse):
        mend(folder)
    with pytest.raises(LogDirectoryInUse):
        mend(folder.parent)
    lock.release()
    assert mend(folder.parent).to_repair == []


def test_single_files_are_not_repaired(folder: Path) -> None:
    with pytest.raises(NothingThere):
        make_plan(RealDisk(), str(next(folder.glob("*.log"))), VerifyWish())
