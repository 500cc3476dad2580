"""A pipeline's state as a property of an Iceberg table, `ottla.pipeline.<name>`, in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ottla.spark.pipelines.tables.contract import BatchCommit
from ottla.spark.pipelines.tables.pipeline_state import EMPTY, PipelineState, QueryCommits


def property_name(pipeline: str) -> str:
    """The name of the property."""
    return f"ottla.pipeline.{pipeline}"


def pipeline_state(pipeline: str, properties: Mapping[str, str]) -> PipelineState:
    """Of the table's properties. Raises ValueError, KeyError or TypeError if the property was damaged."""
    text = properties.get(property_name(pipeline))
    if text is None:
        return EMPTY
    found: Any = json.loads(text)
    queries = {query: QueryCommits(**each) for query, each in found["queries"].items()}
    offsets = {
        source: {topic: {int(number): end for number, end in ends.items()} for topic, ends in topics.items()}
        for source, topics in found["end_offsets"].items()
    }
    return PipelineState(found["driver"], found["compactions"], queries, offsets)


def as_property(pipeline: str, state: PipelineState) -> dict[str, str]:
    """The property; `query_id` and `batch_id` are there for people, `queries` says the same and more."""
    last = state.last_commit
    text = json.dumps(
        {
            "query_id": None if last is None else last.query_id,
            "batch_id": None if last is None else last.batch_id,
            "end_offsets": state.end_offsets,
            "queries": {
                query: {"order": each.order, "batch_id": each.batch_id, "attempt": each.attempt}
                for query, each in state.queries.items()
            },
            "driver": state.driver,
            "compactions": state.compactions,
        }
    )
    return {property_name(pipeline): text}


def with_batch(state: PipelineState, batch: BatchCommit, attempt: int) -> PipelineState:
    """The state after the batch."""
    query = QueryCommits(state.order_of(batch.query_id), batch.batch_id, attempt)
    offsets = {
        source: {topic: dict(ends) for topic, ends in topics.items() if ends}
        for source, topics in batch.end_offsets.items()
    }
    return replace(state, queries={**state.queries, batch.query_id: query}, end_offsets=offsets)
