"""The reader of a stream whose options are wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from ottla.spark.errors import OptionError, one_sentence

if TYPE_CHECKING:
    import pyarrow


class RefusingStreamReader(DataSourceStreamReader):
    """Raises an OptionError at whatever Spark asks first.

    PySpark 4.3's worker stops the reader that `streamReader` returned also where that raised: the user would see an
    UnboundLocalError in place of the refusal.
    """

    def __init__(self, refusal: OptionError) -> None:
        self._refusal = refusal

    @one_sentence
    def _refuse(self) -> NoReturn:
        raise self._refusal

    def initialOffset(self) -> dict[str, Any]:
        """Raises OptionError."""
        self._refuse()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Raises OptionError."""
        self._refuse()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Raises OptionError."""
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Raises OptionError."""
        self._refuse()
