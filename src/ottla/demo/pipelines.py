"""The demo's three pipelines, each a file for `ottla pipeline`: written to the output folder, and read from there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.demo.feed import Feed

if TYPE_CHECKING:
    from ottla.spark.pipelines.settings.model import PipelineSettings

GROUPS = ("online", "archive", "mirror")
ARCHIVE = "archive"
ONLINE = "online.sqlite"
TOTALS = "totals"
# Clusters as the mirror names them: the topic is `first.flights` at the second one.
SOURCE_ALIAS, TARGET_ALIAS = "first", "second"
# So that the bars move: the archive and the mirror take what is there in pieces.
MOST_RECORDS_PER_BATCH = 50_000
#: Where a record came from, so that anybody can check that all are there, once; and what SQL makes it of.
RECORD_COLUMNS = {
    "record_key": "CAST(key AS STRING)",
    "record_timestamp": "timestamp",
    "record_partition": "partition",
    "record_offset": "offset",
}
_SOURCE_COLUMNS = frozenset({"key", "value", "topic", "partition", "offset", "timestamp", "timestamptype", "headers"})
_EVENT = "event"
# Delta does not allow some of these in the name of a column, and others need quotes wherever they are used.
_NOT_IN_A_NAME = re.compile(r"\W")
_ONLINE = """\
# {name}: events{measure} per {group} and {bucket}, as they change.
name = "online"
kind = "online"
checkpoint = {checkpoint}

[source]
bootstrap_servers = {brokers}
topics = [{topic}]
{values}watermark_column = "timestamp"
watermark_delay = "{watermark_s} seconds"

[[steps]]
sql = {sql}

[sink]
kind = "database"
url = {url}
table = {table}
key_columns = ["bucket", "key"]
"""
_ARCHIVE = """\
# {name}: every event once, with its columns, and with the partition and offset that it came from.
name = "archive"
kind = "archive"
checkpoint = {checkpoint}

[source]
bootstrap_servers = {brokers}
topics = [{topic}]
max_offsets_per_trigger = {most}
value_format = "json"
schema = {schema}
{options}
[[steps]]
sql = {sql}

[sink]
kind = "delta"
path = {path}
partition_by = [{partition_by}]
"""
_MIRROR = """\
# {name}: every record to a second cluster, to the same partition of a topic named as MirrorMaker 2 would.
name = "mirror"
kind = "mirror"
checkpoint = {checkpoint}

[mirror]
source_alias = {source_alias}
source_bootstrap_servers = {brokers}
target_alias = {target_alias}
target_bootstrap_servers = {target}
topics = {topics}
max_offsets_per_trigger = {most}
"""


@dataclass(frozen=True, slots=True)
class Places:
    """Both brokers' addresses, the topic, the scratch folder, the folder that stays for the user."""

    source: str
    target: str
    topic: str
    scratch: Path
    output: Path

    @property
    def archive(self) -> Path:
        """The folder of the archive, a Delta table."""
        return self.output / ARCHIVE

    @property
    def online(self) -> Path:
        """The SQLite file with the online totals."""
        return self.output / ONLINE

    @property
    def mirrored(self) -> str:
        """The topic's name at the second broker."""
        return f"{SOURCE_ALIAS}.{self.topic}"


def write_pipelines(feed: Feed, places: Places, watermark_s: int) -> dict[str, PipelineSettings]:
    """Write the three files to `pipelines` in the output folder, and read them; gives their settings by group.

    Raises OSError, PipelineSettingsError.
    """
    from ottla.spark.pipelines.settings.file import load_pipeline

    folder = places.output / "pipelines"
    folder.mkdir(exist_ok=True)
    texts = {
        "online": _online_file(feed, places, watermark_s),
        "archive": _archive_file(feed, places),
        "mirror": _mirror_file(feed, places),
    }
    found = {}
    for name, text in texts.items():
        path = folder / f"{name}.toml"
        path.write_text(text, encoding="utf-8")
        found[name] = load_pipeline(path, {})
    return found


def archive_names(feed: Feed) -> dict[str, str]:
    """The archive's column of each field: its name in letters, digits and _, with a number where that is taken."""
    taken = {*RECORD_COLUMNS, feed.date_column.lower()}
    found = {}
    for field in feed.fields:
        plain = name = _NOT_IN_A_NAME.sub("_", field)
        number = 1
        while name.lower() in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name.lower())
        found[field] = name
    return found


