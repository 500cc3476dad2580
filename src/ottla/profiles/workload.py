"""The profiles: how each produces, what its topic is like, what it promises; and the load that one run asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MARK_PER_S: Final = 1_000_000
"""Records a second that a payments run is compared with."""
MOST_PRODUCERS: Final = 64
MOST_RECORD_BYTES: Final = 500_000
"""A record has to fit in a request of `max.request.size` (1 MiB)."""
MOST_RECORDS: Final = 1_000_000_000
"""Of a run: the checker keeps a bit for each, 125 MB in all."""


class ProfileName(StrEnum):
    """The profiles there are."""

    payments = "payments"
    clicks = "clicks"


class ProfileError(Exception):
    """A run that cannot be made as asked; the message names the cause and the cure."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A profile. `least_replicas` brokers are needed; `loses` says whether acknowledged records may be lost.

    `most_p99_ms` is the promised latency, None where none is promised. `settings` are the producer's.
    """

    name: ProfileName
    replication_factor: int
    least_replicas: int
    partitions: int
    loses: bool
    has_keys: bool
    most_p99_ms: float | None
    topic_settings: Mapping[str, str]
    settings: Mapping[str, str | int | bool]


PAYMENTS: Final = Workload(
    ProfileName.payments,
    replication_factor=3,
    least_replicas=3,
    partitions=12,
    loses=False,
    has_keys=True,
    most_p99_ms=500.0,
    topic_settings={"min.insync.replicas": "2", "unclean.leader.election.enable": "false"},
    settings={"acks": "all", "enable.idempotence": True, "batch.size": 512 * 1024, "buffer.memory": 8 * 1024 * 1024},
)
"""Nothing is lost or doubled, and an acknowledgement comes soon. The buffer is small: what waits in it is latency."""

CLICKS: Final = Workload(
    ProfileName.clicks,
    replication_factor=2,
    least_replicas=1,
    partitions=12,
    loses=True,
    has_keys=False,
    most_p99_ms=None,
    topic_settings={"min.insync.replicas": "1"},
    settings={"acks": "1", "enable.idempotence": False, "batch.size": 512 * 1024, "buffer.memory": 32 * 1024 * 1024},
)
"""The largest rate, in large batches; records that only a dead leader had are lost."""

WORKLOADS: Final[Mapping[ProfileName, Workload]] = {each.name: each for each in (PAYMENTS, CLICKS)}


@dataclass(frozen=True, slots=True)
class ProfileLoad:
    """The load of a run: `records` in all, or for `seconds`, at `per_s` records a second (None: as fast as possible).

    `replication_factor` None is the profile's own, or the number of brokers where the profile allows that.
    `most_p99_ms` replaces the profile's own promise; `is_disturbed` says that a broker is killed during the run,
    which then promises no latency.
    """

    workload: Workload
    producers: int
    partitions: int
    replication_factor: int | None
    record_bytes: int
    records: int | None = None
    seconds: float | None = None
    per_s: float | None = None
    most_p99_ms: float | None = None
    is_disturbed: bool = False
    timeout_s: float = 15.0

    def share_of(self, producer: int) -> int | None:
        """How many of `records` this producer makes; None where time limits them."""
        if self.records is None:
            return None
        return self.records // self.producers + (producer < self.records % self.producers)

    def replicas_on(self, brokers: int) -> int:
        """The replicas of each partition on this number of brokers. Raises ProfileError where they are too few."""
        workload, factor = self.workload, self.replication_factor
        if factor is not None and factor < workload.least_replicas:
            raise ProfileError(
                f"replication factor {factor}: {workload.name} promises {workload.least_replicas} replicas; "
                "give as many"
            )
        if brokers < workload.least_replicas:
            raise ProfileError(
                f"{workload.name} needs {workload.least_replicas} brokers, a replica on each, and the cluster has "
                f"{brokers}; start more of them"
            )
        if factor is None:
            return min(workload.replication_factor, brokers)
        if factor > brokers:
            raise ProfileError(
                f"replication factor {factor} needs as many brokers, and the cluster has {brokers}; "
                f"give {brokers} or less"
            )
        return factor
