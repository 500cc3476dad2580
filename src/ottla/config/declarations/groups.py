"""Settings of consumer groups, their offsets, and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.config.settings import Row

# fmt: off
ROWS: tuple[Row, ...] = (
    (
        "group.consumer.assignors",
        "list",
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor,"
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
        "",
        "medium",
        "read-only",
        "no_effect",
        "KIP-848 groups: the server-side assignors.",
    ),
    (
        "group.consumer.heartbeat.interval.ms", "int", "5000", "[1,...]", "medium", "read-only", "no_effect",
        "KIP-848 groups: heartbeat interval, in milliseconds.",
    ),
    (
        "group.consumer.max.heartbeat.interval.ms", "int", "15000", "[1,...]", "medium", "read-only", "no_effect",
        "KIP-848 groups: the longest heartbeat interval of a group, in milliseconds.",
    ),
    (
        "group.consumer.max.session.timeout.ms", "int", "60000", "[1,...]", "medium", "read-only", "no_effect",
        "KIP-848 groups: the longest session timeout of a group, in milliseconds.",
    ),
    (
        "group.consumer.max.size", "int", "2147483647", "[1,...]", "medium", "read-only", "no_effect",
        "KIP-848 groups: the most members of a group.",
    ),
    (
        "group.consumer.migration.policy",
        "string",
        "disabled",
        "[disabled, downgrade, upgrade, bidirectional]",
        "medium",
        "read-only",
        "no_effect",
        "KIP-848 groups: whether groups move between the two protocols while they have members.",
    ),
    (
        "group.consumer.min.heartbeat.interval.ms", "int", "5000", "[1,...]", "medium", "read-only", "no_effect",
        "KIP-848 groups: the shortest heartbeat interval of a group, in milliseconds.",
    ),
    (
        "group.consumer.min.session.timeout.ms", "int", "45000", "[1,...]", "medium", "read-only", "no_effect",
        "KIP-848 groups: the shortest session timeout of a group, in milliseconds.",
    ),
    (
        "group.consumer.session.timeout.ms", "int", "45000", "[1,...]", "medium", "read-only", "no_effect",
        "KIP-848 groups: session timeout, in milliseconds.",
    ),
    (
        "group.coordinator.append.linger.ms", "int", "10", "[0,...]", "medium", "read-only", "no_effect",
        "New coordinator of Kafka 4: how long it gathers writes, in milliseconds.",
    ),
    (
        "group.coordinator.new.enable", "boolean", "false", "", "medium", "read-only", "no_effect",
        "Whether the new coordinator of Kafka 4 is used.",
    ),
    (
        "group.coordinator.rebalance.protocols",
        "list",
        "classic",
        "[consumer, classic, share, unknown]",
        "medium",
        "read-only",
        "no_effect",
        "The group protocols offered; the classic one is.",
    ),
    (
        "group.coordinator.threads", "int", "1", "[1,...]", "medium", "read-only", "no_effect",
        "New coordinator of Kafka 4: its threads.",
    ),
    (
        "group.initial.rebalance.delay.ms", "int", "3000", "", "medium", "read-only", "honoured",
        "How long the first rebalance of an empty group waits for more members, in milliseconds.",
    ),
    (
        "group.max.session.timeout.ms", "int", "1800000", "", "medium", "read-only", "honoured",
        "The longest session timeout a member may ask for, in milliseconds.",
    ),
    (
        "group.max.size", "int", "2147483647", "[1,...]", "medium", "read-only", "honoured",
        "The most members of a group.",
    ),
    (
        "group.min.session.timeout.ms", "int", "6000", "", "medium", "read-only", "honoured",
        "The shortest session timeout a member may ask for, in milliseconds.",
    ),
    (
        "group.share.delivery.count.limit", "int", "5", "[2,...,10]", "medium", "read-only", "no_effect",
        "Share groups: how often a record is delivered at most.",
    ),
    (
        "group.share.enable", "boolean", "false", "", "medium", "read-only", "no_effect",
        "Share groups: whether they are offered.",
    ),
    (
        "group.share.heartbeat.interval.ms", "int", "5000", "[1,...]", "medium", "read-only", "no_effect",
        "Share groups: heartbeat interval, in milliseconds.",
    ),
    (
        "group.share.max.groups", "short", "10", "[1,...,100]", "medium", "read-only", "no_effect",
        "Share groups: how many there may be.",
    ),
    (
        "group.share.max.heartbeat.interval.ms", "int", "15000", "[1,...]", "medium", "read-only", "no_effect",
        "Share groups: the longest heartbeat interval, in milliseconds.",
    ),
    (
        "group.share.max.record.lock.duration.ms",
        "int",
        "60000",
        "[30000,...,3600000]",
        "medium",
        "read-only",
        "no_effect",
        "Share groups: the longest lock on a record, in milliseconds.",
    ),
    (
        "group.share.max.session.timeout.ms", "int", "60000", "[1,...]", "medium", "read-only", "no_effect",
        "Share groups: the longest session timeout, in milliseconds.",
    ),
    (
        "group.share.max.size", "short", "200", "[10,...,1000]", "medium", "read-only", "no_effect",
        "Share groups: the most members of a group.",
    ),
    (
        "group.share.min.heartbeat.interval.ms", "int", "5000", "[1,...]", "medium", "read-only", "no_effect",
        "Share groups: the shortest heartbeat interval, in milliseconds.",
    ),
    (
        "group.share.min.record.lock.duration.ms",
        "int",
        "15000",
        "[1000,...,30000]",
        "medium",
        "read-only",
        "no_effect",
        "Share groups: the shortest lock on a record, in milliseconds.",
    ),
    (
        "group.share.min.session.timeout.ms", "int", "45000", "[1,...]", "medium", "read-only", "no_effect",
        "Share groups: the shortest session timeout, in milliseconds.",
    ),
    (
        "group.share.partition.max.record.locks", "int", "200", "[100,...,10000]", "medium", "read-only", "no_effect",
        "Share groups: the most locked records of a partition.",
    ),
    (
        "group.share.record.lock.duration.ms", "int", "30000", "[1000,...,60000]", "medium", "read-only", "no_effect",
        "Share groups: how long a record is locked for its member, in milliseconds.",
    ),
    (
        "group.share.session.timeout.ms", "int", "45000", "[1,...]", "medium", "read-only", "no_effect",
        "Share groups: session timeout, in milliseconds.",
    ),
    (
        "offset.metadata.max.bytes", "int", "4096", "", "high", "read-only", "honoured",
        "The longest metadata text kept with a committed offset, in bytes.",
    ),
    (
        "offsets.commit.required.acks", "short", "-1", "", "high", "read-only", "no_effect",
        "Acknowledgements that a commit waits for; -1 (all in-sync replicas) should not be changed.",
    ),
    (
        "offsets.commit.timeout.ms", "int", "5000", "[1,...]", "high", "read-only", "honoured",
        "How long a commit may wait for its replicas, in milliseconds.",
    ),
    (
        "offsets.load.buffer.size", "int", "5242880", "[1,...]", "high", "read-only", "no_effect",
        "Bytes read at once when offsets are loaded from their topic.",
    ),
    (
        "offsets.retention.check.interval.ms", "long", "600000", "[1,...]", "high", "read-only", "honoured",
        "How often expired offsets are looked for, in milliseconds.",
    ),
    (
        "offsets.retention.minutes", "int", "10080", "[1,...]", "high", "read-only", "honoured",
        "How long offsets of a group without members are kept, in minutes.",
    ),
    (
        "offsets.topic.compression.codec", "int", "0", "", "high", "read-only", "honoured",
        "Compression of the offsets topic, as Kafka's number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    ),
    (
        "offsets.topic.num.partitions", "int", "50", "[1,...]", "high", "read-only", "honoured",
        "Partitions of the offsets topic; not to be changed once it exists.",
    ),
    (
        "offsets.topic.replication.factor", "short", "3", "[1,...]", "high", "read-only", "honoured",
        "Replicas of the offsets topic, which is created once there are so many brokers. Where it is not set, a "
        "broker without ZooKeeper, which is alone, asks for one.",
    ),
    (
        "offsets.topic.segment.bytes", "int", "104857600", "[1,...]", "high", "read-only", "honoured",
        "Segment size of the offsets topic, in bytes; small segments load and compact faster.",
    ),
    (
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "int",
        "10000",
        "[1,...]",
        "low",
        "read-only",
        "no_effect",
        "How often transactions that timed out are looked for, in milliseconds.",
    ),
    (
        "transaction.max.timeout.ms", "int", "900000", "[1,...]", "high", "read-only", "no_effect",
        "The longest transaction timeout a producer may ask for, in milliseconds.",
    ),
    (
        "transaction.partition.verification.enable", "boolean", "true", "", "low", "cluster-wide", "no_effect",
        "Whether a transactional write checks that its partition was added to the transaction.",
    ),
    (
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "int",
        "3600000",
        "[1,...]",
        "low",
        "read-only",
        "no_effect",
        "How often expired transactional ids are looked for, in milliseconds.",
    ),
    (
        "transaction.state.log.load.buffer.size", "int", "5242880", "[1,...]", "high", "read-only", "no_effect",
        "Bytes read at once when transactions are loaded from their topic.",
    ),
    (
        "transaction.state.log.min.isr", "int", "2", "[1,...]", "high", "read-only", "honoured",
        "In-sync replicas that the transaction topic demands.",
    ),
    (
        "transaction.state.log.num.partitions", "int", "50", "[1,...]", "high", "read-only", "honoured",
        "Partitions of the transaction topic.",
    ),
    (
        "transaction.state.log.replication.factor", "short", "3", "[1,...]", "high", "read-only", "honoured",
        "Replicas of the transaction topic.",
    ),
    (
        "transaction.state.log.segment.bytes", "int", "104857600", "[1,...]", "high", "read-only", "honoured",
        "Segment size of the transaction topic, in bytes.",
    ),
    (
        "transactional.id.expiration.ms", "int", "604800000", "[1,...]", "high", "read-only", "no_effect",
        "How long an unused transactional id is remembered, in milliseconds.",
    ),
)
