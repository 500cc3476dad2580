"""Records that need a look of their own, read once more."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.records.record import Record, encode_batch
from ottla.spark.pipelines.queries.inspection import BatchRange, findings
from ottla.spark.pipelines.queries.sources import read_options
from ottla.spark.pipelines.settings.model import SourceSettings
from ottla.spark.source.data_source import OttlaDataSource

pytestmark = pytest.mark.spec("D3")


class OneTaskSpark:
    """Stands for Spark: reads by the source itself, in one task."""

    def __init__(self) -> None:
        self.read = self
        self.mapInArrow = self._mapped
        self._options: dict[str, str] = {}

    def format(self, name: str) -> OneTaskSpark:
        assert name == "ottla"
        return self

    def options(self, **options: str) -> OneTaskSpark:
        self._options = options
        return self

    def load(self) -> OneTaskSpark:
        return self

    def select(self, *columns: str) -> OneTaskSpark:
        assert self._options["columns"] == ",".join(columns)
        return self

    def _mapped(self, function: Any, schema: str) -> list[dict[str, Any]]:
        source = OttlaDataSource(self._options)
        reader = source.reader(source.schema())
        batches = (batch for each in reader.partitions() for batch in reader.read(each))
        return [row for batch in function(batches) for row in batch.to_pylist()]


def test_a_bad_record_is_found_whatever_its_timestamp(fake) -> None:
    """SQL that does not name timestamps reads none."""
    [p] = fake.topic("a", 0)
    records = [Record(0, ms, None, value) for ms, value in ((1, b'{"id": 1}'), (2**62, b"bad"), (3, b"bad"))]
    fake.logs[p].append(encode_batch(records))
    source = SourceSettings(
        name="events",
        bootstrap_servers=fake.bootstrap,
        group_id="g",
        topics=("a",),
        value_format="json",
        schema="id BIGINT",
    )
    options = read_options(source, schema=source.schema, starting="earliest")
    batch = BatchRange({}, {"a": {0: 3}})
    found = cast(
        "list[dict[str, Any]]", findings(cast("Any", OneTaskSpark()), source, options, batch, new_fields=False)
    )
    times = [(each["offset"], each["value"], each["timestamp"] and each["timestamp"].microsecond) for each in found]
    assert times == [(1, b"bad", None), (2, b"bad", 3_000)]
