"""The settings of the high-level consumer: names, types and defaults of Apache Kafka 0.8.2.2's `ConsumerConfig`.

Two differ: `socket.receive.buffer.bytes` is left to the operating system, which adapts it, and `rebalance.backoff.ms`
stands by itself (there it is `zookeeper.sync.time.ms`, whose default is the same). Those that start with `ottla.` are
ours.
"""

from __future__ import annotations

from ottla.config.settings import HONOURED, NO_EFFECT, Setting

Row = tuple[str, str, str | None, str, str, str]

# fmt: off
_ROWS: tuple[Row, ...] = (
    (
        "group.id", "string", None, "", "high",
        "The consumer group: letters of ASCII, digits, `.`, `_` and `-`. No default.",
    ),
    (
        "zookeeper.connect", "string", None, "", "high",
        "Where ZooKeeper is: `host:port,host:port/chroot`. Brokers are found there. No default.",
    ),
    (
        "consumer.id", "string", None, "", "low",
        "The consumer's name within the group; one is made of host, time and chance where it is not given.",
    ),
    (
        "client.id", "string", None, "", "low",
        "What brokers call this client; `group.id` by default.",
    ),
    (
        "zookeeper.session.timeout.ms", "int", "6000", "[1,...]", "high",
        "How long ZooKeeper keeps the consumer's nodes when it hears nothing.",
    ),
    (
        "zookeeper.connection.timeout.ms", "int", None, "[1,...]", "low",
        "How long the first connection to ZooKeeper may take; `zookeeper.session.timeout.ms` by default.",
    ),
    (
        "zookeeper.sync.time.ms", "int", "2000", "[0,...]", "low",
        "How far a follower of ZooKeeper's may be behind; nothing but the default of `rebalance.backoff.ms`.",
    ),
    (
        "auto.commit.enable", "boolean", "true", "", "high",
        "Whether consumed offsets are committed from time to time, before partitions are released, and at shutdown.",
    ),
    (
        "auto.commit.interval.ms", "int", "60000", "[1,...]", "high",
        "How often.",
    ),
    (
        "auto.offset.reset", "string", "largest", "[smallest, largest]", "high",
        "Where to begin without a committed offset, or with one that is not in the log.",
    ),
    (
        "consumer.timeout.ms", "int", "-1", "[-1,...]", "high",
        "How long a stream waits for a record before it raises ConsumerTimeoutError; -1: for ever.",
    ),
    (
        "fetch.message.max.bytes", "int", "1048576", "[1,...]", "high",
        "Bytes of one partition in one fetch; a first batch that is larger comes all the same.",
    ),
    (
        "fetch.min.bytes", "int", "1", "[0,...]", "medium",
        "The broker answers a fetch as soon as it has that many bytes.",
    ),
    (
        "fetch.wait.max.ms", "int", "100", "[0,...]", "medium",
        "How long the broker waits for that.",
    ),
    (
        "num.consumer.fetchers", "int", "1", "[1,...]", "medium",
        "Fetchers per broker, among which partitions are divided.",
    ),
    (
        "queued.max.message.chunks", "int", "2", "[1,...]", "medium",
        "Chunks, each what one fetch brought of one partition, that wait in a stream's queue.",
    ),
    (
        "rebalance.max.retries", "int", "4", "[1,...]", "high",
        "How often a rebalance is tried before it fails.",
    ),
    (
        "rebalance.backoff.ms", "int", None, "[0,...]", "medium",
        "Pause between two tries; `zookeeper.sync.time.ms` by default.",
    ),
    (
        "refresh.leader.backoff.ms", "int", "200", "[0,...]", "medium",
        "Pause before leaders are looked for again.",
    ),
    (
        "socket.timeout.ms", "int", "30000", "[1,...]", "low",
        "How long a broker may take to answer; more than `fetch.wait.max.ms`.",
    ),
    (
        "socket.receive.buffer.bytes", "int", "-1", "[-1,...]", "low",
        "Size of the sockets' receive buffers; -1 leaves it to the operating system.",
    ),
    (
        "offsets.storage", "string", "zookeeper", "[zookeeper, kafka]", "medium",
        "Where offsets are kept.",
    ),
    (
        "dual.commit.enabled", "boolean", None, "", "medium",
        "With `offsets.storage=kafka`: commit to ZooKeeper, too, and begin at the later of both; true by default then.",
    ),
    (
        "offsets.channel.backoff.ms", "int", "1000", "[0,...]", "low",
        "Pause before offsets are committed, or fetched, again.",
    ),
    (
        "offsets.channel.socket.timeout.ms", "int", "10000", "[1,...]", "low",
        "How long one commit or fetch of offsets may take.",
    ),
    (
        "offsets.commit.max.retries", "int", "5", "[0,...]", "low",
        "How often a commit is made again, but for those of the auto-commit.",
    ),
    (
        "partition.assignment.strategy", "string", "range", "[range, roundrobin, ceil]", "medium",
        "How partitions are divided among threads; `ceil` is the oldest rule, there to compare with.",
    ),
    (
        "exclude.internal.topics", "boolean", "true", "", "low",
        "Whether filters leave out the cluster's internal topics.",
    ),
    (
        "ottla.watch.brokers", "string", "while-none", "[while-none, always]", "low",
        "Whether `/brokers/ids` is watched while no broker is alive, or always, so that every broker that comes or "
        "goes makes the group rebalance.",
    ),
)
# fmt: on

SETTINGS: dict[str, Setting] = {
    row[0]: Setting(
        *row[:5],
        update_mode="read-only",
        effect=NO_EFFECT if row[0] == "zookeeper.sync.time.ms" else HONOURED,
        documentation=row[5],
    )
    for row in _ROWS
}
"""Every setting of the high-level consumer, by name."""

OF_NEWER_CONSUMERS = {
    "bootstrap.servers": "brokers are found in ZooKeeper: give zookeeper.connect",
    "enable.auto.commit": "here it is auto.commit.enable",
    "fetch.max.bytes": "the limit of one partition is fetch.message.max.bytes",
    "fetch.max.wait.ms": "here it is fetch.wait.max.ms",
    "group.instance.id": "this generation has no static members",
    "isolation.level": "this generation reads what is not committed, too",
    "key.deserializer": "give key_decoder to create_message_streams",
    "max.partition.fetch.bytes": "here it is fetch.message.max.bytes",
    "max.poll.interval.ms": "streams are not polled; a consumer lives as long as its session with ZooKeeper",
    "max.poll.records": "streams are not polled",
    "metadata.max.age.ms": "leaders are looked for when they have changed, see refresh.leader.backoff.ms",
    "receive.buffer.bytes": "here it is socket.receive.buffer.bytes",
    "request.timeout.ms": "here it is socket.timeout.ms",
    "retry.backoff.ms": "see refresh.leader.backoff.ms, rebalance.backoff.ms and offsets.channel.backoff.ms",
    "session.timeout.ms": "here it is zookeeper.session.timeout.ms",
    "value.deserializer": "give value_decoder to create_message_streams",
}
"""What to set instead of settings of the newer consumer."""
