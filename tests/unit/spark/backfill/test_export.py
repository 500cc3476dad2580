"""`ottla backfill`: Parquet files, and the offsets where it ended."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow.parquet
import pytest

from ottla.cli.main import app
from ottla.records.batch import split_batches
from ottla.spark.backfill.errors import DamagedBatchError
from ottla.spark.backfill.export import OFFSETS_FILE
from support.storage_logs import TOPIC
from support.transacted_logs import TransactedLog

pytestmark = pytest.mark.spec("D5")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    return made


@pytest.fixture
def written(data: Path) -> TransactedLog:
    log = TransactedLog(data, segment_bytes=90_000)
    for turn in range(120):
        log.write(30, size=50)
        log.write(10, producer_id=1)
        if turn % 3 == 2:
            log.end(1, commit=turn % 2 == 0)
    log.checkpoint()
    return log


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        app(["backfill", *map(str, arguments)])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return int(ended.value.code or 0), said.out, said.err


def rows_in(directory: Path) -> list[tuple[int, bytes, bytes]]:
    table = pyarrow.parquet.read_table(directory)
    return sorted((row["offset"], row["key"], row["value"]) for row in table.to_pylist())


@pytest.mark.slow
def test_several_processes_write_every_row_once(
    written: TransactedLog, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "out"
    code, out, err = run(capsys, "--log-dir", data, "--topic", TOPIC, "--to", to, "--processes", "2")
    assert (code, err) == (0, "")
    assert rows_in(to) == written.expected()
    files = sorted(to.glob("*.parquet"))
    assert len(files) >= 2
    lines = out.splitlines()
    assert sorted(line.partition(":")[0] for line in lines[:-1]) == [file.name for file in files]
    total = len(written.expected())
    assert lines[-1] == f"{total:,} rows in {len(files)} files; ended at the offsets in {to / OFFSETS_FILE}"
    assert json.loads((to / OFFSETS_FILE).read_text()) == {TOPIC: {"0": written.log.last_stable_offset}}


def test_the_next_one_goes_on_where_it_ended(
    written: TransactedLog, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    both = ("--log-dir", data, "--topic", TOPIC, "--processes", "1")
    assert run(capsys, *both, "--to", first)[0] == 0
    written.write(5, producer_id=2)
    written.end(2, commit=True)
    written.checkpoint()
    code, out, _ = run(capsys, *both, "--to", second, "--starting-offsets", first / OFFSETS_FILE, "--headers", "--json")
    assert code == 0
    assert rows_in(first) + rows_in(second) == written.expected()
    assert "headers" in pyarrow.parquet.read_schema(next(second.glob("*.parquet"))).names
    *files, end = map(json.loads, out.splitlines())
    assert sum(file["rows"] for file in files) == end["rows"] == 5
    assert end["offsets"] == json.loads((second / OFFSETS_FILE).read_text())


def test_an_open_transaction_is_reported(
    written: TransactedLog, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = written.write(1, producer_id=4)
    written.checkpoint()
    code, _, err = run(capsys, "--log-dir", data, "-t", TOPIC, "--to", tmp_path / "out", "-p", "1")
    assert (code, err) == (0, f"ottla backfill: orders-0: a transaction is open from offset {at} on\n")


def test_mistakes_end_with_one_line(
    written: TransactedLog, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "out"

    def said(*arguments: str | Path) -> str:
        code, out, err = run(capsys, "--to", to, "-p", "1", *arguments)
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
        return err

    assert "no log directory to read from" in said("--log-dir", tmp_path / "none", "-t", TOPIC)
    assert "topic other has no partition" in said("--log-dir", data, "-t", "other")
    assert "neither earliest nor JSON nor a file to read" in said(
        "--log-dir", data, "-t", TOPIC, "--starting-offsets", "soon"
    )
    to.mkdir()
    (to / "old.parquet").write_bytes(b"")
    assert f"{to} is not empty; name a new directory" in said("--log-dir", data, "-t", TOPIC)


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
def test_damage_leaves_no_file_that_looks_complete(
    written: TransactedLog, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], processes: str
) -> None:
    expected = set(written.expected())
    segment = sorted(written.directory.glob("*.log"))[1]
    content = bytearray(segment.read_bytes())
    broken = split_batches(content)[20]
    content[broken.position + 80] ^= 0xFF
    segment.write_bytes(content)
    to = tmp_path / "out"
    code, _, err = run(capsys, "--log-dir", data, "-t", TOPIC, "--to", to, "--processes", processes)
    assert code == 2
    assert f"{segment} is damaged at position {broken.position}, offset {broken.base_offset}" in err
    assert not list(to.glob(".*"))
    assert not (to / OFFSETS_FILE).exists()
    assert all(expected.issuperset(rows_in(path)) for path in to.glob("*.parquet"))


def test_the_error_of_a_process_keeps_its_words() -> None:
    error = DamagedBatchError("/data/t-0/0.log", 5, 7, "why")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.position, again.offset) == (str(error), 5, 7)
