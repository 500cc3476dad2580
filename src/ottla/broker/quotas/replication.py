"""Quotas on replication (KIP-73): how many bytes a second are sent to followers, fetched from leaders, or moved
between log directories.

As in Kafka's `ReplicationQuotaManager` a quota measures its rate over sliding samples, and is exceeded while that is
above its limit. A copier asks first, and records what was copied. Two things are stricter than in Kafka, so that a
limit holds with batches that are large for it: one read takes no more than one sample may have, and what a sample was
over its share passes on to the next one when it is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.broker.replicas.partition import Partition
from ottla.config.broker import BrokerConfig
from ottla.config.topic import ThrottledReplicas

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
ALTER_LOG_DIRS_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
#: The default of these settings: no limit.
UNLIMITED: Final = 2**63 - 1
#: Least wait for a quota before the next look.
LEAST_WAIT_MS: Final = 20.0


class _Sample:
    """Bytes recorded since `start_ms`; those in `free` had to be copied whatever the limit."""

    __slots__ = ("free", "size", "start_ms")

    def __init__(self, start_ms: float, size: float = 0.0) -> None:
        self.start_ms = start_ms
        self.size = size
        self.free = 0.0


class ReplicationQuota:
    """One limit in bytes a second, and the rate at which it is used.

    `count` and `size_s` are the number of samples and the seconds of each.
    """

    __slots__ = ("_limit", "_now_ms", "_sample_ms", "_samples", "_window_ms", "copied")

    def __init__(self, now_ms: Callable[[], float], count: int = 11, size_s: int = 1) -> None:
        self._now_ms = now_ms
        self._sample_ms = size_s * 1000.0
        self._window_ms = self._sample_ms * count
        self._samples: deque[_Sample] = deque()
        self._limit = UNLIMITED
        #: All bytes recorded so far.
        self.copied = 0

    @property
    def limit(self) -> int:
        """Bytes a second; `UNLIMITED` for none."""
        return self._limit

    def set_limit(self, limit: int) -> None:
        """Have another limit. What was copied under the former one does not count against it."""
        if limit != self._limit:
            self._limit = limit
            self._samples.clear()

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self._limit != UNLIMITED

    @property
    def most_at_once(self) -> int:
        """Most bytes that one read takes: what a sample may have."""
        return min(UNLIMITED, int(self._limit * self._sample_ms / 1000))

    @property
    def rate(self) -> float:
        """Bytes a second in the present window, which is at least one sample long."""
        now_ms = self._now_ms()
        self._drop_old(now_ms)
        if not self._samples:
            return 0.0
        elapsed_ms = max(now_ms - self._samples[0].start_ms, self._sample_ms)
        return sum([sample.size for sample in self._samples]) * 1000 / elapsed_ms

    @property
    def is_exceeded(self) -> bool:
        """Whether nothing may be copied now."""
        if self._limit == UNLIMITED:
            return False
        return self._limit == 0 or self.rate > self._limit

    @property
    def wait_ms(self) -> float:
        """How long until something may be copied, if nothing is until then; 0 if it may be now."""
        if not self.is_exceeded:
            return 0.0
        if not self._limit or not self._samples:
            return self._window_ms
        size = sum([sample.size for sample in self._samples])
        free_at_ms = self._samples[0].start_ms + max(size * 1000 / self._limit, self._sample_ms)
        return max(free_at_ms - self._now_ms(), LEAST_WAIT_MS)

    def record(self, size: int, *, is_free: bool = False) -> None:
        """Note that bytes were copied; those that are `is_free` did not wait for the quota, and only count in it."""
        now_ms = self._now_ms()
        self._drop_old(now_ms)
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._sample_ms:
            samples.append(_Sample(now_ms))
        samples[-1].size += size
        if is_free:
            samples[-1].free += size
        self.copied += size

    def _drop_old(self, now_ms: float) -> None:
        samples = self._samples
        while samples and now_ms - samples[0].start_ms >= self._window_ms:
            old = samples.popleft()
            until_ms = samples[0].start_ms if samples else now_ms
            share = self._limit * (until_ms - old.start_ms) / 1000
            over = min(old.size - share, old.size - old.free)
            if over > 0:
                if not samples:
                    samples.append(_Sample(now_ms))
                samples[0].size += over


class ReplicationQuotas:
    """The three quotas of a broker. Times are those of the monotonic clock."""

    def __init__(self, config: BrokerConfig, monotonic_ms: Callable[[], float]) -> None:
        count = config.get_int("replication.quota.window.num")
        size_s = config.get_int("replication.quota.window.size.seconds")
        #: What this broker's leaders send to followers, and what its followers fetch.
        self.leader = ReplicationQuota(monotonic_ms, count, size_s)
        self.follower = ReplicationQuota(monotonic_ms, count, size_s)
        #: What is moved between this broker's log directories.
        self.alter_log_dirs = ReplicationQuota(
            monotonic_ms,
            config.get_int("alter.log.dirs.replication.quota.window.num"),
            config.get_int("alter.log.dirs.replication.quota.window.size.seconds"),
        )
        self.apply_settings(config)

    def apply_settings(self, config: BrokerConfig) -> None:
        """Take over the limits that are in force now."""
        self.leader.set_limit(config.get_long(LEADER_RATE))
        self.follower.set_limit(config.get_long(FOLLOWER_RATE))
        self.alter_log_dirs.set_limit(config.get_long(ALTER_LOG_DIRS_RATE))


def is_throttled(replicas: ThrottledReplicas, index: int, broker_id: int) -> bool:
    """Whether a topic's setting names the replica of this partition on this broker."""
    return replicas if isinstance(replicas, bool) else (index, broker_id) in replicas


class LeaderThrottle:
    """The limit of the bytes of throttled partitions in one response to a follower.

    As in Kafka, all bytes that followers get of them count, and only followers that are not in sync have to wait.
    """

    __slots__ = ("_broker_id", "_left", "_quota", "_replica_id", "_size", "_size_in_sync", "holds_back")

    def __init__(self, quota: ReplicationQuota, broker_id: int, replica_id: int) -> None:
        self._quota = quota
        self._broker_id = broker_id
        self._replica_id = replica_id
        self._left = 0 if quota.is_exceeded else quota.most_at_once
        self._size = self._size_in_sync = 0
        #: Whether any records are held back.
        self.holds_back = False

    def allowed(self, partition: Partition) -> int | None:
        """Most bytes of a partition that the follower may get now; None for any."""
        if self._is_in_sync(partition) or not self._is_throttled(partition):
            return None
        self.holds_back |= self._left <= 0
        return self._left

    def read(self, partition: Partition, size: int) -> None:
        """Count what was read of a partition."""
        if not self._is_throttled(partition):
            return
        self._size += size
        if self._is_in_sync(partition):
            self._size_in_sync += size
        else:
            self._left = max(0, self._left - size)

    def sent(self) -> None:
        """The response goes out with all that was read."""
        if self._size:
            self._quota.record(self._size - self._size_in_sync)
            self._quota.record(self._size_in_sync, is_free=True)

    @property
    def wait_ms(self) -> float:
        """How long until the follower may get more."""
        return self._quota.wait_ms

    def _is_throttled(self, partition: Partition) -> bool:
        return is_throttled(partition.log.config.leader_throttled, partition.index, self._broker_id)

    def _is_in_sync(self, partition: Partition) -> bool:
        leader = partition.leader
        return leader is not None and self._replica_id in leader.replicas.committed
