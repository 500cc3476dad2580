"""Settings of consumers only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.configs.settings import ClientRow

# fmt: off
ROWS: tuple[ClientRow, ...] = (
    (
        "allow.auto.create.topics", "boolean", "true", "", "medium", "honoured",
        "Whether subscribing to a topic, or assigning it, lets the broker create it, where the broker allows that.",
    ),
    (
        "auto.commit.interval.ms", "int", "5000", "[0,...]", "low", "honoured",
        "How often offsets are committed with `enable.auto.commit`.",
    ),
    (
        "auto.offset.reset", "string", "latest", "[latest, earliest, none]", "medium", "honoured",
        "Where to start without a committed offset, or with one out of range; `none` raises an error.",
    ),
    (
        "check.crcs", "boolean", "true", "", "low", "honoured",
        "Whether the checksums of batches are verified.",
    ),
    (
        "client.rack", "string", "", "", "low", "honoured",
        "Where this consumer stands: it reads from replicas in the same rack, where the cluster offers them (KIP-392).",
    ),
    (
        "connections.max.idle.ms", "long", "540000", "", "medium", "honoured",
        "A connection that was not used for so long is closed; negative: never.",
    ),
    (
        "default.api.timeout.ms", "int", "60000", "[0,...]", "medium", "honoured",
        "How long a call without a timeout of its own may take.",
    ),
    (
        "enable.auto.commit", "boolean", "true", "", "medium", "honoured",
        "Commit the offsets of what `poll` gave, from time to time, at rebalances and when closed. False by default "
        "where there is no `group.id`.",
    ),
    (
        "exclude.internal.topics", "boolean", "true", "", "medium", "honoured",
        "Whether a pattern leaves out the cluster's internal topics.",
    ),
    (
        "fetch.max.bytes", "int", "52428800", "[0,...]", "medium", "honoured",
        "Size of the largest answer to a fetch; a first batch that is larger comes all the same.",
    ),
    (
        "fetch.max.wait.ms", "int", "500", "[0,...]", "low", "honoured",
        "How long the broker waits for `fetch.min.bytes`.",
    ),
    (
        "fetch.min.bytes", "int", "1", "[0,...]", "high", "honoured",
        "The broker answers a fetch as soon as it has so much.",
    ),
    (
        "group.id", "string", None, "", "high", "honoured",
        "The consumer group; needed to subscribe and to commit.",
    ),
    (
        "group.instance.id", "string", None, "non-empty string", "medium", "honoured",
        "Makes this a static member: a restart within the session timeout causes no rebalance.",
    ),
    (
        "group.protocol", "string", "classic", "[classic, consumer]", "high", "refused",
        "`classic`; the newer protocol (`consumer`, KIP-848) is not supported yet.",
    ),
    (
        "group.remote.assignor", "string", None, "", "medium", "refused",
        "The broker's assignor of the newer group protocol, which is not supported yet.",
    ),
    (
        "heartbeat.interval.ms", "int", "3000", "", "high", "honoured",
        "Interval of heartbeats to the coordinator; at most a third of `session.timeout.ms` is recommended.",
    ),
    (
        "interceptor.classes", "list", "", "", "low", "honoured",
        "Interceptors (`on_consume`, `on_commit`), called in this order: objects, classes, dotted names.",
    ),
    (
        "internal.leave.group.on.close", "boolean", "true", "", "low", "honoured",
        "Whether `close` leaves the group at once, rather than by the session timeout. (Internal to Kafka.)",
    ),
    (
        "internal.throw.on.fetch.stable.offset.unsupported", "boolean", "false", "", "low", "no_effect",
        "What to do with brokers too old to hold back offsets of open transactions. (Internal to Kafka.)",
    ),
    (
        "isolation.level", "string", "read_uncommitted", "[read_committed, read_uncommitted]", "medium", "honoured",
        "`read_committed` gives records of committed transactions only, and none beyond the first open one.",
    ),
    (
        "key.deserializer", "class", None, "", "high", "honoured",
        "Makes keys of bytes: an object, a class, a callable, a dotted name, the name of a Java deserializer. Without "
        "one keys are bytes.",
    ),
    (
        "max.partition.fetch.bytes", "int", "1048576", "[0,...]", "high", "honoured",
        "Size of the records of one partition in an answer; a first batch that is larger comes all the same.",
    ),
    (
        "max.poll.interval.ms", "int", "300000", "[1,...]", "medium", "honoured",
        "The longest time between two calls of `poll`; a member that takes longer leaves its group.",
    ),
    ("max.poll.records", "int", "500", "[1,...]", "medium", "honoured", "How many records one `poll` gives at most."),
    (
        "partition.assignment.strategy",
        "list",
        "org.apache.kafka.clients.consumer.RangeAssignor,org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        "", "medium", "honoured",
        "Assignors, most preferred first: `range`, `roundrobin`, `sticky`, `cooperative-sticky`, Java class names, "
        "dotted names, classes, objects.",
    ),
    (
        "receive.buffer.bytes", "int", "65536", "[-1,...]", "medium", "honoured",
        "Size of the socket's receive buffer (SO_RCVBUF). -1 leaves it to the operating system, which adapts it.",
    ),
    (
        "session.timeout.ms", "int", "45000", "", "high", "honoured",
        "A member without a heartbeat for so long is taken for dead. Brokers bound it by "
        "`group.min.session.timeout.ms` and `group.max.session.timeout.ms`.",
    ),
    (
        "value.deserializer", "class", None, "", "high", "honoured",
        "Makes values of bytes: as `key.deserializer` does keys.",
    ),
)
