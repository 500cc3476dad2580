"""Commits into a table of plain Parquet files, crashes of them, and what readers that list files see."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import dataset, fs, parquet

from ottla.spark.pipelines import crash_points
from ottla.spark.pipelines.errors import PipelineError, PipelineSettingsError, SupersededError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables import exclusive
from ottla.spark.pipelines.tables.contract import LastCommit
from ottla.spark.pipelines.tables.filesystems import open_filesystem
from ottla.spark.pipelines.tables.opening import open_table
from ottla.spark.pipelines.tables.parquet import ParquetBatchTable, committed_files, manifests, table
from support.played_s3 import PlayedS3
from support.staged_batches import QUERY, SCHEMA, settings, stage

pytestmark = [pytest.mark.spec("D3"), pytest.mark.slow]

DAY = "2013-01-01"
NEXT = "2013-01-02"


class Killed(BaseException):
    """A crash: nothing that handles errors may run."""


@pytest.fixture(params=["local", "s3", "memory"])
def sink(request: pytest.FixtureRequest, tmp_path: Path, s3: PlayedS3) -> TableSinkSettings:
    if request.param == "local":
        return settings(str(tmp_path / "table"))
    if request.param == "s3":
        return settings(
            s3.url(f"commits/{request.node.name}".replace("[", "-").replace("]", "")), storage_options=s3.options
        )
    return settings(f"memory://{request.node.name}".replace("[", "-").replace("]", ""))


@pytest.fixture
def local(tmp_path: Path) -> TableSinkSettings:
    return settings(str(tmp_path / "table"))


def opened(sink: TableSinkSettings, pipeline: str = "archive") -> ParquetBatchTable:
    made = open_table(sink, pipeline)
    made.recover()
    assert isinstance(made, ParquetBatchTable)
    return made


def offsets_seen(sink: TableSinkSettings) -> list[int]:
    """As a reader does that knows nothing of us: pyarrow lists the folder."""
    assert sink.path is not None
    filesystem, path = open_filesystem(sink.path, sink.storage_options)
    if filesystem.get_file_info(path).type == fs.FileType.NotFound:
        return []
    found = dataset.dataset(path, filesystem=filesystem, format="parquet", partitioning="hive")
    return sorted(found.to_table(columns=["offset"])["offset"].to_pylist()) if found.files else []


def hidden_files(sink: TableSinkSettings, folder: str) -> list[str]:
    assert sink.path is not None
    filesystem, path = open_filesystem(sink.path, sink.storage_options)
    found = filesystem.get_file_info(fs.FileSelector(f"{path}/_ottla/{folder}", recursive=True, allow_not_found=True))
    return sorted(each.base_name for each in found if each.type == fs.FileType.File)


def test_a_batch_is_seen_after_its_commit_and_not_before(sink: TableSinkSettings) -> None:
    made = opened(sink)
    assert made.last_commit() is None
    batch = stage(made, 0, {DAY: [0, 1], NEXT: [2]})
    assert offsets_seen(sink) == []
    assert made.commit(batch) is True
    assert offsets_seen(sink) == [0, 1, 2]
    assert made.last_commit() == LastCommit(QUERY, 0, {"events": {"flights": {0: 3}}})
    assert hidden_files(sink, "staging") == []
    again = opened(sink)
    assert again.last_commit() == made.last_commit()
    assert again.commit(stage(again, 1, {DAY: [3]})) is True
    assert offsets_seen(sink) == [0, 1, 2, 3]


def test_a_batch_that_runs_again_adds_nothing(sink: TableSinkSettings) -> None:
    made = opened(sink)
    assert made.commit(stage(made, 0, {DAY: [0, 1]}))
    assert made.commit(stage(made, 0, {DAY: [0, 1]})) is False
    again = opened(sink)
    assert again.commit(stage(again, 0, {DAY: [0, 1]})) is False
    assert again.commit(stage(again, 1, {DAY: [2]})) is True
    assert offsets_seen(sink) == [0, 1, 2]
    assert hidden_files(sink, "staging") == []


def test_a_driver_that_opened_the_table_without_a_start(sink: TableSinkSettings) -> None:
    """With Spark Connect batches run in another process than the start: it opens the table anew."""
    opened(sink)
    server = open_table(sink, "archive")
    first = stage(server, 0, {DAY: [0]})
    opened(sink)
    with pytest.raises(SupersededError):
        server.commit(first)
    server = open_table(sink, "archive")
    assert server.compact(1 << 50) == 0
    assert server.commit(stage(server, 0, {DAY: [0]}))
    assert offsets_seen(sink) == [0]


def test_a_start_takes_no_attempt_that_came_after_it(local: TableSinkSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    server = open_table(local, "archive")
    batches = []
    with monkeypatch.context() as patch:
        patch.setattr(crash_points, "on_reached", lambda _: batches.append(stage(server, 0, {DAY: [0]})))
        started = opened(local)
    assert server.commit(batches[0])
    assert offsets_seen(local) == [0]
    with pytest.raises(SupersededError):
        started.commit(stage(started, 0, {DAY: [0]}))


@pytest.mark.parametrize("moment", ["start", "look"])
def test_a_start_that_another_start_overtakes_ends_with_that(
    local: TableSinkSettings, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """It took the files of the other's batches for those of another writer."""
    others: list[ParquetBatchTable] = []

    def overtake(*_: object) -> None:
        if not others:
            others.append(made := open_table(local, "archive"))  # type: ignore[arg-type]
            made.recover()
            assert made.commit(stage(made, 0, {DAY: [0]}))

    with monkeypatch.context() as patch:
        if moment == "start":
            patch.setattr(crash_points, "on_reached", overtake)
        else:
            patch.setattr(manifests.CommitLog, "clean", overtake)
        with pytest.raises(SupersededError, match=r"has taken over while this one started, and it ends$"):
            opened(local)
    [other] = others
    assert other.commit(stage(other, 1, {DAY: [1]}))
    assert offsets_seen(local) == [0, 1]


