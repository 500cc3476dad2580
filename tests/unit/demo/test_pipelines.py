"""The files of the demo's pipelines: any names of columns come out as they went in."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.demo.feed import Event, Feed
from ottla.demo.pipelines import Places, archive_names, has_names_that_differ_by_case, write_pipelines
from ottla.spark.pipelines.settings.model import DatabaseSinkSettings, PipelineSettings, TableSinkSettings

ODD = ("dep delay", "a.b", "`tick`", '"""q" \\', "${env:HOME}", "Ünï;=", "record_offset", "Record_offset", "\x7f\n")


def _pipelines(tmp_path: Path, fields: dict[str, str], **settings: object) -> dict[str, PipelineSettings]:
    feed = Feed("fl.ights", [Event(0, b"k", b"{}", "UA")], fields, **settings)  # type: ignore[arg-type]
    output = tmp_path / "out"
    output.mkdir(exist_ok=True)
    return write_pipelines(feed, Places("here:1", "there:2", feed.name, tmp_path / "scratch", output), 90)


def test_three_files_with_a_group_each(tmp_path: Path) -> None:
    fields = {"carrier": "STRING", "dep_delay": "INT", "origin": "STRING"}
    made = _pipelines(tmp_path, fields, group_field="carrier", measure_field="dep_delay", partition_by=("origin",))
    assert list(made) == ["online", "archive", "mirror"]
    online, archive, mirror = made.values()
    assert (online.sources[0].group_id, archive.sources[0].group_id) == ("online", "archive")
    assert online.sources[0].schema == "`carrier` STRING, dep_delay INT", "no more is decoded"
    assert online.sources[0].watermark_delay == "90 seconds"
    assert isinstance(online.sink, DatabaseSinkSettings)
    assert online.sink.url == f"sqlite:{tmp_path / 'out' / 'online.sqlite'}"
    assert isinstance(archive.sink, TableSinkSettings)
    assert (archive.sink.path, archive.sink.partition_by) == (str(tmp_path / "out" / "archive"), ("origin",))
    assert not archive.sources[0].options
    assert mirror.mirror is not None
    assert (mirror.mirror.topics, mirror.mirror.group_id) == (r"fl\.ights", "mirror")
    assert not mirror.mirror.unchanged_names
    assert sorted(each.name for each in (tmp_path / "out" / "pipelines").iterdir()) == [
        "archive.toml",
        "mirror.toml",
        "online.toml",
    ]


def test_without_a_group_field_the_key_groups(tmp_path: Path) -> None:
    online = _pipelines(tmp_path, {"a": "STRING"})["online"]
    assert online.sources[0].value_format == "raw"
    assert "CAST(key AS STRING) AS key" in online.steps[0].sql


def test_odd_names_are_quoted_in_the_schema_and_plain_in_the_archive(tmp_path: Path) -> None:
    from ottla.spark.decoding.schemas import parse_schema

    archive = _pipelines(tmp_path, dict.fromkeys(ODD, "STRING"))["archive"]
    assert parse_schema(archive.sources[0].schema or "").names == list(ODD)
    for name in ODD:
        assert f"event.`{name.replace('`', '``')}` AS " in archive.steps[0].sql or f"event.{name} AS " in (
            archive.steps[0].sql
        )


def test_names_of_the_archive_are_all_different() -> None:
    feed = Feed("x", [], dict.fromkeys((*ODD, "dep_delay", "DATE"), "STRING"))
    names = archive_names(feed)
    assert names["dep delay"] == "dep_delay"
    assert names["dep_delay"] == "dep_delay_2"
    assert names["record_offset"] == "record_offset_2"
    assert names["DATE"] == "DATE_2", "the day has it"
    assert all(name.isidentifier() or name.strip("_q") == "" or name.startswith("_") for name in names.values())
    assert len({name.lower() for name in names.values()}) == len(names)


@pytest.mark.parametrize(("names", "within"), [(("a", "b"), False), (("a", "A"), True), (("Offset",), True)])
def test_fields_stand_apart_where_names_would_be_there_twice(
    tmp_path: Path, names: tuple[str, ...], within: bool
) -> None:
    archive = _pipelines(tmp_path, dict.fromkeys(names, "STRING"))["archive"]
    assert dict(archive.sources[0].options) == ({"valueColumn": "event"} if within else {})
    assert has_names_that_differ_by_case(Feed("x", [], dict.fromkeys(names, "STRING"))) == (names == ("a", "A"))
