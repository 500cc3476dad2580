"""Findings about brokers: who is there, who is the controller, their disks, racks, settings and loads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ottla.client.admin.model import ConfigEntry, LogDirDescription
from ottla.client.model import TopicPartition
from ottla.ops.cluster_status import BrokerStatus, LossStatus
from ottla.ops.health.facts import HealthFacts
from ottla.ops.health.findings import ClusterFinding, HealthKind, ids, named
from ottla.peer.metadata import NO_NODE

FILLING, FULL = 0.15, 0.05
"""The free part of a volume below which a disk is filling, or as good as full."""
UNEVEN = 0.25
"""How far from the mean a broker's bytes may be."""
LEAST_MEAN_BYTES = 10**9
"""Brokers with less in the mean are not worth evening out."""
SETTINGS_NAMED = 8
WAITING_DELETIONS = "kafka_controller_kafkacontroller_topicsineligibletodeletecount"
OWN_SETTINGS = frozenset(
    (
        "advertised.host.name",
        "advertised.listeners",
        "advertised.port",
        "broker.id",
        "broker.rack",
        "control.plane.listener.name",
        "follower.replication.throttled.rate",
        "host.name",
        "leader.replication.throttled.rate",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "ottla.metrics.host",
        "ottla.metrics.port",
        "port",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "zookeeper.connect",
    )
)
"""Settings that each broker may have for itself; zookeeper.connect may name the ensemble's servers in any order."""


def broker_findings(now: HealthFacts, before: HealthFacts | None) -> Iterator[ClusterFinding]:
    """All findings about brokers."""
    yield from _controller(now, before)
    yield from _presence(now)
    yield from _disks(now)
    yield from _refusals(now)
    yield from _racks(now)
    yield from _settings(now)
    yield from _versions(now)
    yield from _deletions(now)
    yield from _losses(now)
    yield from _loads(now)


def _controller(now: HealthFacts, before: HealthFacts | None) -> Iterator[ClusterFinding]:
    controller = now.status.controller
    if controller is None:
        yield ClusterFinding(
            HealthKind.NO_CONTROLLER,
            "no broker is the controller: no leader is replaced, no topic made",
            "See why no broker can register in ZooKeeper: each broker's log says it, and `ottla cluster status` shows "
            "who is there.",
        )
        return
    views = {broker: view.controller for broker, view in now.views.items()}
    former = None if before is None else before.status.controller
    if former not in (None, controller):
        what = f"the controller changed from broker {former} to broker {controller} while this was looked at"
    elif len(set(views.values()) - {NO_NODE}) > 1:
        shown = ", ".join(f"broker {broker} says {view}" for broker, view in sorted(views.items()))
        what = f"brokers do not agree on the controller: {shown}"
    else:
        return
    yield ClusterFinding(
        HealthKind.UNSETTLED_CONTROLLER,
        what,
        "Look again in a minute with `ottla cluster health --watch`; if it continues, the brokers' logs say whether "
        "their ZooKeeper sessions expire (pauses, a slow ZooKeeper).",
        brokers=tuple(sorted({controller, *(each for each in views.values() if each >= 0)})),
    )


def _presence(now: HealthFacts) -> Iterator[ClusterFinding]:
    status = now.status
    for broker in status.absent:
        held = sum(1 for each in status.partitions for replica in each.replicas if replica.broker == broker)
        yield ClusterFinding(
            HealthKind.ABSENT_BROKER,
            f"broker {broker} is not there, and has {held:,} {'replica' if held == 1 else 'replicas'}",
            f"Start broker {broker} again with its disk: no other live broker has all records of {ids(needed)}."
            if (needed := _only_on(broker, now))
            else f"Start broker {broker} again, on another machine and with an empty disk if need be; if it is gone "
            f"for good, `ottla reassign plan --empty {broker} --output moves.json` moves its replicas elsewhere.",
            brokers=(broker,),
        )
    for each in status.brokers:
        if each.problem is not None:
            broker = each.node.node_id
            yield ClusterFinding(
                HealthKind.SILENT_BROKER,
                f"broker {broker} is registered and does not answer: {each.problem}",
                f"See whether the process of broker {broker} hangs, and whether {each.node.host}:{each.node.port} can "
                "be reached from here; if it hangs, restart it.",
                brokers=(broker,),
            )


