"""Whether a batch is in a table already, and whether the driver that has it may commit it: the same for all formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ottla.spark.pipelines.errors import SupersededError
from ottla.spark.pipelines.tables.contract import BatchCommit


class CommittedBatch(Protocol):
    """The last batch of a query."""

    @property
    def batch_id(self) -> int:
        """Its number."""
        ...


class CommittedState(Protocol):
    """A pipeline's state in a table."""

    @property
    def driver(self) -> int | None:
        """The number of the driver that recovered last."""
        ...

    @property
    def queries(self) -> Mapping[str, CommittedBatch]:
        """The last batch by query id."""
        ...

    @property
    def last_query(self) -> str | None:
        """The query that committed first the latest."""
        ...


class Driver:
    """One driver, by a number that it chose: once a later one has recovered, the table refuses this one's batches."""

    def __init__(self, last_query: str | None, number: int) -> None:
        """`last_query` is the pipeline's newest query when the table was opened."""
        self.number = number
        self.last_query = last_query
        self.has_recovered = False
        self._expected: set[int | None] = set()

    def recovered(self, state: CommittedState) -> None:
        """From here on, drivers that recover later shut this one out."""
        self.has_recovered = True
        self._expected = {self.number, state.driver}
        self.last_query = state.last_query

    def is_shut_out(self, state: CommittedState) -> bool:
        """Whether a later driver has recovered."""
        return self.has_recovered and state.driver not in self._expected


def is_committed(batch: BatchCommit, driver: Driver, state: CommittedState, where: str) -> bool:
    """Whether the batch is there already. Raises SupersededError if it is another driver's turn."""
    cure = "this driver ends; stop one of the two"
    if driver.is_shut_out(state):
        raise SupersededError(f"another driver of this pipeline has taken over {where}; {cure}")
    known = state.queries.get(batch.query_id)
    if state.last_query not in (driver.last_query, batch.query_id, None):
        raise SupersededError(
            f"query {state.last_query} of this pipeline commits to {where} too, and began after query "
            f"{batch.query_id}; {cure}"
        )
    if known is None or known.batch_id < batch.batch_id:
        return False
    if known.batch_id > batch.batch_id:
        raise SupersededError(
            f"{where} has batch {known.batch_id} of this pipeline, and batch {batch.batch_id} came after it; {cure}"
        )
    return True
