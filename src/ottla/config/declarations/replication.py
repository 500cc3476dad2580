"""Settings of replication, quotas and tiered storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.config.settings import Row

# fmt: off
ROWS: tuple[Row, ...] = (
    (
        "alter.log.dirs.replication.quota.window.num", "int", "11", "[1,...]", "low", "read-only", "honoured",
        "Samples kept for the quota on moving replicas between log directories.",
    ),
    (
        "alter.log.dirs.replication.quota.window.size.seconds",
        "int",
        "1",
        "[1,...]",
        "low",
        "read-only",
        "honoured",
        "Time of one such sample, in seconds.",
    ),
    (
        "client.quota.callback.class", "class", None, "", "low", "read-only", "refused",
        "A Java class that decides clients' quotas.",
    ),
    (
        "controller.quota.window.num", "int", "11", "[1,...]", "low", "read-only", "no_effect",
        "Samples kept for the quota on topic changes.",
    ),
    (
        "controller.quota.window.size.seconds", "int", "1", "[1,...]", "low", "read-only", "no_effect",
        "Time of one such sample, in seconds.",
    ),
    (
        "eligible.leader.replicas.enable", "boolean", "false", "", "high", "read-only", "no_effect",
        "KRaft mode only: whether eligible leader replicas are kept.",
    ),
    (
        "leader.imbalance.check.interval.seconds", "long", "300", "[1,...]", "high", "read-only", "honoured",
        "How often the balance of leaders is looked at, in seconds.",
    ),
    (
        "leader.imbalance.per.broker.percentage", "int", "10", "", "high", "read-only", "honoured",
        "The share of partitions of a broker, in percent, that may be led by others before leadership is moved.",
    ),
    (
        "num.replica.alter.log.dirs.threads", "int", None, "", "high", "read-only", "honoured",
        "Replicas that are moved between log directories at the same time.",
    ),
    (
        "num.replica.fetchers", "int", "1", "", "high", "cluster-wide", "honoured",
        "Fetchers that copy from each other broker.",
    ),
    (
        "quota.window.num", "int", "11", "[1,...]", "low", "read-only", "no_effect",
        "Samples kept for clients' quotas.",
    ),
    (
        "quota.window.size.seconds", "int", "1", "[1,...]", "low", "read-only", "no_effect",
        "Time of one such sample, in seconds.",
    ),
    (
        "remote.fetch.max.wait.ms", "int", "500", "[1,...]", "medium", "cluster-wide", "no_effect",
        "Tiered storage: how long a fetch may wait for remote data, in milliseconds.",
    ),
    (
        "remote.log.index.file.cache.total.size.bytes",
        "long",
        "1073741824",
        "[1,...]",
        "low",
        "cluster-wide",
        "no_effect",
        "Tiered storage: disk space for cached remote indexes, in bytes.",
    ),
    (
        "remote.log.manager.copier.thread.pool.size",
        "int",
        "-1",
        "1 or more, or -1",
        "medium",
        "read-only",
        "no_effect",
        "Tiered storage: threads that copy segments away.",
    ),
    (
        "remote.log.manager.copy.max.bytes.per.second",
        "long",
        "9223372036854775807",
        "[1,...]",
        "medium",
        "cluster-wide",
        "no_effect",
        "Tiered storage: the most bytes copied away per second.",
    ),
    (
        "remote.log.manager.copy.quota.window.num", "int", "11", "[1,...]", "medium", "read-only", "no_effect",
        "Tiered storage: samples kept for the quota on copying away.",
    ),
    (
        "remote.log.manager.copy.quota.window.size.seconds",
        "int",
        "1",
        "[1,...]",
        "medium",
        "read-only",
        "no_effect",
        "Tiered storage: time of one such sample, in seconds.",
    ),
    (
        "remote.log.manager.expiration.thread.pool.size",
        "int",
        "-1",
        "1 or more, or -1",
        "medium",
        "read-only",
        "no_effect",
        "Tiered storage: threads that delete expired remote segments.",
    ),
    (
        "remote.log.manager.fetch.max.bytes.per.second",
        "long",
        "9223372036854775807",
        "[1,...]",
        "medium",
        "cluster-wide",
        "no_effect",
        "Tiered storage: the most bytes read from remote storage per second.",
    ),
    (
        "remote.log.manager.fetch.quota.window.num", "int", "11", "[1,...]", "medium", "read-only", "no_effect",
        "Tiered storage: samples kept for the quota on remote reads.",
    ),
    (
        "remote.log.manager.fetch.quota.window.size.seconds",
        "int",
        "1",
        "[1,...]",
        "medium",
        "read-only",
        "no_effect",
        "Tiered storage: time of one such sample, in seconds.",
    ),
    (
        "remote.log.manager.task.interval.ms", "long", "30000", "[1,...]", "low", "read-only", "no_effect",
        "Tiered storage: how often its background work runs, in milliseconds.",
    ),
    (
        "remote.log.manager.task.retry.backoff.max.ms", "long", "30000", "[1,...]", "low", "read-only", "no_effect",
        "Tiered storage: the longest pause after a failure, in milliseconds.",
    ),
    (
        "remote.log.manager.task.retry.backoff.ms", "long", "500", "[1,...]", "low", "read-only", "no_effect",
        "Tiered storage: the first pause after a failure, in milliseconds.",
    ),
    (
        "remote.log.manager.task.retry.jitter", "double", "0.2", "[0,...,0.5]", "low", "read-only", "no_effect",
        "Tiered storage: random part of that pause.",
    ),
    (
        "remote.log.manager.thread.pool.size", "int", "10", "[1,...]", "medium", "read-only", "no_effect",
        "Tiered storage: threads for its background work.",
    ),
    (
        "remote.log.metadata.custom.metadata.max.bytes", "int", "128", "[0,...]", "low", "read-only", "no_effect",
        "Tiered storage: the most bytes of metadata that a plug-in may keep with a segment.",
    ),
    (
        "remote.log.metadata.manager.class.name",
        "string",
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "non-empty string",
        "medium",
        "read-only",
        "no_effect",
        "Tiered storage: the Java class that keeps its metadata.",
    ),
    (
        "remote.log.metadata.manager.class.path", "string", None, "", "medium", "read-only", "no_effect",
        "Tiered storage: where that class is found.",
    ),
    (
        "remote.log.metadata.manager.impl.prefix",
        "string",
        "rlmm.config.",
        "non-empty string",
        "medium",
        "read-only",
        "no_effect",
        "Tiered storage: prefix of settings for that class.",
    ),
    (
        "remote.log.metadata.manager.listener.name",
        "string",
        None,
        "non-empty string",
        "medium",
        "read-only",
        "no_effect",
        "Tiered storage: the listener that class uses.",
    ),
    (
        "remote.log.reader.max.pending.tasks", "int", "100", "[1,...]", "medium", "read-only", "no_effect",
        "Tiered storage: the most waiting remote reads.",
    ),
    (
        "remote.log.reader.threads", "int", "10", "[1,...]", "medium", "read-only", "no_effect",
        "Tiered storage: threads for remote reads.",
    ),
    (
        "remote.log.storage.manager.class.name",
        "string",
        None,
        "non-empty string",
        "medium",
        "read-only",
        "no_effect",
        "Tiered storage: the Java class that stores segments.",
    ),
    (
        "remote.log.storage.manager.class.path", "string", None, "", "medium", "read-only", "no_effect",
        "Tiered storage: where that class is found.",
    ),
    (
        "remote.log.storage.manager.impl.prefix",
        "string",
        "rsm.config.",
        "non-empty string",
        "medium",
        "read-only",
        "no_effect",
        "Tiered storage: prefix of settings for that class.",
    ),
    (
        "remote.log.storage.system.enable", "boolean", "false", "", "medium", "read-only", "refused",
        "Whether old segments are moved to remote storage.",
    ),
    (
        "replica.fetch.backoff.ms", "int", "1000", "[0,...]", "medium", "read-only", "honoured",
        "The pause after a failed fetch of a follower, in milliseconds.",
    ),
    (
        "replica.fetch.max.bytes", "int", "1048576", "[0,...]", "medium", "read-only", "honoured",
        "The most bytes of a partition that a follower asks for at once.",
    ),
    (
        "replica.fetch.min.bytes", "int", "1", "", "high", "read-only", "honoured",
        "The fewest bytes that a follower's fetch is answered with, unless it waited its time.",
    ),
    (
        "replica.fetch.response.max.bytes", "int", "10485760", "[0,...]", "medium", "read-only", "honoured",
        "The most bytes that a follower asks for at once, over all partitions.",
    ),
    (
        "replica.fetch.wait.max.ms", "int", "500", "", "high", "read-only", "honoured",
        "How long a follower's fetch may wait for data, in milliseconds.",
    ),
    (
        "replica.high.watermark.checkpoint.interval.ms", "long", "5000", "", "high", "read-only", "honoured",
        "How often high watermarks are written to disk, in milliseconds.",
    ),
    (
        "replica.lag.time.max.ms", "long", "30000", "", "high", "read-only", "honoured",
        "A follower that did not catch up for this long leaves the in-sync replicas, in milliseconds.",
    ),
    (
        "replica.selector.class", "string", None, "", "medium", "read-only", "honoured",
        "Kafka's class that chooses the replica a consumer reads from: `org.apache.kafka.common.replica.` with "
        "`RackAwareReplicaSelector` (one in the consumer's rack) or `LeaderSelector`. Others refuse to start.",
    ),
    (
        "replica.socket.receive.buffer.bytes", "int", "65536", "", "high", "read-only", "no_effect",
        "Receive buffer of a follower's connections, in bytes.",
    ),
    (
        "replica.socket.timeout.ms", "int", "30000", "", "high", "read-only", "honoured",
        "Time limit of a follower's requests, in milliseconds.",
    ),
    (
        "replication.quota.window.num", "int", "11", "[1,...]", "low", "read-only", "honoured",
        "Samples kept for the quota on replication.",
    ),
    (
        "replication.quota.window.size.seconds", "int", "1", "[1,...]", "low", "read-only", "honoured",
        "Time of one such sample, in seconds.",
    ),
    (
        "unclean.leader.election.enable", "boolean", "false", "", "high", "cluster-wide", "honoured",
        "Whether a replica that was not in sync may become leader when no other is left, at the price of lost "
        "records.",
    ),
    (
        "unclean.leader.election.interval.ms", "long", "300000", "[1,...]", "medium", "read-only", "no_effect",
        "KRaft mode only: how often partitions without a leader are looked at, in milliseconds.",
    ),
)

#: Settings that are only ever given while brokers run (Kafka's `DynamicConfig.Broker`); not those of a file.
RUN_TIME_ROWS: tuple[Row, ...] = (
    (
        "leader.replication.throttled.rate", "long", "9223372036854775807", "[0,...]", "medium", "read-only",
        "honoured",
        "The most bytes a second that a broker sends to the followers of the partitions which "
        "`leader.replication.throttled.replicas` of their topics names.",
    ),
    (
        "follower.replication.throttled.rate", "long", "9223372036854775807", "[0,...]", "medium", "read-only",
        "honoured",
        "The most bytes a second that a broker fetches of the partitions which "
        "`follower.replication.throttled.replicas` of their topics names.",
    ),
    (
        "replica.alter.log.dirs.io.max.bytes.per.second", "long", "9223372036854775807", "[0,...]", "medium",
        "read-only", "honoured",
        "The most bytes a second that a broker moves between its log directories.",
    ),
)
