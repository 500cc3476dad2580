"""Which SQL keeps state."""

from __future__ import annotations

import pytest

from ottla.spark.pipelines.queries.starting import step_with_state
from ottla.spark.pipelines.settings.model import PipelineKind, PipelineSettings, SourceSettings, StepSettings


def _step(sql: str, **more: tuple[str, ...]) -> str | None:
    sources = tuple(
        SourceSettings(name=each, bootstrap_servers="b", group_id="g", topics=(each,)) for each in ("events", "others")
    )
    steps = (StepSettings(name="first", sql="SELECT * FROM events"), StepSettings(name="second", sql=sql, **more))
    settings = PipelineSettings(name="p", kind=PipelineKind.stream, checkpoint="c", sources=sources, steps=steps)
    return step_with_state(settings)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, CAST(at AS DATE) AS day FROM first WHERE id > 3",
        "SELECT id, name FROM first JOIN users USING (id)",
        "SELECT id FROM first UNION ALL SELECT id FROM others",
        "SELECT explode(items) AS item FROM first",
    ],
)
def test_rows_by_themselves_need_none(sql: str) -> None:
    assert _step(sql) is None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM first",
        "SELECT id, window(at, '1 minute') FROM first GROUP BY 1, 2",
        "SELECT DISTINCT id FROM first",
        "SELECT a.id FROM first a JOIN others b ON a.id = b.id",
        "SELECT id FROM first WHERE id IN (SELECT id FROM others)",
        "SELECT this is no SQL (",
    ],
)
def test_aggregates_and_joins_of_streams_keep_some(sql: str) -> None:
    assert _step(sql) == "second"


def test_deduplication_keeps_some() -> None:
    assert _step("SELECT id FROM first", deduplicate_by=("id",)) == "second"
