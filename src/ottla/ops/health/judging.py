"""The problems of a cluster, judged from facts about it: a function of the facts alone.

Problems that need watching (reassignments and replicas that make no progress, a controller that changes) are judged
from two sets of facts; the former one is None where there was only one.
"""

from __future__ import annotations

from ottla.ops.health.brokers import broker_findings
from ottla.ops.health.facts import HealthFacts
from ottla.ops.health.findings import ClusterFinding, HealthKind, HealthLevel
from ottla.ops.health.partitions import partition_findings


def judge(now: HealthFacts, before: HealthFacts | None = None) -> list[ClusterFinding]:
    """All findings, the worst first; of one level in the order of their kinds."""
    found = [*broker_findings(now, before), *partition_findings(now, before)]
    order = {kind: at for at, kind in enumerate(HealthKind)}
    return sorted(found, key=lambda each: (-each.kind.level, order[each.kind], each.brokers))


def worst(findings: list[ClusterFinding]) -> HealthLevel:
    """The level of the worst of them; NOTICE where there is none."""
    return max((each.kind.level for each in findings), default=HealthLevel.NOTICE)
