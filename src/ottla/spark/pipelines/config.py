"""Settings common to all pipelines, and their TOML file."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from ottla.spark.connection import BOOTSTRAP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class PipelineConfigError(ValueError):
    """A configuration that cannot be run; the message names the setting and the cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """What to read, as which group, and where progress is kept. `checkpoint` is Spark's directory: a pipeline restarted
    on it resumes. `trigger_seconds` is the least time between two batches; with `once` the pipeline ends when it has
    processed what there was at its start.
    """

    bootstrap_servers: str
    topic: str
    group_id: str
    checkpoint: str
    starting_offsets: str = "earliest"
    max_offsets_per_trigger: int | None = None
    trigger_seconds: float = 1.0
    once: bool = False


Config = TypeVar("Config", bound=PipelineConfig)


def load_config(kind: type[Config], path: Path, defaults: Mapping[str, Any] | None = None) -> Config:
    """Read a pipeline's TOML file; `defaults` are for what it does not set. Raises PipelineConfigError."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise PipelineConfigError(f"cannot read {path}: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise PipelineConfigError(f"{path} is not TOML: {problem}") from None
    return parse_config(kind, {**(defaults or {}), **settings})


def parse_config(kind: type[Config], settings: Mapping[str, Any]) -> Config:
    """Check settings by name and type. Raises PipelineConfigError."""
    hints = get_type_hints(kind)
    for name, value in settings.items():
        if name not in hints:
            near = difflib.get_close_matches(name, hints, n=1)
            advice = f"did you mean {near[0]}?" if near else f"known are {', '.join(hints)}"
            raise PipelineConfigError(f"unknown setting {name!r}; {advice}")
        if not _fits(value, hints[name]):
            raise PipelineConfigError(f"setting {name}: {value!r} is not {_spoken(hints[name])}")
    required = [each.name for each in dataclasses.fields(kind) if _is_required(each)]
    missing = [name for name in required if name not in settings]
    if missing:
        raise PipelineConfigError(f"settings missing: {', '.join(missing)}")
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }
    return kind(**values)


def read_stream(spark: SparkSession, config: PipelineConfig, *, include_headers: bool = False) -> DataFrame:
    """The stream a pipeline reads, in the schema of the source."""
    reader = (
        spark.readStream.format("ottla")
        .option(BOOTSTRAP, config.bootstrap_servers)
        .option("subscribe", config.topic)
        .option("startingOffsets", config.starting_offsets)
        .option("kafka.group.id", config.group_id)
        .option("includeHeaders", str(include_headers).lower())
    )
    if config.max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(config.max_offsets_per_trigger))
    return reader.load()


def write_stream(frame: DataFrame, config: PipelineConfig, name: str) -> DataStreamWriter:
    """The start of a pipeline's write: name, checkpoint, trigger, and a scheduling pool of its own."""
    frame.sparkSession.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    writer = frame.writeStream.queryName(name).option("checkpointLocation", config.checkpoint)
    if config.once:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{round(config.trigger_seconds * 1000)} milliseconds")


def _is_required(declared: dataclasses.Field[Any]) -> bool:
    return declared.default is dataclasses.MISSING and declared.default_factory is dataclasses.MISSING


def _fits(value: object, hint: Any) -> bool:
    if isinstance(hint, UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _spoken(hint: Any) -> str:
    names = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
    kinds = [each for each in get_args(hint) if each is not type(None)] if isinstance(hint, UnionType) else [hint]
    return " or ".join(names.get(each, "a list of strings") for each in kinds)
