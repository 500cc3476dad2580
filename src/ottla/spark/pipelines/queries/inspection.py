"""Records of a batch that need a look of their own: those that do not parse, and those with fields that are new.

The batch's range of offsets is read once more, and only what is found leaves the tasks. So any query can have dead
letters, whatever its steps make of the records, and a batch that runs again finds the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.spark.connection import BOOTSTRAP
from ottla.spark.given import KAFKA_PREFIX
from ottla.spark.pipelines.queries.sources import RAW
from ottla.spark.pipelines.settings.model import SourceSettings
from ottla.spark.pipelines.tables.contract import EndOffsets
from ottla.spark.source.offsets import EARLIEST

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from ottla.spark.decoding import DecodingOptions

#: Columns of a dead letter: where it is from, its bytes, and why it does not parse.
DEAD_LETTER_COLUMNS = ("source", "topic", "partition", "offset", "timestamp", "key", "value", "reason")
FIELDS = "new_fields"
_READ = ("topic", "partition", "offset", "timestamp", "key", "value")
_FOUND = (
    "source STRING, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    f"reason STRING, {FIELDS} STRING"
)
#: Options of a source that a read of single ranges keeps, beside the settings of its connection.
_KEPT = ("failondataloss", "fetchoffset.numretries", "fetchoffset.retryintervalms", "kafkaconsumer.polltimeoutms")


@dataclass(frozen=True, slots=True)
class BatchRange:
    """What a batch reads of one source; partitions that `start` lacks from their beginning."""

    start: EndOffsets
    end: EndOffsets

    def parts(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Start and end of partitions that have anything in the batch."""
        found: dict[str, dict[str, tuple[int, int]]] = {}
        for topic, partitions in self.end.items():
            for number, end in partitions.items():
                start = self.start.get(topic, {}).get(number, EARLIEST)
                if start < end and end > 0:
                    found.setdefault(topic, {})[str(number)] = (start, end)
        return found


def later_of(one: EndOffsets, other: EndOffsets) -> EndOffsets:
    """For each partition the later one of two offsets."""
    found = {topic: dict(partitions) for topic, partitions in one.items()}
    for topic, partitions in other.items():
        known = found.setdefault(topic, {})
        known |= {number: max(offset, known.get(number, offset)) for number, offset in partitions.items()}
    return found


def findings(
    spark: SparkSession, source: SourceSettings, options: Mapping[str, str], batch: BatchRange, *, new_fields: bool
) -> DataFrame | None:
    """What needs a look in a batch of a source whose stream has `options`: DEAD_LETTER_COLUMNS and `new_fields`, a JSON
    object for records that parse and have some. None where the batch has nothing of the source.
    """
    from ottla.spark.decoding.options import parse_decoding_options

    parts = batch.parts()
    if not parts or source.value_format == RAW:
        return None
    inspect = Inspection(source.name, parse_decoding_options(options), new_fields=new_fields)
    records = spark.read.format("ottla").options(**_range_options(options, parts)).load()
    return records.select(*_READ).mapInArrow(lambda batches: inspect.run(batches), _FOUND)


def _range_options(options: Mapping[str, str], parts: Mapping[str, Mapping[str, tuple[int, int]]]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in options.items()
        if name.lower() in _KEPT or (name.lower().startswith(KAFKA_PREFIX) and name.lower() != "kafka.group.id")
    }
    bounds = [
        json.dumps({topic: {number: ends[side] for number, ends in each.items()} for topic, each in parts.items()})
        for side in (0, 1)
    ]
    return kept | {
        BOOTSTRAP: options[BOOTSTRAP],
        "assign": json.dumps({topic: [int(number) for number in each] for topic, each in parts.items()}),
        "startingOffsets": bounds[0],
        "endingOffsets": bounds[1],
        "columns": ",".join(_READ),
    }


class Inspection:
    """What a task does: decodes values as the stream does, and keeps the records that need a look."""

    def __init__(self, source: str, decoding: DecodingOptions, *, new_fields: bool) -> None:
        self._source = source
        self._decoding = decoding
        self._new_fields = new_fields

    def run(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """The records that are bad or have new fields."""
        import pyarrow

        from ottla.spark.decoding import decoder
        from ottla.spark.decoding.framing import PREFIX_LENGTH
        from ottla.spark.pipelines.queries.new_fields import UnknownFields

        decode = decoder(self._decoding)
        reason_at = decode.fields.names.index(str(self._decoding.bad_reason_column))
        schema = self._decoding.schema
        prefix = PREFIX_LENGTH if self._decoding.framed else 0
        unknown = UnknownFields(schema, prefix) if self._new_fields and schema is not None else None
        for batch in batches:
            values = batch.column("value").cast(pyarrow.binary())
            reasons = decode.decode(values)[reason_at].to_pylist()
            fields = [None] * len(reasons) if unknown is None else unknown.of(values)
            rows = [place for place, found in enumerate(zip(reasons, fields, strict=True)) if any(found)]
            if not rows:
                continue
            kept = batch.take(pyarrow.array(rows, pyarrow.int64()))
            columns = {"source": pyarrow.array([self._source] * len(rows), pyarrow.string())}
            columns |= dict(zip(_READ, kept.select(list(_READ)).columns, strict=True))
            columns["reason"] = pyarrow.array([reasons[place] for place in rows], pyarrow.string())
            # A bad record is none of the rows, so what else is in it adds nothing.
            found_fields = [None if reasons[place] is not None else fields[place] for place in rows]
            columns[FIELDS] = pyarrow.array(found_fields, pyarrow.string())
            yield pyarrow.RecordBatch.from_pydict(columns)