def _only_on(broker: int, now: HealthFacts) -> tuple[TopicPartition, ...]:
    """Partitions without a leader, of which this broker is in sync: with an empty disk in its place they are lost."""
    return tuple(each.partition for each in now.status.partitions if each.is_offline and broker in each.isr)


def _disks(now: HealthFacts) -> Iterator[ClusterFinding]:
    for each in now.status.brokers:
        broker = each.node.node_id
        for path in each.failed_log_dirs:
            yield ClusterFinding(
                HealthKind.FAILED_LOG_DIRECTORY,
                f"log directory {path} of broker {broker} has failed: {each.log_dirs[path].error}",
                f"Repair the disk of {path} with what is on it (the broker's log has the reason), then restart broker "
                f"{broker}: no other live broker has all records of {ids(needed)}."
                if (needed := _only_on(broker, now))
                else f"Repair or replace the disk of {path} (the broker's log has the reason), then restart broker "
                f"{broker}: it copies from the leaders what it lacks.",
                brokers=(broker,),
            )
        yield from _fullest(each)


def _refusals(now: HealthFacts) -> Iterator[ClusterFinding]:
    by_broker: dict[int, list[tuple[TopicPartition, str]]] = {}
    for partition, broker, reason in now.status.refusals:
        by_broker.setdefault(broker, []).append((partition, reason))
    for broker, refused in by_broker.items():
        partitions = tuple(partition for partition, _ in refused)
        yield ClusterFinding(
            HealthKind.REFUSED_RECORDS,
            f"broker {broker} could not write the last records of {ids(partitions)}: {refused[0][1]}",
            "Make room if its disk is full (`ottla broker describe` shows its volumes), else see its log; the finding "
            "goes with the next record that is written.",
            partitions,
            (broker,),
        )


def _fullest(broker: BrokerStatus) -> Iterator[ClusterFinding]:
    """The volume with the least free space, if that is little."""

    def free(each: LogDirDescription) -> float:
        return each.usable_bytes / each.total_bytes

    known = [each for each in broker.log_dirs.values() if each.error is None and each.total_bytes > 0]
    least = min(known, key=free, default=None)
    if least is None or free(least) >= FILLING:
        return
    number = broker.node.node_id
    yield ClusterFinding(
        HealthKind.DISK_FULL if free(least) < FULL else HealthKind.DISK_FILLING,
        f"the volume of {least.path} of broker {number} is {1 - free(least):.0%} full",
        "Shorten the retention of large topics (`ottla topic alter TOPIC --config retention.bytes=…`), or move "
        "replicas to other brokers with `ottla reassign plan --even --output moves.json`, or enlarge the volume.",
        brokers=(number,),
    )


def _racks(now: HealthFacts) -> Iterator[ClusterFinding]:
    nodes = [each.node for each in now.status.brokers]
    without = tuple(each.node_id for each in nodes if each.rack is None)
    if without and len(without) < len(nodes):
        yield ClusterFinding(
            HealthKind.MISSING_RACK,
            f"{named('broker', without)} no rack, and others have: new topics cannot spread replicas over racks",
            f"Set broker.rack of {ids(without)} in server.properties, and restart.",
            brokers=without,
        )


def _settings(now: HealthFacts) -> Iterator[ClusterFinding]:
    different = {}
    for name in sorted({name for known in now.settings.values() for name in known}):
        if name in OWN_SETTINGS:
            continue
        entries = {broker: known[name] for broker, known in now.settings.items() if name in known}
        if _differ(entries):
            different[name] = entries
    if not different:
        return
    shown = [
        f"{name} ({', '.join(f'{broker}: {each.value}' for broker, each in sorted(entries.items()))})"
        for name, entries in list(different.items())[:SETTINGS_NAMED]
    ]
    more = len(different) - len(shown)
    first = next(iter(different))
    yield ClusterFinding(
        HealthKind.DIFFERENT_SETTINGS,
        f"settings differ between brokers: {', '.join(shown)}{f' and {more} more' if more else ''}",
        f"Give {first} one value in every server.properties and restart one broker after the other, or set it for all "
        f"with `ottla config set {first}=… --broker-defaults` where it is dynamic.",
    )