def has_names_that_differ_by_case(feed: Feed) -> bool:
    """Whether Spark has to regard the case of names."""
    return len({name.lower() for name in feed.fields}) < len(feed.fields)


def _online_file(feed: Feed, places: Places, watermark_s: int) -> str:
    group, measure = feed.group_field, feed.measure_field
    key = "CAST(key AS STRING)" if group is None else _name(group)
    wanted = [each for each in (group, measure) if each is not None]
    values = f'value_format = "json"\nschema = {_text(_ddl(feed, wanted))}\n' if wanted else ""
    total = "CAST(NULL AS DOUBLE)" if measure is None else f"sum(CAST({_name(measure)} AS DOUBLE))"
    known = "CAST(0 AS BIGINT)" if measure is None else f"count({_name(measure)})"
    sql = [
        "SELECT",
        "  window.start AS bucket,",
        f"  {key} AS key,",
        "  count(*) AS events,",
        f"  {known} AS measured,",
        f"  {total} AS total",
        "FROM source",
        f"GROUP BY window(timestamp, '{feed.bucket}'), {key}",
    ]
    return _ONLINE.format(
        name=_comment(feed.name),
        measure=f" and the sum of {_comment(measure)}" if measure else "",
        group=_comment(group or "key"),
        bucket=feed.bucket,
        values=values,
        watermark_s=watermark_s,
        sql=_lines(sql),
        url=_text(f"sqlite:../{ONLINE}"),
        table=_text(TOTALS),
        **_common(places, "online"),
    )


def _archive_file(feed: Feed, places: Places) -> str:
    # Fields with the name of a column of the source, or of each other, stand within a column of their own.
    within = has_names_that_differ_by_case(feed) or any(name.lower() in _SOURCE_COLUMNS for name in feed.fields)
    before = f"{_EVENT}." if within else ""
    columns = {f"{before}{_name(field)}": name for field, name in archive_names(feed).items()}
    columns |= {value: name for name, value in RECORD_COLUMNS.items()}
    if feed.day_fields is None:
        columns["CAST(timestamp AS DATE)"] = feed.date_column
    selected = [
        value if value in (name, _name(name)) else f"{value} AS {_name(name)}" for value, name in columns.items()
    ]
    sql = ["SELECT", *(f"  {each}," for each in selected[:-1]), f"  {selected[-1]}", "FROM source"]
    names = archive_names(feed)
    return _ARCHIVE.format(
        name=_comment(feed.name),
        most=MOST_RECORDS_PER_BATCH,
        schema=_text(_ddl(feed, feed.fields)),
        options=f'\n[source.options]\nvalueColumn = "{_EVENT}"\n' if within else "",
        sql=_lines(sql),
        path=_text(f"../{ARCHIVE}"),
        partition_by=", ".join(_text(names.get(each, each)) for each in feed.partition_by),
        **_common(places, "archive"),
    )


def _mirror_file(feed: Feed, places: Places) -> str:
    return _MIRROR.format(
        name=_comment(feed.name),
        source_alias=_text(SOURCE_ALIAS),
        target_alias=_text(TARGET_ALIAS),
        target=_text(places.target),
        topics=_text(re.escape(places.topic)),
        most=MOST_RECORDS_PER_BATCH,
        **_common(places, "mirror"),
    )


def _common(places: Places, name: str) -> Mapping[str, str]:
    checkpoint = places.scratch / "checkpoints" / name
    return {"checkpoint": _text(str(checkpoint)), "brokers": _text(places.source), "topic": _text(places.topic)}


def _ddl(feed: Feed, names: Iterable[str]) -> str:
    return ", ".join(f"{_name(name)} {feed.fields[name]}" for name in names)


def _name(name: str) -> str:
    """A name in SQL, in quotes where it needs them."""
    if re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)+", name):  # No word of SQL's has an underscore.
        return name
    return "`" + name.replace("`", "``") + "`"


def _text(text: str) -> str:
    """A string of TOML; what would be a reference in a pipeline's file is none."""
    return json.dumps(text.replace("${", "$${"), ensure_ascii=False).replace("\x7f", "\\u007f")


def _lines(lines: Iterable[str]) -> str:
    """A string of TOML over several lines."""
    inner = (_text(line)[1:-1].replace('\\"', '"').replace('"""', '""\\"') for line in lines)
    return '"""\n' + "".join(f"{line}\n" for line in inner) + '"""'


def _comment(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)
