"""Whether a pipeline's SQL keeps state between batches: aggregates, joins of streams, deduplication."""

from __future__ import annotations

from ottla.spark.pipelines.settings.model import PipelineSettings, StepSettings


def step_with_state(settings: PipelineSettings) -> str | None:
    """The first step that keeps state, None where there is none. SQL that cannot be read counts as if it did.

    Raises MissingExtraError.
    """
    streams = {each.name.lower() for each in settings.sources}
    for step in settings.steps:
        if step.deduplicate_by or _keeps_state(step, streams):
            return step.name
        streams.add(step.name.lower())
    return None


def _keeps_state(step: StepSettings, streams: set[str]) -> bool:
    from ottla.records.extras import require_extra

    require_extra("a look at a pipeline's SQL", "pipelines", "sqlglot")
    import sqlglot
    import sqlglot.errors
    from sqlglot import expressions

    try:
        tree = sqlglot.parse_one(step.sql, dialect="spark")
    except sqlglot.errors.SqlglotError:
        return True
    if tree.find(expressions.Group, expressions.Distinct, expressions.AggFunc) is not None:
        return True
    read = [each for each in tree.find_all(expressions.Table) if each.name.lower() in streams]
    if tree.find(expressions.Union) is not None and tree.find(expressions.Join) is None:
        return False
    return len(read) > 1
