"""The results of a demo run, for its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.demo.checks import DemoCheck
from ottla.demo.feed import BucketTotal, Feed
from ottla.demo.processes import Member
from ottla.demo.rebalances import ObservedRebalance


@dataclass(frozen=True, slots=True)
class Sample:
    """How far everything was at one moment: seconds since the first event was sent, and records by task."""

    at_s: float
    done: dict[str, int]


@dataclass(slots=True)
class Results:
    """Everything that the report shows. `began_at` is when the first event was sent, in seconds since 1970."""

    feed: Feed
    partitions: int
    began_at: float = 0.0
    broker_ready_s: float = 0.0
    spark_ready_s: float = 0.0
    total_s: float = 0.0
    online_updates: int = 0
    samples: list[Sample] = field(default_factory=list)
    checks: list[DemoCheck] = field(default_factory=list)
    rebalances: Sequence[ObservedRebalance] = ()
    members: Sequence[Member] = ()
    online: dict[tuple[int, str | None], BucketTotal] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every check passed, and there were some."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    def seconds(self, task: str) -> float | None:
        """When a task had done all events, in seconds since `began_at`; None if it never had."""
        wanted = len(self.feed.events)
        return next((sample.at_s for sample in self.samples if sample.done.get(task, 0) >= wanted), None)
