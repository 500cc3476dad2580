"""Which partitions and topics `ottla topic describe` shows, by the options that Kafka's own tool has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ottla.ops.cluster_status import PartitionStatus, TopicStatus


@dataclass(frozen=True, slots=True)
class Filters:
    """The options as given; a partition is shown if one of those given fits (`TopicCommand.DescribeOptions`)."""

    under_replicated: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False
    offline: bool = False
    with_overrides: bool = False
    exclude_internal: bool = False

    @property
    def only_partitions(self) -> bool:
        """Whether partitions are chosen, so that topics without such a partition are left out."""
        return self.under_replicated or self.under_min_isr or self.at_min_isr or self.offline

    def apply(self, topics: Sequence[TopicStatus]) -> list[TopicStatus]:
        """The topics, with those of their partitions that are to be shown."""
        shown = [
            each
            for each in topics
            if not (self.exclude_internal and each.is_internal) and (each.overrides or not self.with_overrides)
        ]
        if not self.only_partitions:
            return shown
        chosen = (replace(each, partitions=tuple(filter(self._fits, each.partitions))) for each in shown)
        return [each for each in chosen if each.partitions]

    def _fits(self, partition: PartitionStatus) -> bool:
        checks: Sequence[tuple[bool, Callable[[], bool]]] = (
            (self.under_replicated, lambda: partition.is_under_replicated),
            (self.under_min_isr, lambda: partition.is_under_min_isr),
            (self.at_min_isr, lambda: partition.is_at_min_isr),
            (self.offline, lambda: partition.is_offline),
        )
        return any(wanted and check() for wanted, check in checks)
