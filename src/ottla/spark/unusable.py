"""The data source of `format("ottla")` where it cannot run: it says why."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

from ottla.records.extras import MissingExtraError, require_installed
from ottla.spark.errors import VersionMismatchError, one_sentence
from ottla.spark.versions import pyspark_problem


def why_unusable() -> str | None:
    """Name what the data source lacks in this environment; None where nothing is missing."""
    problem = pyspark_problem()
    if problem is not None:
        return problem
    try:
        require_installed('format("ottla")', "spark-source", "pyarrow")
    except MissingExtraError as missing:
        return str(missing)
    return None


class UnusableSource(DataSource):
    """A data source of the same name that refuses every use."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ottla"

    @one_sentence
    def __init__(self, options: dict[str, str]) -> None:
        raise VersionMismatchError(why_unusable() or "the environment changed; start the session again")
