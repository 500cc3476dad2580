"""A pipeline's state as Delta's `txn` actions, each a name and a number: its queries, their last batch, and offsets.

Each application id begins `ottla/<pipeline>/`. What there is of them is bounded by the partitions that the pipeline
reads and the queries (checkpoints) that it ever had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

from ottla.spark.pipelines.tables.contract import BatchCommit
from ottla.spark.pipelines.tables.pipeline_state import PipelineState, QueryCommits

#: The version of an offset, or a source, that a later batch no longer has.
_GONE: Final = -1
#: The version of a source that the last batch has.
_THERE: Final = 1


def pipeline_state(pipeline: str, versions: Mapping[str, int]) -> PipelineState:
    """Of all `txn` actions of a table."""
    driver, compactions = None, 0
    queries: dict[str, dict[str, int]] = {}
    offsets: dict[str, dict[str, dict[int, int]]] = {}
    prefix = _prefix(pipeline)
    for app_id, version in versions.items():
        if not app_id.startswith(prefix):
            continue
        kind, *names = map(unquote, app_id[len(prefix) :].split("/"))
        if kind == "driver":
            driver = version
        elif kind == "compactions":
            compactions = version
        elif kind == "query":
            queries.setdefault(names[0], {})[names[1]] = version
        elif kind == "source" and version != _GONE:
            offsets.setdefault(names[0], {})
        elif kind == "offset" and version != _GONE:
            offsets.setdefault(names[0], {}).setdefault(names[1], {})[int(names[2])] = version
    found = {query: QueryCommits(each["order"], each["batch"], each["attempt"]) for query, each in queries.items()}
    return PipelineState(driver, compactions, found, offsets)


def driver_entry(pipeline: str, driver: int) -> dict[str, int]:
    """Return the entry of a recovered driver."""
    return {f"{_prefix(pipeline)}driver": driver}


def compaction_entry(pipeline: str, number: int) -> dict[str, int]:
    """Return the entry of a committed compaction, counted from 1."""
    return {f"{_prefix(pipeline)}compactions": number}


def batch_entries(pipeline: str, state: PipelineState, batch: BatchCommit, attempt: int) -> dict[str, int]:
    """Return a batch's changes of `state`, by application id."""
    query = f"query/{quote(batch.query_id, safe='')}"
    changed = {f"{query}/batch": batch.batch_id, f"{query}/attempt": attempt}
    if batch.query_id not in state.queries:
        changed[f"{query}/order"] = state.order_of(batch.query_id)
    before, after = _offset_entries(state.end_offsets), _offset_entries(batch.end_offsets)
    changed |= {name: value for name, value in after.items() if before.get(name) != value}
    changed |= dict.fromkeys(before.keys() - after.keys(), _GONE)
    prefix = _prefix(pipeline)
    return {prefix + name: value for name, value in changed.items()}


def _offset_entries(offsets: Mapping[str, Mapping[str, Mapping[int, int]]]) -> dict[str, int]:
    found = {}
    for source, topics in offsets.items():
        found[f"source/{quote(source, safe='')}"] = _THERE
        for topic, partitions in topics.items():
            start = f"offset/{quote(source, safe='')}/{quote(topic, safe='')}"
            found |= {f"{start}/{partition}": offset for partition, offset in partitions.items()}
    return found


def _prefix(pipeline: str) -> str:
    return f"ottla/{quote(pipeline, safe='')}/"
