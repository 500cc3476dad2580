"""Which sink settings mean."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from ottla.spark.pipelines.errors import PipelineSettingsError
from ottla.spark.pipelines.settings.model import (
    ConsoleSinkSettings,
    DatabaseSinkSettings,
    PipelineKind,
    PipelineSettings,
    SinkSettings,
    TableSinkSettings,
    TopicSinkSettings,
)
from ottla.spark.pipelines.sinks.databases import JdbcSink, SqliteSink
from ottla.spark.pipelines.sinks.opening import ConsoleSink, open_dead_letters, open_sink
from ottla.spark.pipelines.sinks.tables import TableSink
from ottla.spark.pipelines.sinks.topics import TopicSink

TABLE = TableSinkSettings(format="parquet", path="/t")
TOPIC = TopicSinkSettings(bootstrap_servers="b:9092", topic="t")


def _settings(sink: SinkSettings | None, **more: Any) -> PipelineSettings:
    return PipelineSettings(name="p", kind=PipelineKind.stream, checkpoint="/c", sink=sink, **more)


@pytest.mark.parametrize(
    ("sink", "kind"),
    [
        (TABLE, TableSink),
        (TOPIC, TopicSink),
        (DatabaseSinkSettings(url="sqlite:/x.db", table="r", key_columns=("k",)), SqliteSink),
        (DatabaseSinkSettings(url="jdbc:derby:x", table="r", key_columns=("k",)), JdbcSink),
        (ConsoleSinkSettings(), ConsoleSink),
    ],
)
def test_each_kind_has_its_sink_that_travels(sink: SinkSettings, kind: type) -> None:
    opened = open_sink(_settings(sink))
    assert type(opened) is kind
    assert type(pickle.loads(pickle.dumps(opened))) is kind


def test_a_table_takes_new_rows_only() -> None:
    with pytest.raises(PipelineSettingsError, match="output_mode = update writes rows again that changed"):
        open_sink(_settings(TABLE, output_mode="update"))


def test_rows_need_a_place_and_dead_letters_need_none() -> None:
    with pytest.raises(PipelineSettingsError, match="pipeline p has no sink"):
        open_sink(_settings(None))
    assert open_dead_letters(_settings(TABLE)) is None
    assert isinstance(open_dead_letters(_settings(TABLE, dead_letters=TABLE)), TableSink)
    assert isinstance(open_dead_letters(_settings(TABLE, dead_letters=TOPIC)), TopicSink)