def _differ(entries: Mapping[int, ConfigEntry]) -> bool:
    """Whether the values differ, other than by defaults of different makes."""
    known = [each for each in entries.values() if not each.is_sensitive]
    return len({each.value for each in known}) > 1 and any(not each.is_default for each in known)


def _versions(now: HealthFacts) -> Iterator[ClusterFinding]:
    groups: dict[tuple[tuple[int, tuple[int, int]], ...], list[int]] = {}
    for broker, offered in sorted(now.versions.items()):
        groups.setdefault(tuple(sorted(offered.items())), []).append(broker)
    if len(groups) > 1:
        yield ClusterFinding(
            HealthKind.DIFFERENT_VERSIONS,
            f"brokers are of different releases or makes: {' | '.join(ids(each) for each in groups.values())}",
            "Finish the upgrade: restart one broker after the other with the same release.",
        )


def _deletions(now: HealthFacts) -> Iterator[ClusterFinding]:
    waiting = round(sum(each.get(WAITING_DELETIONS, 0) for each in now.metrics.values()))
    if waiting:
        absent = tuple(now.status.absent)
        empty = "" if any(_only_on(each, now) for each in absent) else ", with an empty disk if need be"
        for_whom = f"for {named('broker', absent, verb=False)}" if absent else "for a broker or a log directory"
        yield ClusterFinding(
            HealthKind.STUCK_DELETION,
            f"the deletion of {waiting} {'topic' if waiting == 1 else 'topics'} waits {for_whom}",
            f"Start {f'broker {ids(absent)}' if absent else 'the broker'} again{empty}: it "
            "deletes its replicas, and the deletion ends.",
            brokers=absent,
        )


def _losses(now: HealthFacts) -> Iterator[ClusterFinding]:
    def finding(kind: HealthKind, these: list[LossStatus], what: str, cure: str) -> ClusterFinding:
        partitions = tuple(dict.fromkeys(each.partition for each in these))
        return ClusterFinding(kind, what.format(partitions=ids(partitions)), cure, partitions)

    losses = now.status.losses
    elections = [each for each in losses if each.report.is_election]
    removals = [each for each in losses if not each.report.is_election]
    if elections:
        yield finding(
            HealthKind.UNCLEAN_ELECTION,
            elections,
            "leaders were elected that were not in sync: {partitions}",
            "See with `ottla cluster status` from which offset on records are lost, and write them again from their "
            "source; the report goes after thirty days, or with the topic.",
        )
    if removals:
        yield finding(
            HealthKind.LOST_RECORDS,
            removals,
            "replicas removed records that were acknowledged: {partitions}",
            "See with `ottla cluster status` which offsets are lost, and write them again from their source; the "
            "report goes after thirty days, or with the topic.",
        )


def _loads(now: HealthFacts) -> Iterator[ClusterFinding]:
    sizes = Counter({each.node.node_id: each.size_bytes for each in now.status.brokers if each.problem is None})
    mean = sizes.total() / len(sizes) if sizes else 0.0
    if mean < LEAST_MEAN_BYTES:
        return
    uneven = tuple(broker for broker in sorted(sizes) if abs(sizes[broker] - mean) > UNEVEN * mean)
    if uneven:
        shown = ", ".join(f"{broker}: {sizes[broker] / mean - 1:+.0%}" for broker in uneven)
        yield ClusterFinding(
            HealthKind.UNEVEN_LOAD,
            f"brokers have more or fewer bytes than the mean: {shown}",
            "`ottla reassign plan --even --output moves.json` shows which moves would even them out.",
            brokers=uneven,
        )
