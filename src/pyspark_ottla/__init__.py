"""`format("ottla")` in any Spark session, without registration.

Spark looks for modules named `pyspark_*` beside its own Python and registers the `DefaultSource` of each. An import
that fails would only leave the format unknown, so what is missing here is said when the format is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.spark.unusable import why_unusable

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]

DefaultSource: type[DataSource]

if why_unusable() is None:
    from ottla.spark.source.data_source import OttlaDataSource as DefaultSource
else:
    from ottla.spark.unusable import UnusableSource as DefaultSource
