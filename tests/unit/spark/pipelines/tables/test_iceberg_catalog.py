"""Opening the catalog of an Iceberg table while others do so, and one that cannot be opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables
from sqlalchemy import create_engine, event

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.iceberg.location import IcebergLocation
from support.staged_tables import iceberg_sink

pytestmark = pytest.mark.spec("D3")

TABLES: tuple[Any, ...] = (IcebergTables.__table__, IcebergNamespaceProperties.__table__)


@pytest.fixture
def made_elsewhere(tmp_path: Path) -> Iterator[list[str]]:
    """Another driver makes each table after this one saw that it is missing, and before this one makes it."""
    engine = create_engine(f"sqlite:///{tmp_path}/catalog.db")
    made: list[str] = []

    def make(table: Any, connection: Any, **_: Any) -> None:
        if connection.engine is not engine and table.name not in made:
            made.append(table.name)
            table.create(engine)

    for table in TABLES:
        event.listen(table, "before_create", make)
    yield made
    for table in TABLES:
        event.remove(table, "before_create", make)
    engine.dispose()


def test_each_table_of_a_new_catalog_is_made_by_another_driver_in_between(
    tmp_path: Path, made_elsewhere: list[str]
) -> None:
    location = IcebergLocation(iceberg_sink(tmp_path))
    assert sorted(made_elsewhere) == sorted(table.name for table in TABLES)
    location.make_namespace()
    assert location.load() is None


def test_a_catalog_that_cannot_be_opened_is_said_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"no database, whatever its name says" * 100)
    with pytest.raises(PipelineError, match=r"the Iceberg catalog \w+ cannot be opened: .*file is not a database"):
        IcebergLocation(iceberg_sink(tmp_path))
