"""The roles that this broker's own controller gives to its replicas, as deltas of the image."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.control_requests import lacks_log
from ottla.cluster.image import RoleAction, hosted_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.broker.control.hosting import Hosting
    from ottla.broker.slices import LoopSlices
    from ottla.cluster.controller_events import PartitionKey
    from ottla.cluster.image import ClusterImage, ImageDelta, RoleChange, TopicDelta, TopicImage


class DeltaHost:
    """Applies deltas to the replicas that the broker hosts (`metadata_publisher.Host`)."""

    def __init__(self, hosting: Hosting, slices: LoopSlices) -> None:
        self._hosting = hosting
        self._slices = slices
        #: Partitions that this broker refused to lead, since it has lost their logs.
        self._refused: set[PartitionKey] = set()
        #: Roles that a full disk kept from being taken.
        self._untaken: dict[PartitionKey, RoleChange] = {}
        #: Called with the partitions whose roles were refused so far and are taken now, and with those refused now.
        self.on_roles: Callable[[Sequence[PartitionKey], Sequence[PartitionKey]], None] = lambda taken, refused: None

    async def begin(self, delta: ImageDelta) -> None:
        """Become leader or follower of partitions, before clients learn of it. Raises DiskError, ZkError.

        Roles that need a log which is lost are refused. Where the disk has no room for a replica, the others continue,
        as at an election, and it is made later (`take_again`); a new one of a change that is then undone fails.
        """
        taken: list[PartitionKey] = []
        refused: list[PartitionKey] = []
        shared = (delta, self._hosting, self._untaken, self._refused, taken, refused)
        await self._hosting.take_roles([_DeltaRoles(each, *shared) for each in delta.topics if each.after is not None])
        if taken or refused:
            self._refused.difference_update(taken)
            self._refused.update(refused)
            self._hosting.refused.update(refused)
            self.on_roles(taken, refused)

    async def take_again(self, image: ClusterImage) -> None:
        """Take the roles that the disk kept from being taken, as far as they are those of the image."""
        untaken = dict(self._untaken)
        self._untaken.clear()
        for (name, index), change in untaken.items():
            topic, known = image.topics.get(name), image.partition(name, index)
            if topic is None or known is None or self._hosting.broker_id not in known.replicas:
                continue
            if (known.leader, known.leader_epoch) != (change.state.leader, change.state.leader_epoch):
                continue
            await self._slices.point()
            change = change._replace(topic=topic, state=known)
            if not self._hosting.take_role(change):
                self._untaken[name, index] = change

    async def end(self, delta: ImageDelta) -> None:
        """Stop or delete partitions no longer hosted, after clients have learned of it. Raises DiskError."""
        for topic_delta in delta.topics:
            await self._slices.point()
            for change in hosted_changes(topic_delta, self._hosting.broker_id):
                await self._slices.point()
                if change.action not in (RoleAction.LEAD, RoleAction.FOLLOW):
                    self._untaken.pop((change.topic.name, change.partition), None)
                    self._hosting.end_role(change.topic.name, change.partition, change.action)

    def has_roles(self, topic: TopicImage) -> bool:
        """See `Hosting.has_roles`."""
        return self._hosting.has_roles(topic)

    def has_log_of(self, topic: TopicImage) -> bool:
        """See `Hosting.has_log_of`."""
        return self._hosting.has_log_of(topic)


class _DeltaRoles(NamedTuple):
    """The roles of one topic in a delta (`hosting.TopicRoles`)."""

    topic_delta: TopicDelta
    delta: ImageDelta
    hosting: Hosting
    untaken: dict[PartitionKey, RoleChange]
    refused_before: set[PartitionKey]
    #: Partitions refused before whose roles are taken now, and those refused now.
    taken: list[PartitionKey]
    refused: list[PartitionKey]

    def topic(self) -> TopicImage:
        topic = self.topic_delta.after
        assert topic is not None, "a deleted topic gives no roles"
        return topic

    def candidates(self) -> Iterator[RoleChange]:
        return hosted_changes(self.topic_delta, self.hosting.broker_id)

    async def decide(self, candidate: RoleChange, topic: TopicImage, *, leads: bool) -> RoleChange | None:
        if candidate.action is not (RoleAction.LEAD if leads else RoleAction.FOLLOW):
            return None
        delta = self.delta
        key = (topic.name, candidate.partition)
        if await self._must_refuse(key, is_needed=leads):
            self.refused.append(key)
            return None
        if key in self.refused_before:
            self.taken.append(key)
        self.untaken.pop(key, None)
        return candidate._replace(
            partition_epoch=delta.partition_epochs.get(key, 0),
            is_recovering=key in delta.recovering,
            is_undone_on_failure=delta.is_undone_on_failure and not self._was_known(candidate.partition),
        )

    async def _must_refuse(self, key: PartitionKey, *, is_needed: bool) -> bool:
        """Whether a role cannot be taken: the log is in a failed log directory, or lost and needed."""
        hosting = self.hosting
        if hosting.is_hosted(*key):
            return False
        here = hosting.replica(*key)
        if here.is_offline:
            return True
        is_new = key in self.delta.new_partitions
        return lacks_log(here, is_new=is_new, is_needed=is_needed) and await hosting.is_lost(*key, here)

    def _was_known(self, partition: int) -> bool:
        """Whether the partition was there before the change."""
        before = self.topic_delta.before
        return before is not None and partition < len(before.partitions)

    def failed(self, candidate: RoleChange, change: RoleChange) -> None:
        self.untaken[change.topic.name, change.partition] = change
