"""The files that one task writes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest

from ottla.spark.pipelines.tables.contract import StagedFile, Staging
from ottla.spark.pipelines.writing import files
from ottla.spark.pipelines.writing.files import write_files
from ottla.spark.pipelines.writing.manifests import WrittenRows, as_last_row, as_rows, written_rows
from ottla.spark.pipelines.writing.refusals import RefusedRows

pytestmark = pytest.mark.spec("D3")

SCHEMA = pyarrow.schema({"at": pyarrow.int64(), "place": pyarrow.string()})


def _staging(folder: Path, *, keep: bool = False, partition_by: tuple[str, ...] = ("place",)) -> Staging:
    return Staging(folder.as_uri(), {}, partition_by, "zstd", keep_partition_columns=keep)


def _batches(count: int, places: int, size: int = 100) -> Iterator[pyarrow.RecordBatch]:
    for start in range(0, count, size):
        at = list(range(start, start + size))
        yield pyarrow.record_batch({"at": at, "place": [f"p{each % places}" for each in at]}, schema=SCHEMA)


def _on_disk(folder: Path) -> set[str]:
    return {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}


def test_all_rows_once_in_folders(tmp_path: Path) -> None:
    written = list(write_files(_batches(5_000, 7), _staging(tmp_path), SCHEMA))

    assert len(written) == 7
    assert {each.path for each in written} == _on_disk(tmp_path)
    for each in written:
        path = tmp_path / each.path
        assert each.path.startswith(f"place={each.partition[0]}/part-")
        assert each.size_bytes == path.stat().st_size
        assert each.rows == pyarrow.parquet.read_metadata(path).num_rows
        footer = pyarrow.parquet.read_metadata(io.BytesIO(each.footer))
        assert footer.row_group(0).column(0).statistics.max == max(
            pyarrow.parquet.ParquetFile(path).read()["at"].to_pylist()
        )
    table = pyarrow.dataset.dataset(tmp_path, partitioning="hive").to_table()
    assert sorted(table["at"].to_pylist()) == list(range(5_000))
    assert table.schema.names == ["at", "place"]
    assert pyarrow.parquet.ParquetFile(tmp_path / written[0].path).schema_arrow.names == ["at"]


def test_partition_columns_stay_where_they_are_wanted(tmp_path: Path) -> None:
    (file,) = write_files(_batches(100, 1), _staging(tmp_path, keep=True), SCHEMA)
    assert pyarrow.parquet.ParquetFile(tmp_path / file.path).schema_arrow == SCHEMA


def test_without_folders_and_without_rows(tmp_path: Path) -> None:
    (file,) = write_files(_batches(100, 3), _staging(tmp_path, partition_by=()), SCHEMA)
    assert "/" not in file.path
    assert file.partition == ()
    assert list(write_files(iter(()), _staging(tmp_path / "other"), SCHEMA)) == []
    assert not (tmp_path / "other").exists()


def test_open_files_are_bounded_and_the_largest_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_OPEN_FILES", 3)
    monkeypatch.setattr(files, "GATHERED_BYTES", 1)
    most = 0
    original = files._PartFile.write

    with files.PartFiles(_staging(tmp_path), SCHEMA) as parts:

        def write(self: files._PartFile, rows: pyarrow.RecordBatch) -> None:
            nonlocal most
            most = max(most, len(parts._open))
            original(self, rows)

        monkeypatch.setattr(files._PartFile, "write", write)
        written = [each for batch in _batches(2_000, 10) for each in parts.write(batch)]
        written += list(parts.close())

    assert most == 3
    assert len(written) > 10
    assert sum(each.rows for each in written) == 2_000
    assert len({each.path for each in written}) == len(written)


def test_a_large_file_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FILE_BYTES", 1)
    monkeypatch.setattr(files, "GATHERED_BYTES", 1)
    written = list(write_files(_batches(300, 1), _staging(tmp_path), SCHEMA))
    assert [each.rows for each in written] == [100, 100, 100]


def test_an_error_leaves_no_file_that_looks_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GATHERED_BYTES", 1)

    def failing() -> Iterator[pyarrow.RecordBatch]:
        yield from _batches(200, 2)
        raise RuntimeError("the broker is away")

    with pytest.raises(RuntimeError, match="broker is away"):
        list(write_files(failing(), _staging(tmp_path), SCHEMA))
    assert _on_disk(tmp_path) == set()


def test_a_file_has_its_name_only_once_it_is_whole(tmp_path: Path) -> None:
    with files.PartFiles(_staging(tmp_path, partition_by=()), SCHEMA) as parts:
        for batch in _batches(100, 1):
            assert list(parts.write(batch)) == []
        parts._gathered_bytes = files.GATHERED_BYTES
        assert list(parts._write_gathered()) == []
        (name,) = _on_disk(tmp_path)
        assert name.startswith(".part-")
        assert name.endswith(".parquet.unfinished")
        (file,) = parts.close()
    assert _on_disk(tmp_path) == {file.path}


def test_manifests_keep_nulls() -> None:
    file = StagedFile("a=b/x.parquet", ("1", None), 3, 4, b"PAR1")
    (row,) = as_rows([file]).to_pylist()
    assert row == {
        "path": file.path,
        "partition": ["1", None],
        "rows": 3,
        "size_bytes": 4,
        "footer": b"PAR1",
        "refused_rows": 0,
        "refusal": None,
    }
    refused = RefusedRows(2, "why")
    (last,) = as_last_row(refused).to_pylist()
    written = written_rows([row, last, row, last])
    assert written == WrittenRows([file, file], RefusedRows(4, "why"))