def test_a_start_leaves_a_manifest_that_another_driver_is_writing(
    local: TableSinkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = Path(local.path or "") / "_ottla" / "commits" / ".half"
    with monkeypatch.context() as patch:
        patch.setattr(crash_points, "on_reached", lambda _: writing.touch())
        opened(local)
    assert writing.exists()
    opened(local)
    assert not writing.exists()


def test_attempts_that_were_given_up_leave_nothing(local: TableSinkSettings) -> None:
    made = opened(local)
    for number in range(3):
        stage(made, number, {DAY: [7]})
    assert len(list(Path(local.path or "").glob("_ottla/staging/*"))) == 1
    assert made.commit(stage(made, 3, {DAY: [0]}))
    assert list(Path(local.path or "").glob("_ottla/staging/*")) == []


def test_a_store_that_ignores_the_condition_is_told(
    s3: PlayedS3, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink = settings(s3.url("unconditional"), storage_options=s3.options)
    opened(sink)
    assert "one driver" not in caplog.text
    real = exclusive._s3_client

    class Careless:
        def __init__(self, *arguments: object) -> None:
            self.client = real(*arguments)

        def put_object(self, *, IfNoneMatch: str, **named: object) -> None:  # noqa: N803
            self.client.put_object(**named)

    monkeypatch.setattr(exclusive, "_s3_client", Careless)
    opened(sink)
    assert caplog.text.count("see to it that one driver runs at a time") == 1


def test_an_empty_batch_moves_the_end_offsets(local: TableSinkSettings) -> None:
    made = opened(local)
    batch = stage(made, 0, {})
    assert made.commit(batch)
    assert made.commit(stage(made, 1, {DAY: []}))
    assert made.last_commit() == LastCommit(QUERY, 1, {"events": {"flights": {0: 0}}})


def test_without_partition_columns(tmp_path: Path) -> None:
    sink = settings(str(tmp_path), partition_by=())
    made = opened(sink)
    schema = SCHEMA.remove(0)
    assert made.commit(stage(made, 0, {"": [0, 1]}, schema=schema))
    assert offsets_seen(sink) == [0, 1]
    assert made.compact(1 << 50) == 0


def test_a_driver_that_was_replaced_before_its_commit_ends(sink: TableSinkSettings) -> None:
    stopped = opened(sink)
    assert stopped.commit(stage(stopped, 0, {DAY: [0]}))
    batch = stage(stopped, 1, {DAY: [1]})
    second = opened(sink)
    with pytest.raises(SupersededError, match="has taken over"):
        stopped.commit(batch)
    assert second.commit(stage(second, 1, {DAY: [1]}))
    for number in (1, 2):
        with pytest.raises(
            SupersededError, match=r"another driver of 'archive' .* up to batch 1; batch \d of this one"
        ):
            stopped.commit(stage(stopped, number, {DAY: [number]}))
    assert second.commit(stage(second, 2, {DAY: [2]}))
    assert offsets_seen(sink) == [0, 1, 2]


def at(name: str, monkeypatch: pytest.MonkeyPatch, owner: object, action: Callable[[], None], *, after: bool) -> None:
    """Do something, once, before or after this function is called."""
    original = getattr(owner, name)
    done = []

    def replaced(*arguments: object, **named: object) -> object:
        if after:
            result = original(*arguments, **named)
        if not done:
            done.append(True)
            action()
        return result if after else original(*arguments, **named)

    monkeypatch.setattr(owner, name, replaced)


@pytest.mark.parametrize("name", ["_check_staged", "_manifest", "_is_superseded"])
def test_a_driver_stopped_anywhere_before_the_manifest_ends(
    local: TableSinkSettings, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    stopped = opened(local)
    batch = stage(stopped, 0, {DAY: [0]})
    seconds: list[ParquetBatchTable] = []

    def replace() -> None:
        seconds.append(opened(local))
        seconds[0].commit(stage(seconds[0], 0, {DAY: [0]}))

    if name == "_is_superseded":
        at("append", monkeypatch, manifests.CommitLog, replace, after=False)
    else:
        at(name, monkeypatch, ParquetBatchTable, replace, after=True)
    with pytest.raises(SupersededError):
        stopped.commit(batch)
    assert seconds[0].commit(stage(seconds[0], 1, {DAY: [1]}))
    assert offsets_seen(local) == [0, 1]


def test_a_driver_that_sleeps_longer_than_manifests_are_kept(
    local: TableSinkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "MANIFESTS_KEPT", 3)
    stopped = opened(local)
    batch = stage(stopped, 0, {DAY: [0]})

    def replace() -> None:
        second = opened(local)
        for number in range(10):
            assert second.commit(stage(second, number, {DAY: [number]}))

    at("_superseded", monkeypatch, ParquetBatchTable, lambda: None, after=False)
    at("append", monkeypatch, manifests.CommitLog, replace, after=False)
    with pytest.raises(SupersededError):
        stopped.commit(batch)
    third = opened(local)
    assert third.last_commit() == LastCommit(QUERY, 9, {"events": {"flights": {0: 10}}})
    assert offsets_seen(local) == list(range(10))


def test_a_driver_stopped_in_its_moves_ends_at_its_next_commit(
    sink: TableSinkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = opened(sink)
    batch = stage(stopped, 0, {DAY: [0], NEXT: [1]})
    seconds: list[ParquetBatchTable] = []

    def replace() -> None:
        seconds.append(opened(sink))
        assert seconds[0].commit(stage(seconds[0], 0, {DAY: [0], NEXT: [1]})) is False
        assert seconds[0].commit(stage(seconds[0], 1, {DAY: [2]}))

    at("move_into_place", monkeypatch, table, replace, after=False)
    # Its manifest stands.
    assert stopped.commit(batch)
    with pytest.raises(SupersededError):
        stopped.commit(stage(stopped, 1, {DAY: [2]}))
    assert offsets_seen(sink) == [0, 1, 2]


STEPS = [
    (manifests.CommitLog, "append", False, []),
    (manifests.CommitLog, "append", True, [1, 2, 3]),
    (table, "move_into_place", True, [1, 2, 3]),
    (ParquetBatchTable, "_drop_attempt", True, [1, 2, 3]),
    (manifests.CommitLog, "remove_old", False, [1, 2, 3]),
]


@pytest.mark.parametrize(("owner", "name", "after", "seen"), STEPS)
def test_a_crash_in_a_commit(
    sink: TableSinkSettings, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, after: bool, seen: list[int]
) -> None:
    def die() -> None:
        raise Killed

    made = opened(sink)
    assert made.commit(stage(made, 0, {DAY: [0]}))
    batch = stage(made, 1, {DAY: [1, 2], NEXT: [3]})
    with monkeypatch.context() as patch:
        at(name, patch, owner, die, after=after)
        with pytest.raises(Killed):
            made.commit(batch)
    again = opened(sink)
    assert offsets_seen(sink) == [0, *seen]
    assert hidden_files(sink, "staging") == []
    assert again.commit(stage(again, 1, {DAY: [1, 2], NEXT: [3]})) is not bool(seen)
    assert offsets_seen(sink) == [0, 1, 2, 3]


def test_crashes_between_moves(sink: TableSinkSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.spark.pipelines.tables.parquet import moving

    made = opened(sink)
    original: Callable[..., object] = moving._move
    for number in range(3):
        moved: list[object] = []

        def move(place: object, file: object, number: int = number, moved: list[object] = moved) -> object:
            if len(moved) == number:
                raise Killed
            moved.append(file)
            return original(place, file)

        batch = stage(made, number, {f"2013-01-0{day}": [number * 10 + day] for day in range(1, 5)})
        with monkeypatch.context() as patch:
            patch.setattr(moving, "_AT_ONCE", 1)
            patch.setattr(moving, "_move", move)
            with pytest.raises(Killed):
                made.commit(batch)
        made = opened(sink)
        assert offsets_seen(sink) == [n * 10 + day for n in range(number + 1) for day in range(1, 5)]
        assert made.commit(stage(made, number, {DAY: [99]})) is False


def test_crashes_in_the_start(sink: TableSinkSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    made = opened(sink)
    assert made.commit(stage(made, 0, {DAY: [0]}))
    stage(made, 1, {DAY: [1]})

    def die(point: str) -> None:
        assert point == crash_points.RECOVERING
        raise Killed

    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(crash_points, "on_reached", die)
            with pytest.raises(Killed):
                opened(sink)
    again = opened(sink)
    assert hidden_files(sink, "staging") == []
    assert again.last_commit() == LastCommit(QUERY, 0, {"events": {"flights": {0: 1}}})
    assert again.commit(stage(again, 1, {DAY: [1]}))
    assert offsets_seen(sink) == [0, 1]


def test_a_commit_whose_answer_was_lost_is_not_made_twice(
    local: TableSinkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = opened(local)

    def lose() -> None:
        raise OSError("the connection was lost")

    batch = stage(made, 0, {DAY: [0]})
    with monkeypatch.context() as patch:
        at("append", patch, manifests.CommitLog, lose, after=True)
        with pytest.raises(PipelineError, match="connection was lost"):
            made.commit(batch)
    assert made.commit(stage(made, 0, {DAY: [0]})) is False
    assert made.commit(stage(made, 1, {DAY: [1]})) is True
    assert offsets_seen(local) == [0, 1]


def test_a_later_batch_of_the_query_is_not_undone(local: TableSinkSettings) -> None:
    made = opened(local)
    assert made.commit(stage(made, 5, {DAY: [5]}))
    with pytest.raises(SupersededError):
        made.commit(stage(made, 4, {DAY: [4]}))
    assert offsets_seen(local) == [5]


def test_another_query_goes_on_where_its_runner_allows_it(local: TableSinkSettings) -> None:
    made = opened(local)
    assert made.commit(stage(made, 7, {DAY: [0]}))
    anew = opened(local)
    assert anew.commit(stage(anew, 0, {DAY: [1]}, query="another"))
    assert anew.last_commit() == LastCommit("another", 0, {"events": {"flights": {0: 2}}})
    with pytest.raises(SupersededError):
        anew.commit(stage(anew, 7, {DAY: [0]}))
    assert offsets_seen(local) == [0, 1]


def test_manifests_are_bounded_and_the_last_one_stays(
    local: TableSinkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "MANIFESTS_KEPT", 5)
    made = opened(local)
    for number in range(12):
        assert made.commit(stage(made, number, {DAY: [number]}))
    assert len(hidden_files(local, "commits")) == 5
    (Path(local.path or "") / "_ottla/commits/.half-written").touch()
    for _ in range(3):
        again = opened(local)
    assert len(hidden_files(local, "commits")) == 5
    assert again.last_commit() == LastCommit(QUERY, 11, {"events": {"flights": {0: 12}}})
    assert offsets_seen(local) == list(range(12))


def test_a_manifest_says_what_it_commits(local: TableSinkSettings) -> None:
    made = opened(local)
    assert made.commit(stage(made, 3, {DAY: [0, 1]}, watermark_ms=17))
    written = json.loads((Path(local.path or "") / "_ottla/commits" / f"{1:020d}.json").read_text())
    assert (written["query_id"], written["batch_id"], written["watermark_ms"]) == (QUERY, 3, 17)
    assert written["end_offsets"] == {"events": {"flights": {"0": 2}}}
    [[staged, path, rows, size]] = written["files"]
    assert staged.startswith("_ottla/staging/")
    assert rows == 2
    assert (Path(local.path or "") / path).stat().st_size == size


# What others do to the folder.


def test_a_folder_with_other_files_is_refused(local: TableSinkSettings) -> None:
    folder = Path(local.path or "")
    (folder / "x=1").mkdir(parents=True)
    parquet.write_table(pyarrow.table({"a": [1]}), folder / "x=1" / "a.parquet")
    with pytest.raises(PipelineError, match=r"holds x=1/a.parquet, which no commit of a pipeline names"):
        opened(local)


def test_foreign_files_that_come_later_are_refused_at_the_next_start(local: TableSinkSettings) -> None:
    made = opened(local)
    assert made.commit(stage(made, 0, {DAY: [0]}))
    [file] = Path(local.path or "").glob("day=*/*.parquet")
    (file.parent / "_SUCCESS").touch()
    (file.parent / "notes.txt").touch()
    opened(local)
    foreign = file.parent / re.sub(r"-\d{20}-", "-" + "9" * 20 + "-", file.name)
    foreign.write_bytes(file.read_bytes())
    with pytest.raises(PipelineError, match="which no commit of a pipeline names"):
        opened(local)


def test_a_table_of_another_format_is_refused(local: TableSinkSettings) -> None:
    (Path(local.path or "") / "_delta_log").mkdir(parents=True)
    with pytest.raises(PipelineError, match="is a Delta table"):
        opened(local)


def test_another_pipeline_is_refused(sink: TableSinkSettings) -> None:
    opened(sink)
    with pytest.raises(PipelineError, match="is the table of the pipeline 'archive', and 'clicks' cannot"):
        opened(sink, "clicks")
    with pytest.raises(PipelineError, match="is the table of the pipeline 'archive'"):
        open_table(sink, "clicks").last_commit()


def test_other_partition_columns_are_refused(local: TableSinkSettings) -> None:
    opened(local)
    with pytest.raises(PipelineError, match="is partitioned by day, not by nothing"):
        opened(settings(local.path or "", partition_by=()))


@pytest.mark.parametrize("name", ["table.json", f"commits/{1:020d}.json"])
@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff\xfe", b"null", b'{"format": 2}'])
def test_damaged_files_are_named(local: TableSinkSettings, name: str, content: bytes) -> None:
    made = opened(local)
    assert made.commit(stage(made, 0, {DAY: [0]}))
    (Path(local.path or "") / "_ottla" / name).write_bytes(content)
    for action in (lambda: opened(local), lambda: open_table(local, "archive").last_commit()):
        with pytest.raises(PipelineError, match=rf"{name} is damaged \(.*; restore it from a copy"):
            action()


@pytest.mark.parametrize("key", ["version", "batches", "schema", "files", "end_offsets"])
def test_a_manifest_with_senseless_values_is_damaged(local: TableSinkSettings, key: str) -> None:
    made = opened(local)
    assert made.commit(stage(made, 0, {DAY: [0]}))
    path = Path(local.path or "") / "_ottla/commits" / f"{1:020d}.json"
    for value in (7, "x", [[1]]):
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
        with pytest.raises(PipelineError, match="is damaged"):
            opened(local)


def test_a_committed_file_that_somebody_removed_is_told(
    local: TableSinkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die() -> None:
        raise Killed

    made = opened(local)
    batch = stage(made, 0, {DAY: [0]})
    with monkeypatch.context() as patch:
        at("append", patch, manifests.CommitLog, die, after=True)
        with pytest.raises(Killed):
            made.commit(batch)
    for path in Path(local.path or "").glob("_ottla/staging/*/*"):
        path.unlink()
    with pytest.raises(PipelineError, match="a file of its newest batch"):
        opened(local)


def test_a_staged_file_that_is_gone_or_cut_is_not_committed(local: TableSinkSettings) -> None:
    made = opened(local)
    batch = stage(made, 0, {DAY: [0], NEXT: [1]})
    cut = next(Path(local.path or "").glob("_ottla/staging/*/1.parquet"))
    cut.write_bytes(cut.read_bytes()[:-1])
    with pytest.raises(PipelineError, match="1 of 2 files of batch 0 are not as they were written"):
        made.commit(batch)
    cut.unlink()
    with pytest.raises(PipelineError, match="1 of 2 files"):
        made.commit(batch)
    assert offsets_seen(local) == []
    assert made.commit(stage(made, 0, {DAY: [0], NEXT: [1]}))
    assert offsets_seen(local) == [0, 1]


def test_senseless_settings_are_refused() -> None:
    for sink, words in [
        (TableSinkSettings(format="parquet"), "needs the path"),
        (settings("/x", partition_by=("_day",)), "partition_by _day"),
        (settings("/x", format="csv"), "a table is one of parquet, delta, iceberg"),
    ]:
        with pytest.raises(PipelineSettingsError, match=words):
            open_table(sink, "archive")


def test_a_folder_that_cannot_be_written(s3: PlayedS3, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="s3://nosuchbucket/x"):
        opened(settings("s3://nosuchbucket/x", storage_options=s3.options))
    (tmp_path / "file").touch()
    with pytest.raises(PipelineError, match="cannot be used"):
        opened(settings(str(tmp_path / "file")))


# Schemas.


def test_columns_may_come_and_may_not_change(local: TableSinkSettings) -> None:
    made = opened(local)
    assert made.commit(stage(made, 0, {DAY: [0]}))
    with_tail = SCHEMA.append(pyarrow.field("tail", pyarrow.string()))
    assert made.commit(stage(made, 1, {DAY: [1]}, schema=with_tail, more={"tail": "N1"}))
    assert made.commit(stage(made, 2, {DAY: [2]}))
    other = SCHEMA.append(pyarrow.field("tail", pyarrow.int64()))
    with pytest.raises(PipelineError, match="column tail was string and is int64 now; cast it"):
        made.commit(stage(made, 3, {DAY: [3]}, schema=other, more={"tail": 7}))
    again = opened(local)
    with pytest.raises(PipelineError, match="column tail was string"):
        again.commit(stage(again, 3, {DAY: [3]}, schema=other, more={"tail": 7}))
    with pytest.raises(PipelineError, match="partition_by names day; the rows have partition, offset"):
        again.commit(stage(again, 3, {DAY: [3]}, schema=SCHEMA.remove(0)))


# Readers.


def test_a_reader_in_a_loop_sees_each_row_once(local: TableSinkSettings) -> None:
    """Rows of a batch may appear one file after the other; no row comes twice, and none goes away again."""
    made = opened(local)
    assert made.commit(stage(made, 0, {DAY: [0]}))
    ended = threading.Event()
    failures: list[str] = []
    scans = []

    def read() -> None:
        before: set[int] = set()
        while not ended.is_set() or not scans:
            seen = offsets_seen(local)
            if len(seen) != len(set(seen)) or not before <= set(seen):
                failures.append(f"{seen} after {sorted(before)}")
                return
            before = set(seen)
            scans.append(len(seen))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 60):
        assert made.commit(stage(made, number, {DAY: [number * 2], NEXT: [number * 2 + 1]}))
    ended.set()
    reader.join()
    assert not failures
    assert scans
    assert len(offsets_seen(local)) == 119


def test_committed_files_are_whole_batches(sink: TableSinkSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.spark.pipelines.tables.parquet import moving

    assert sink.path is not None
    with pytest.raises(PipelineError, match="is not a table of a pipeline"):
        committed_files(sink.path, sink.storage_options)
    made = opened(sink)
    assert committed_files(sink.path, sink.storage_options) == []
    assert made.commit(stage(made, 0, {DAY: [0], NEXT: [1]}))
    both = committed_files(sink.path, sink.storage_options)
    assert len(both) == 2
    batch = stage(made, 1, {DAY: [2], NEXT: [3]})
    original = moving._move
    seen = []

    def move(place: object, file: object) -> bool:
        result = original(place, file)  # type: ignore[arg-type]
        seen.append(committed_files(sink.path or "", sink.storage_options))
        return result

    monkeypatch.setattr(moving, "_AT_ONCE", 1)
    monkeypatch.setattr(moving, "_move", move)
    assert made.commit(batch)
    assert seen[0] == both
    assert {len(files) for files in seen} <= {2, 4}
    assert len(committed_files(sink.path, sink.storage_options)) == 4
    assert len(offsets_seen(sink)) == 4
