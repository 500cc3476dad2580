from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.backfill.options import parse_backfill_options
from ottla.spark.backfill.plan import BackfillPlan, make_plan
from ottla.spark.backfill.reading import SegmentRange, read_rows
from support.storage_logs import TOPIC
from support.transacted_logs import TransactedLog

Rows = list[tuple[int, bytes | None, bytes | None]]


@pytest.fixture
def log(tmp_path: Path) -> TransactedLog:
    return TransactedLog(tmp_path)


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., BackfillPlan]:
    """The plan for reading the log without a broker."""

    def plan(**options: str) -> BackfillPlan:
        return make_plan(parse_backfill_options({"segments": str(tmp_path), "subscribe": TOPIC} | options))

    return plan


@pytest.fixture
def rows() -> Callable[..., Rows]:
    """Offset, key and value of what a range holds."""

    def rows(wanted: SegmentRange, **options: Any) -> Rows:
        settings = {"rows_per_batch": 100, "include_headers": False, "fail_on_data_loss": True} | options
        return [
            (row["offset"], row["key"], row["value"])
            for batch in read_rows(wanted, **settings)
            for row in batch.select(["offset", "key", "value"]).to_pylist()
        ]

    return rows


@pytest.fixture
def read(plan: Callable[..., BackfillPlan], rows: Callable[..., Rows]) -> Callable[..., Rows]:
    """Offset, key and value of what a backfill without a broker gives, in order."""

    def read(**options: str) -> Rows:
        return [row for each in plan(**options).ranges for row in rows(each)]

    return read


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of any size, and windows of a few batches."""
    monkeypatch.setattr("ottla.spark.backfill.plan.LEAST_RANGE_BYTES", 100)
    monkeypatch.setattr("ottla.spark.backfill.reading.WINDOW_BYTES", 400)
