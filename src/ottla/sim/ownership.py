"""Partition ownership as reported by the members; detects two owners at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.sim.group_consumer import SimulatedConsumer
from ottla.sim.witness import Wrong


class Ownership:
    """The rebalance listener of all members.

    Members that the coordinator has removed may still believe that they own partitions, until they are notified (their
    commits are refused): they are not counted. Nor are static members whose place was kept while they did not join.
    `member_ids` returns the members that joined the current generation.
    """

    def __init__(self, member_ids: Callable[[], frozenset[str]], story: Callable[[], str]) -> None:
        self._member_ids = member_ids
        self._story = story
        self._owners: dict[int, list[SimulatedConsumer]] = {}

    def claimed(self, member: SimulatedConsumer, partitions: Iterable[int]) -> None:
        """See `OwnershipListener`. Raises Wrong if another member of the group owns one of them."""
        present = self._member_ids()
        for partition in partitions:
            owners = self._owners.setdefault(partition, [])
            for other in owners:
                if other.member_id in present and member.member_id in present:
                    raise Wrong(
                        f"partition {partition} is owned by {other.name} (generation {other.generation_id}) and by "
                        f"{member.name} (generation {member.generation_id})\n{self._story()}"
                    )
            owners.append(member)

    def released(self, member: SimulatedConsumer, partitions: Iterable[int]) -> None:
        """See `OwnershipListener`."""
        for partition in partitions:
            self._owners[partition].remove(member)
