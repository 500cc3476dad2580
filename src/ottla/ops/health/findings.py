"""The possible problems of a cluster, and how bad each is. Each kind has a section in docs/operations.md."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

from ottla.client.model import TopicPartition

PAGE = "docs/operations.md"
MOST_NAMED = 5
"""Things that are named of many."""


class HealthLevel(IntEnum):
    """How bad it is; the exit code of `ottla cluster health` is that of the worst finding."""

    #: Worth knowing; the cluster is healthy.
    NOTICE = 0
    #: Everything works, and less may fail than should be able to.
    WARNING = 1
    #: Something does not work, or records were or will soon be refused.
    CRITICAL = 2


class HealthKind(Enum):
    """Kinds of findings: the name of each, which is its heading in the guide, too, and its level."""

    NO_CONTROLLER = "no-controller", HealthLevel.CRITICAL
    OFFLINE_PARTITIONS = "offline-partitions", HealthLevel.CRITICAL
    OFFSETS_TOPIC_OFFLINE = "offsets-topic-offline", HealthLevel.CRITICAL
    UNDER_MIN_ISR = "under-min-isr", HealthLevel.CRITICAL
    FAILED_LOG_DIRECTORY = "failed-log-directory", HealthLevel.CRITICAL
    REFUSED_RECORDS = "refused-records", HealthLevel.CRITICAL
    DISK_FULL = "disk-full", HealthLevel.CRITICAL
    SILENT_BROKER = "silent-broker", HealthLevel.CRITICAL
    ABSENT_BROKER = "absent-broker", HealthLevel.WARNING
    UNSETTLED_CONTROLLER = "unsettled-controller", HealthLevel.WARNING
    AT_MIN_ISR = "at-min-isr", HealthLevel.WARNING
    UNDER_REPLICATED = "under-replicated", HealthLevel.WARNING
    LAGGING_REPLICAS = "lagging-replicas", HealthLevel.WARNING
    STUCK_REASSIGNMENT = "stuck-reassignment", HealthLevel.WARNING
    STUCK_DELETION = "stuck-deletion", HealthLevel.WARNING
    UNCLEAN_ELECTION = "unclean-election", HealthLevel.WARNING
    LOST_RECORDS = "lost-records", HealthLevel.WARNING
    DISK_FILLING = "disk-filling", HealthLevel.WARNING
    LEADERS_NOT_PREFERRED = "leaders-not-preferred", HealthLevel.WARNING
    CROWDED_RACKS = "crowded-racks", HealthLevel.WARNING
    MISSING_RACK = "missing-rack", HealthLevel.WARNING
    DIFFERENT_SETTINGS = "different-settings", HealthLevel.WARNING
    DIFFERENT_VERSIONS = "different-versions", HealthLevel.NOTICE
    UNEVEN_LOAD = "uneven-load", HealthLevel.NOTICE
    NO_SPARE_REPLICA = "no-spare-replica", HealthLevel.NOTICE

    @property
    def slug(self) -> str:
        """Its name."""
        return self.value[0]

    @property
    def level(self) -> HealthLevel:
        """How bad it is."""
        return self.value[1]

    @property
    def see(self) -> str:
        """The section about it."""
        return f"{PAGE}#{self.slug}"


@dataclass(frozen=True, slots=True)
class ClusterFinding:
    """Something that is wrong: what, and one sentence that cures it, mostly with a command to run."""

    kind: HealthKind
    what: str
    cure: str
    partitions: tuple[TopicPartition, ...] = ()
    brokers: tuple[int, ...] = ()

    @property
    def subject(self) -> tuple[object, ...]:
        """The key of the finding, which stays the same while its numbers change."""
        return (self.kind, self.brokers)

    def row(self) -> dict[str, Any]:
        """The finding as an object."""
        return {
            "kind": "finding",
            "finding": self.kind.slug,
            "level": self.kind.level.name.lower(),
            "what": self.what,
            "cure": self.cure,
            "brokers": list(self.brokers),
            "partitions": [each._asdict() for each in self.partitions],
            "see": self.kind.see,
        }


def ids(several: Collection[object]) -> str:
    """The first few, with commas between: "1, 2 and 3 more"."""
    shown = ", ".join(str(each) for each in list(several)[:MOST_NAMED])
    more = len(several) - MOST_NAMED
    return f"{shown} and {more:,} more" if more > 0 else shown


def named(noun: str, several: Collection[object], *, verb: bool = True) -> str:
    """The things with their noun, and "has" or "have": "broker 1 has", "brokers 1, 2 have"."""
    is_one = len(several) == 1
    text = f"{noun if is_one else f'{noun}s'} {ids(several)}"
    return f"{text} {'has' if is_one else 'have'}" if verb else text
