"""The state of a pipeline in a table with a log, however its format keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.spark.pipelines.tables.contract import LastCommit


@dataclass(frozen=True, slots=True)
class QueryCommits:
    """`order` counts the pipeline's queries; `attempt` is the attempt that committed the last batch."""

    order: int
    batch_id: int
    attempt: int


@dataclass(frozen=True, slots=True)
class PipelineState:
    """A pipeline's state in a table: `driver` is the number of the one that recovered last."""

    driver: int | None
    compactions: int
    queries: Mapping[str, QueryCommits]
    end_offsets: Mapping[str, Mapping[str, Mapping[int, int]]]

    @property
    def last_query(self) -> str | None:
        """The query that committed first the latest."""
        return max(self.queries, key=lambda each: self.queries[each].order, default=None)

    def order_of(self, query: str) -> int:
        """The number of this query, or the next one if it has not committed."""
        known = self.queries.get(query)
        return known.order if known else 1 + max((each.order for each in self.queries.values()), default=0)

    @property
    def last_commit(self) -> LastCommit | None:
        """The newest batch."""
        query = self.last_query
        return None if query is None else LastCommit(query, self.queries[query].batch_id, self.end_offsets)


EMPTY: Final = PipelineState(None, 0, {}, {})
