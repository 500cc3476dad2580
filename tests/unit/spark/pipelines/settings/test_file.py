"""A pipeline's file: what each kind presets, and every refusal in one sentence with its cure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.spark.pipelines.errors import PipelineSettingsError
from ottla.spark.pipelines.settings.file import load_pipeline
from ottla.spark.pipelines.settings.model import (
    ConsoleSinkSettings,
    DatabaseSinkSettings,
    NewFields,
    PipelineKind,
    PipelineSettings,
    TableSinkSettings,
    TopicSinkSettings,
)

pytestmark = pytest.mark.spec("D3")

TOP = 'name = "p"\ncheckpoint = "checkpoint"\n'
SOURCE = '[source]\nbootstrap_servers = "127.0.0.1:9092"\ntopics = ["a"]\n'
CONSOLE = '[sink]\nkind = "console"\n'
PARQUET = '[sink]\nkind = "parquet"\npath = "table"\n'
JSON = 'value_format = "json"\nschema = "id BIGINT"\n'
TWO_A = '[sources.a]\nbootstrap_servers = "a:1"\ntopics = ["a"]\n'
MIRROR = (
    '[mirror]\nsource_alias = "main"\ntarget_alias = "backup"\nsource_bootstrap_servers = "a:1"\n'
    'target_bootstrap_servers = "b:1"\ntopics = "orders"\n'
)


def _load(folder: Path, text: str, environment: Mapping[str, str] | None = None) -> PipelineSettings:
    path = folder / "p.toml"
    path.write_text(text)
    return load_pipeline(path, environment or {})


def test_a_small_file_has_spark_s_and_our_defaults(tmp_path: Path) -> None:
    found = _load(tmp_path, TOP + SOURCE + CONSOLE)
    assert found.kind is PipelineKind.stream
    assert found.checkpoint == str(tmp_path / "checkpoint")
    assert (found.spark.master, found.trigger.interval_ms, found.output_mode) == ("local[2]", 1_000, "append")
    (source,) = found.sources
    assert (source.name, source.group_id, source.starting_offsets) == ("source", "p", "earliest")
    assert found.sink == ConsoleSinkSettings(rows=20)
    assert [step.sql for step in found.steps] == ["SELECT * FROM source"]


@pytest.mark.spec("S6")
def test_a_topic_without_brokers_is_reached_as_the_source_is(tmp_path: Path) -> None:
    secured = '[source.options]\n"kafka.security.protocol" = "SASL_SSL"\nkafka.sasl.password = "hunter2"\n'
    topic = '[sink]\nkind = "topic"\ntopic = "b"\n'
    letters = '[dead_letters]\nkind = "topic"\ntopic = "d"\n'
    found = _load(tmp_path, TOP + SOURCE + JSON + secured + topic + letters)
    for sink in (found.sink, found.dead_letters):
        assert isinstance(sink, TopicSinkSettings)
        assert sink.options == {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.password": "hunter2"}
    assert "hunter2" not in repr(found)
    for own in ('bootstrap_servers = "b:1"\n', '[sink.options]\nkafka.security.protocol = "SSL"\n'):
        sink = _load(tmp_path, TOP + SOURCE + secured + topic + own).sink
        assert isinstance(sink, TopicSinkSettings)
        assert "kafka.sasl.password" not in sink.options


def test_sources_without_brokers_are_in_the_named_cluster(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(TOP + SOURCE.replace('bootstrap_servers = "127.0.0.1:9092"\n', "") + CONSOLE)
    cluster = {"bootstrap.servers": "c:1", "sasl.password": "hunter2", "client.id": "x"}
    found = load_pipeline(path, {"OTTLA_BOOTSTRAP_SERVER": "c:1"}, cluster)
    assert found.sources[0].options == {"kafka.sasl.password": "hunter2", "kafka.client.id": "x"}
    path.write_text(TOP + SOURCE + CONSOLE)
    assert load_pipeline(path, {}, cluster).sources[0].options == {}


def test_a_byte_order_mark_at_its_head_is_no_text(tmp_path: Path) -> None:
    """As Notepad and PowerShell write one."""
    assert _load(tmp_path, f"\ufeff{TOP}{SOURCE}{CONSOLE}").name == "p"
    (tmp_path / "secret").write_bytes("\ufeffhunter2\r\n".encode())
    found = _load(tmp_path, TOP + SOURCE + '[source.options]\nkafka.client.id = "${file:secret}"\n' + CONSOLE)
    assert found.sources[0].options["kafka.client.id"] == "hunter2"


def test_all_keys_arrive(tmp_path: Path) -> None:
    found = _load(
        tmp_path,
        """
