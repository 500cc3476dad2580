"""The archive's folder: what its log names, and what a run that died left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.spark.pipelines.archive import ArchiveConfig, committed_files, remove_leftovers, start
from ottla.spark.pipelines.config import PipelineConfigError


def _file(folder: Path, name: str) -> Path:
    path = folder / "date=2013-01-01" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"PAR1")
    return path


def _log(folder: Path, batch: str, *files: Path, action: str = "add") -> None:
    entries = [json.dumps({"path": path.resolve().as_uri(), "action": action}) for path in files]
    (folder / "_spark_metadata").mkdir(parents=True, exist_ok=True)
    (folder / "_spark_metadata" / batch).write_text("\n".join(["v1", *entries]))


def test_a_directory_without_log_is_nobody_s(tmp_path: Path) -> None:
    kept = _file(tmp_path, "mine.parquet")
    assert committed_files(tmp_path) is None
    assert committed_files(tmp_path / "none") is None
    assert remove_leftovers(tmp_path) == 0
    assert kept.exists()


@pytest.mark.spec("D3")
def test_files_that_no_finished_batch_wrote_are_removed(tmp_path: Path) -> None:
    first, second, third = (_file(tmp_path, f"part-{number} ü.parquet") for number in range(3))
    left = _file(tmp_path, "part-9.parquet")
    _log(tmp_path, "1.compact", first, second)
    _log(tmp_path, "2", third)
    (tmp_path / "_spark_metadata" / ".3.tmp").write_text("half")
    assert committed_files(tmp_path) == {each.resolve() for each in (first, second, third)}
    assert remove_leftovers(tmp_path) == 1
    assert not left.exists()
    assert first.exists()
    assert second.exists()
    assert third.exists()
    assert remove_leftovers(tmp_path) == 0


def test_before_the_first_batch_everything_is_left_over(tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    _file(tmp_path, "part-0.parquet")
    assert committed_files(tmp_path) == set()
    assert remove_leftovers(tmp_path) == 1


def test_somebody_else_s_parquet_files_are_not_touched(tmp_path: Path) -> None:
    mine = _file(tmp_path, "mine.parquet")
    config = ArchiveConfig(
        bootstrap_servers="h:1", topic="t", group_id="g", checkpoint="c", output=str(tmp_path), fields="a INT"
    )
    with pytest.raises(PipelineConfigError, match="files that are not an archive's; choose another folder"):
        start(None, config)  # type: ignore[arg-type]
    assert mine.exists()
