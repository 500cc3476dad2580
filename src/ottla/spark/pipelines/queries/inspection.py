"""Records of a batch that need a look of their own: those that are left out, and those with fields that are new.

The batch's range of offsets is read once more, and only what is found leaves the tasks. So any query can have dead
letters, whatever its steps make of the records, and a batch that runs again finds the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow

from ottla.decoding.framing import PREFIX_LENGTH
from ottla.spark.connection import BOOTSTRAP
from ottla.spark.decoding import DecodingOptions, decoder
from ottla.spark.decoding.options import parse_decoding_options
from ottla.spark.options import KAFKA_PREFIX
from ottla.spark.pipelines.queries.new_fields import UnknownFields
from ottla.spark.pipelines.queries.sources import RAW
from ottla.spark.pipelines.settings.model import SourceSettings
from ottla.spark.pipelines.tables.contract import EndOffsets
from ottla.spark.pipelines.writing.refusals import DEAD_LETTER_TYPES
from ottla.spark.source.offsets import EARLIEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.spark.pipelines.writing.direct import RecordRefusals

#: Columns of a dead letter: where it is from, its bytes, and why it does not parse.
DEAD_LETTER_COLUMNS = ("source", "topic", "partition", "offset", "timestamp", "key", "value", "reason")
FIELDS = "new_fields"
_READ = ("topic", "partition", "offset", "timestamp", "key", "value")
_FOUND = f"{DEAD_LETTER_TYPES}, {FIELDS} STRING"
#: Options of a source that a read of single ranges keeps, beside the settings of its connection.
_KEPT = ("failondataloss", "fetchoffset.numretries", "fetchoffset.retryintervalms", "kafkaconsumer.polltimeoutms")


@dataclass(frozen=True, slots=True)
class BatchRange:
    """A batch's range of one source; partitions that `start` lacks are read from their beginning."""

    start: EndOffsets
    end: EndOffsets

    def ranges(self) -> dict[str, dict[str, tuple[int, int]]]:
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
    spark: SparkSession,
    source: SourceSettings,
    options: Mapping[str, str],
    batch: BatchRange,
    *,
    new_fields: bool,
    refusals: RecordRefusals | None = None,
) -> DataFrame | None:
    """Find the records of a batch that need a look; `options` are those of the source's stream.

    The columns are DEAD_LETTER_COLUMNS and `new_fields`, a JSON object for records that parse and have some. `refusals`
    find the records whose rows the sink left out. None where the batch has nothing of the source to be found.
    """
    ranges = batch.ranges()
    decoding = None if source.value_format == RAW else parse_decoding_options(options)
    if not ranges or (decoding is None and refusals is None):
        return None
    inspect = Inspection(source.name, decoding, new_fields=new_fields, refusals=refusals)
    records = spark.read.format("ottla").options(**_range_options(options, ranges, inspect.columns)).load()
    return records.select(*inspect.columns).mapInArrow(lambda batches: inspect.run(batches), _FOUND)


def _range_options(
    options: Mapping[str, str], ranges: Mapping[str, Mapping[str, tuple[int, int]]], columns: Sequence[str]
) -> dict[str, str]:
    kept = {
        name: value
        for name, value in options.items()
        if name.lower() in _KEPT or (name.lower().startswith(KAFKA_PREFIX) and name.lower() != "kafka.group.id")
    }
    bounds = [
        json.dumps({topic: {number: ends[side] for number, ends in each.items()} for topic, each in ranges.items()})
        for side in (0, 1)
    ]
    return kept | {
        BOOTSTRAP: options[BOOTSTRAP],
        "assign": json.dumps({topic: [int(number) for number in each] for topic, each in ranges.items()}),
        "startingOffsets": bounds[0],
        "endingOffsets": bounds[1],
        "columns": ",".join(columns),
        "failOnBadTimestamp": "false",  # Of a record that is looked at for something else.
    }


class Inspection:
    """A task that decodes values as the stream does, and keeps the records that need a look.

    `decoding` is None for values as they are; `refusals` say of records that parse why their rows were left out.
    """

    def __init__(
        self,
        source: str,
        decoding: DecodingOptions | None,
        *,
        new_fields: bool,
        refusals: RecordRefusals | None = None,
    ) -> None:
        self._source = source
        self._decoding = decoding
        self._new_fields = new_fields
        self._refusals = refusals
        #: The columns to read; of those that only SQL uses, these are not decoded ones.
        more = {"timestampType", "headers"} & (refusals.conditions.columns if refusals is not None else set())
        self.columns = (*_READ, *sorted(more))

    def run(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """The records that are left out or have new fields."""
        decode = None if self._decoding is None else decoder(self._decoding)
        unknown = self._unknown_fields()
        for batch in batches:
            values = batch.column("value").cast(pyarrow.binary())
            view = batch
            reasons: list[str | None] = [None] * len(values)
            if decode is not None:
                view, reasons = self._decoded(batch, decode.fields.names, decode.decode(values))
            if self._refusals is not None:
                reasons = _with_refusals(view, reasons, self._refusals)
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

    def _unknown_fields(self) -> UnknownFields | None:
        if not self._new_fields or self._decoding is None or self._decoding.schema is None:
            return None
        return UnknownFields(self._decoding.schema, PREFIX_LENGTH if self._decoding.framed else 0)

    def _decoded(
        self, batch: pyarrow.RecordBatch, names: Sequence[str], columns: Sequence[pyarrow.Array]
    ) -> tuple[pyarrow.RecordBatch, list[str | None]]:
        """The batch with decoded columns in the place of `value`, and the reason of each record that is bad."""
        assert self._decoding is not None
        decoded = dict(zip(names, columns, strict=True))
        reasons: list[str | None] = decoded.pop(str(self._decoding.bad_reason_column)).to_pylist()
        others = {name: batch.column(name) for name in batch.schema.names if name != "value"}
        return pyarrow.RecordBatch.from_pydict(others | decoded), reasons


def _with_refusals(
    view: pyarrow.RecordBatch, reasons: Sequence[str | None], refusals: RecordRefusals
) -> list[str | None]:
    """The reasons, and of records that parse those of `refusals`."""
    # Tasks that read records themselves have times in UTC, Spark those of its session.
    at = view.schema.get_field_index("timestamp")
    view = view.set_column(at, "timestamp", view.column(at).cast(pyarrow.timestamp("us", "UTC")))
    found = iter(refusals.of(view.filter(pyarrow.array([each is None for each in reasons]))))
    return [next(found) if each is None else each for each in reasons]