name = "p"
kind = "stream"
checkpoint = "s3://bucket/p/"
output_mode = "append"
new_fields = "add"
[spark]
master = "spark://host:7077"
memory = "2g"
conf.spark.cores.max = 4
[trigger]
interval = "1 minute 30 seconds"
[sources.clicks]
bootstrap_servers = "a:1"
topic_pattern = "clicks-.*"
group_id = "mine"
starting_offsets = "latest"
max_offsets_per_trigger = 10
value_format = "json"
schema = "id BIGINT, at TIMESTAMP"
watermark_column = "at"
watermark_delay = "10 minutes"
[sources.clicks.options]
kafka.security.protocol = "SSL"
failOnDataLoss = false
[sources.views]
bootstrap_servers = "b:1"
topics = ["v1", "v2"]
[tables.people]
format = "csv"
path = "people.csv"
options.header = true
[[steps]]
name = "joined"
sql = "SELECT * FROM clicks JOIN views USING (id)"
deduplicate_by = ["id"]
[[steps]]
sql = "SELECT id, day FROM joined"
[sink]
kind = "iceberg"
catalog = "local"
table = "shop.clicks"
partition_by = ["day"]
compression = "snappy"
compact_to = "never"
[sink.catalog_options]
uri = "sqlite:///${here}/catalog.db"
[dead_letters]
kind = "topic"
bootstrap_servers = "a:1"
topic = "clicks.dead"
""",
    )
    assert found.checkpoint == "s3://bucket/p"
    assert found.new_fields is NewFields.add
    assert dict(found.spark.conf) == {"spark.cores.max": "4"}
    assert found.trigger.interval_ms == 90_000
    clicks, views = found.sources
    assert (clicks.group_id, views.group_id) == ("mine", "p-views")
    assert (clicks.topic_pattern, clicks.max_offsets_per_trigger) == ("clicks-.*", 10)
    assert (clicks.watermark_column, clicks.watermark_delay) == ("at", "10 minutes")
    assert dict(clicks.options) == {"kafka.security.protocol": "SSL", "failOnDataLoss": "false"}
    (people,) = found.tables
    assert (people.path, dict(people.options)) == (str(tmp_path / "people.csv"), {"header": "true"})
    assert [step.name for step in found.steps] == ["joined", "step2"]
    assert isinstance(found.sink, TableSinkSettings)
    assert (found.sink.catalog, found.sink.table, found.sink.compact_to_bytes) == ("local", "shop.clicks", None)
    assert found.sink.catalog_options["uri"] == f"sqlite:///{tmp_path}/catalog.db"
    assert isinstance(found.dead_letters, TopicSinkSettings)


def test_an_archive_keeps_the_origin_by_day(tmp_path: Path) -> None:
    found = _load(tmp_path, 'kind = "archive"\n' + TOP + SOURCE + PARQUET)
    assert isinstance(found.sink, TableSinkSettings)
    assert (found.output_mode, found.sink.path, found.sink.partition_by) == (
        "append",
        str(tmp_path / "table"),
        ("day",),
    )
    (step,) = found.steps
    assert step.sql == "SELECT *, CAST(timestamp AS DATE) AS day FROM source"
    assert (found.sources[0].watermark_column, found.sources[0].watermark_delay) == ("timestamp", "1 hour")


def test_an_online_pipeline_upserts(tmp_path: Path) -> None:
    sql = '[[steps]]\nsql = "SELECT key, count(*) AS n FROM source GROUP BY key"\n'
    sink = '[sink]\nkind = "topic"\ntopic = "totals"\nkey_columns = ["key"]\n'
    found = _load(tmp_path, 'kind = "online"\n' + TOP + SOURCE + sql + sink)
    assert found.output_mode == "update"
    assert found.sink == TopicSinkSettings(
        bootstrap_servers="127.0.0.1:9092", topic="totals", key_columns=("key",), value_format="json"
    )
    database = '[sink]\nkind = "database"\nurl = "sqlite:totals.db"\ntable = "t"\nkey_columns = ["key"]\n'
    other = _load(tmp_path, 'kind = "online"\n' + TOP + SOURCE + sql + database)
    assert isinstance(other.sink, DatabaseSinkSettings)
    assert other.sink.url == f"sqlite:{tmp_path}/totals.db"


def test_a_mirror_is_a_short_file(tmp_path: Path) -> None:
    found = _load(tmp_path, 'kind = "mirror"\n' + TOP + MIRROR + 'refresh_interval = "5 seconds"\n')
    assert found.mirror is not None
    assert (found.mirror.group_id, found.mirror.refresh_interval_ms, found.mirror.groups) == ("p", 5_000, ".*")
    assert (found.sources, found.sink) == ((), None)


def test_brokers_may_come_from_outside(tmp_path: Path) -> None:
    text = TOP + '[source]\ntopics = ["a"]\n' + CONSOLE
    found = _load(tmp_path, text, {"OTTLA_BOOTSTRAP_SERVER": "c:1"})
    assert found.sources[0].bootstrap_servers == "c:1"


REFUSED = {
    "not TOML": ("name = ", "p.toml is not TOML"),
    "unknown at the top": (TOP + "nam = 1\n", "unknown key 'nam' at the top of the file; did you mean 'name'?"),
    "unknown in a table": (
        TOP + SOURCE + 'topicpattern = "x"\n' + CONSOLE,
        "unknown key 'topicpattern' in [source]; did you mean 'topic_pattern'?",
    ),
    "unknown of a sink": (
        TOP + SOURCE + CONSOLE + "path = 1\n",
        "unknown key 'path' in [sink] of kind \"console\"; known are rows",
    ),
    "unknown kind of sink": (
        TOP + SOURCE + '[sink]\nkind = "deltas"\n',
        "[sink] kind: 'deltas' is not known; did you mean 'delta'?",
    ),
    "wrong type": (TOP + SOURCE + "max_offsets_per_trigger = 0\n" + CONSOLE, "0 is not a whole number above 0"),
    "wrong type of a list": (
        TOP + '[source]\ntopics = "a"\n' + CONSOLE,
        "[source] topics: it is not a list of strings",
    ),
    "section that is no table": (TOP + "source = 1\n", "[source] is not a table"),
    "name missing": ('checkpoint = "c"\n', "name is missing; it is a string"),
    "name with a slash": ('name = "a/b"\ncheckpoint = "c"\n', "name: give letters, digits"),
    "name from outside": ('name = "${env:HOME}"\ncheckpoint = "c"\n', "name: must stand in the file itself"),
    "checkpoint missing": ('name = "p"\n', "checkpoint is missing"),
    "checkpoint empty": ('name = "p"\ncheckpoint = " "\n' + SOURCE + CONSOLE, "checkpoint is empty"),
    "source missing": (TOP + CONSOLE, "[source] is missing"),
    "sink missing": (TOP + SOURCE, "[sink] is missing"),
    "kind of sink missing": (TOP + SOURCE + "[sink]\nrows = 3\n", "[sink] kind is missing"),
    "brokers missing": (
        TOP + '[source]\ntopics = ["a"]\n' + CONSOLE,
        "bootstrap_servers is missing; give it here, by --bootstrap-server",
    ),
    "two ways to name topics": (
        TOP + SOURCE + 'topic_pattern = "b"\n' + CONSOLE,
        "topics and topic_pattern contradict each other; give exactly one",
    ),
    "no topics": (
        TOP + '[source]\nbootstrap_servers = "a:1"\n' + CONSOLE,
        "give exactly one of topics and topic_pattern",
    ),
    "same topic twice": (
        TOP + '[source]\nbootstrap_servers = "a:1"\ntopics = ["a", "a"]\n' + CONSOLE,
        "'a' is there twice",
    ),
    "broken pattern": (
        TOP + '[source]\nbootstrap_servers = "a:1"\ntopic_pattern = "("\n' + CONSOLE,
        "[source] topic_pattern: it is not a regular expression",
    ),
    "source and sources": (TOP + SOURCE + "[sources.b]\n" + CONSOLE, "[source] and [sources] contradict each other"),
    "sources without names": (TOP + '[sources]\ntopics = ["a"]\n' + CONSOLE, "write [sources.NAME]"),
    "view with a dash": (TOP + "[sources.a-b]\n" + CONSOLE, "'a-b' is not a name for a view"),
    "option that has a key": (
        TOP + SOURCE + 'options.subscribe = "b"\n' + CONSOLE,
        "[source] options.subscribe: give it as topics",
    ),
    "starting offsets": (
        TOP + SOURCE + 'starting_offsets = "first"\n' + CONSOLE,
        "give earliest or latest or committed",
    ),
    "JSON without schema": (TOP + SOURCE + 'value_format = "json"\n' + CONSOLE, "[source] schema is missing"),
    "schema without JSON": (TOP + SOURCE + 'schema = "id INT"\n' + CONSOLE, "[source] schema: it is of value_format"),
    "watermark without delay": (
        TOP + SOURCE + 'watermark_column = "timestamp"\n' + CONSOLE,
        "[source] watermark_column: it needs watermark_delay, too",
    ),
    "delay without watermark": (
        TOP + SOURCE + 'watermark_delay = "1 hour"\n' + CONSOLE,
        "[source] watermark_delay: it needs watermark_column, too",
    ),
    "no duration": (
        TOP + '[trigger]\ninterval = "10s"\n' + SOURCE + CONSOLE,
        "[trigger] interval: '10s' is not a duration",
    ),
    "no duration at all": (TOP + '[trigger]\ninterval = "0 seconds"\n' + SOURCE + CONSOLE, "is not a duration"),
    "interval of what ends": (
        TOP + '[trigger]\ninterval = "1 second"\navailable_now = true\n' + SOURCE + CONSOLE,
        "[trigger] interval: it contradicts available_now",
    ),
    "master and remote": (
        TOP + '[spark]\nmaster = "yarn"\nremote = "sc://a"\n' + SOURCE + CONSOLE,
        "it contradicts master",
    ),
    "no master": (TOP + '[spark]\nmaster = "host:7077"\n' + SOURCE + CONSOLE, "[spark] master: it is not a master"),
    "no remote": (TOP + '[spark]\nremote = "host:15002"\n' + SOURCE + CONSOLE, "give sc://host:15002"),
    "master in conf": (
        TOP + '[spark.conf]\nspark.master = "yarn"\n' + SOURCE + CONSOLE,
        "[spark] conf.spark.master: give it as master",
    ),
    "steps as a table": (TOP + "[steps]\n" + SOURCE + CONSOLE, "write [[steps]]"),
    "step without SQL": (TOP + SOURCE + CONSOLE + "[[steps]]\n", "[[steps]] 1 sql is missing"),
    "two views of a name": (
        TOP + SOURCE + CONSOLE + '[[steps]]\nname = "Source"\nsql = "SELECT 1"\n',
        "two views have the name 'Source'",
    ),
    "duplicates without watermark": (
        TOP + SOURCE + CONSOLE + '[[steps]]\nsql = "SELECT 1"\ndeduplicate_by = ["id"]\n',
        "deduplicate_by: it needs a watermark",
    ),
    "several sources without SQL": (
        TOP + TWO_A + '[sources.b]\nbootstrap_servers = "a:1"\ntopics = ["b"]\n' + CONSOLE,
        "[[steps]] is missing: several sources",
    ),
    "static table without path": (
        TOP + SOURCE + CONSOLE + '[tables.t]\nformat = "csv"\n',
        "[tables.t] path is missing",
    ),
    "table that changes": (TOP + 'output_mode = "update"\n' + SOURCE + PARQUET, "rows of a table are appended"),
    "table without path": (TOP + SOURCE + '[sink]\nkind = "delta"\n', '[sink] of kind "delta" path is missing'),
    "Iceberg with a path": (TOP + SOURCE + '[sink]\nkind = "iceberg"\npath = "x"\n', "unknown key 'path'"),
    "Iceberg without namespace": (
        TOP + SOURCE + '[sink]\nkind = "iceberg"\ncatalog = "c"\ntable = "t"\n',
        "give it as namespace.table",
    ),
    "no size": (TOP + SOURCE + PARQUET + 'compact_to = "big"\n', "compact_to: 'big' is not a size"),
    "upserts of raw values": (
        TOP + SOURCE + '[sink]\nkind = "topic"\ntopic = "t"\nkey_columns = ["k"]\nvalue_format = "raw"\n',
        'needs value_format = "json"',
    ),
    "database of another kind": (
        TOP + SOURCE + '[sink]\nkind = "database"\nurl = "mysql:x"\ntable = "t"\nkey_columns = ["k"]\n',
        "give sqlite:PATH or jdbc:…",
    ),
    "database without file": (
        TOP + SOURCE + '[sink]\nkind = "database"\nurl = "sqlite:"\ntable = "t"\nkey_columns = ["k"]\n',
        "it names no file",
    ),
    "database without keys": (
        TOP + SOURCE + '[sink]\nkind = "database"\nurl = "sqlite:x"\ntable = "t"\nkey_columns = []\n',
        "name at least one column",
    ),
    "dead letters of raw values": (
        TOP + SOURCE + CONSOLE + '[dead_letters]\nkind = "topic"\ntopic = "d"\n',
        "raw values are never bad",
    ),
    "dead letters on the console": (
        TOP + SOURCE + JSON + CONSOLE + '[dead_letters]\nkind = "console"\n',
        "'console' is not known",
    ),
    "topic of several clusters": (
        TOP
        + TWO_A
        + '[sources.b]\nbootstrap_servers = "b:1"\ntopics = ["b"]\n'
        + '[sink]\nkind = "topic"\ntopic = "t"\n',
        "bootstrap_servers is missing; give it here, since there are several sources",
    ),
    "archive to a topic": (
        'kind = "archive"\n' + TOP + SOURCE + '[sink]\nkind = "topic"\ntopic = "t"\n',
        "needs a table",
    ),
    "archive with steps, no partitions": (
        'kind = "archive"\n' + TOP + SOURCE + PARQUET + '[[steps]]\nsql = "SELECT 1"\n',
        "[sink] partition_by is missing",
    ),
    "online without SQL": ('kind = "online"\n' + TOP + SOURCE + CONSOLE, "[[steps]] is missing"),
    "online to a table": ('kind = "online"\n' + TOP + SOURCE + PARQUET, 'kind = "online" needs upserts'),
    "online that appends": (
        'kind = "online"\noutput_mode = "append"\n' + TOP + SOURCE + CONSOLE + '[[steps]]\nsql = "SELECT 1"\n',
        "append is of kind",
    ),
    "mirror with steps": (
        'kind = "mirror"\n' + TOP + MIRROR + '[[steps]]\nsql = "SELECT 1"\n',
        'kind = "mirror" has no steps',
    ),
    "mirror without its table": ('kind = "mirror"\n' + TOP, "[mirror] is missing"),
    "mirror of another kind": (TOP + SOURCE + CONSOLE + MIRROR, '[mirror] is of kind = "mirror" only'),
    "mirror onto itself": (
        'kind = "mirror"\n' + TOP + MIRROR.replace("backup", "main"),
        "the clusters need two names",
    ),
    "mirror from what is committed": (
        'kind = "mirror"\n' + TOP + MIRROR + 'starting_offsets = "committed"\n',
        "give earliest or latest",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_in_one_sentence(case: str, tmp_path: Path) -> None:
    text, complaint = REFUSED[case]
    with pytest.raises(PipelineSettingsError) as refused:
        _load(tmp_path, text)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "p.toml" in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineSettingsError, match=r"cannot read .*none\.toml: No such file"):
        load_pipeline(tmp_path / "none.toml", {})


def test_a_file_that_is_too_large_is_no_pipeline(tmp_path: Path) -> None:
    with pytest.raises(PipelineSettingsError, match="more than 1 MiB"):
        _load(tmp_path, "#" * (1024 * 1024 + 1))


def test_secrets_are_replaced_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from the file\n")
    options = "[source.options]\nkafka.sasl.password = '${env:PASSWORD} and ${file:secret}'\nplain = '$${env:X}'\n"
    found = _load(tmp_path, TOP + SOURCE + options + CONSOLE, {"PASSWORD": "hunter2"})
    assert found.sources[0].options["kafka.sasl.password"] == "hunter2 and from the file"
    assert found.sources[0].options["plain"] == "${env:X}"
    assert set(found.secrets) == {"hunter2", "from the file"}
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("${env:NONE}", "the environment has no variable NONE; set it"),
        ("${env:EMPTY}", "the variable EMPTY of the environment is empty"),
        ("${file:none}", "the file none cannot be read (No such file or directory)"),
        ("${file:empty}", "the file empty is empty"),
        ("${file:bytes}", "the file bytes is not text"),
        ("${file:large}", "the file large has more than 64 KiB"),
        ("${vault:x}", "${vault:x} is not known; give ${env:NAME} or ${file:PATH}"),
    ],
)
def test_a_missing_secret_is_named(reference: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "bytes").write_bytes(b"\xff")
    (tmp_path / "large").write_text("x" * (64 * 1024 + 1))
    with pytest.raises(PipelineSettingsError) as refused:
        _load(tmp_path, TOP + SOURCE + f"options.a = '{reference}'\n" + CONSOLE, {"EMPTY": ""})
    assert f"[source] options.a: {complaint}" in str(refused.value)


def test_errors_show_no_secret(tmp_path: Path) -> None:
    sink = '[sink]\nkind = "topic"\ntopic = "t"\nvalue_format = "${env:PASSWORD}"\n'
    with pytest.raises(PipelineSettingsError) as refused:
        _load(tmp_path, TOP + SOURCE + sink, {"PASSWORD": "hunter2"})
    assert "hunter2" not in str(refused.value)
    with pytest.raises(PipelineSettingsError) as refused:
        _load(
            tmp_path,
            TOP + SOURCE + '[[steps]]\nname = "${env:PASSWORD}x-"\nsql = "SELECT 1"\n' + CONSOLE,
            {"PASSWORD": "hunter2"},
        )
    assert "***x-" in str(refused.value)
    assert "hunter2" not in str(refused.value)
