"""Settings of the server: connections, listeners, limits, metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.config.settings import Row

# fmt: off
ROWS: tuple[Row, ...] = (
    (
        "advertised.listeners", "string", None, "", "high", "per-broker", "honoured",
        "The addresses given to clients and registered under /brokers/ids; the addresses of `listeners` where "
        "unset. An address that clients cannot reach (0.0.0.0) is refused.",
    ),
    (
        "alter.config.policy.class.name", "class", None, "", "low", "read-only", "refused",
        "A Java class that judges changes of topic settings.",
    ),
    (
        "auto.create.topics.enable", "boolean", "true", "", "high", "read-only", "honoured",
        "Whether a topic that a client asks for by name, and may produce to, is created when it is missing.",
    ),
    (
        "auto.include.jmx.reporter", "boolean", "true", "", "low", "read-only", "no_effect",
        "Whether metrics are reported by JMX, which only a JVM has.",
    ),
    (
        "auto.leader.rebalance.enable", "boolean", "true", "", "high", "read-only", "honoured",
        "Whether the controller moves leadership back to preferred replicas from time to time.",
    ),
    (
        "background.threads", "int", "10", "[1,...]", "high", "cluster-wide", "no_effect",
        "Threads for background work; one event loop and its disk threads do it here.",
    ),
    (
        "broker.id.generation.enable", "boolean", "true", "", "medium", "read-only", "honoured",
        "Whether a broker without an id gets a generated one.",
    ),
    (
        "broker.id", "int", "-1", "", "high", "read-only", "honoured",
        "The id of this broker in its cluster; -1 has one generated, above `reserved.broker.max.id`.",
    ),
    (
        "broker.rack", "string", None, "", "medium", "read-only", "honoured",
        "The rack this broker stands in: replicas of a partition are spread over racks.",
    ),
    (
        "connections.max.idle.ms", "long", "600000", "", "medium", "read-only", "honoured",
        "A connection without traffic for this long is closed, in milliseconds.",
    ),
    (
        "control.plane.listener.name", "string", None, "", "high", "read-only", "no_effect",
        "A listener reserved for requests of the controller.",
    ),
    (
        "controlled.shutdown.enable", "boolean", "true", "", "medium", "read-only", "honoured",
        "Whether leadership is handed over before a broker stops; with one broker there is nobody to take it.",
    ),
    (
        "controlled.shutdown.max.retries", "int", "3", "", "medium", "read-only", "honoured",
        "How often a controlled shutdown is tried again.",
    ),
    (
        "controlled.shutdown.retry.backoff.ms", "long", "5000", "", "medium", "read-only", "honoured",
        "The pause between two attempts of a controlled shutdown, in milliseconds.",
    ),
    (
        "controller.socket.timeout.ms", "int", "30000", "", "medium", "read-only", "honoured",
        "Time limit of a request from the controller to a broker, in milliseconds.",
    ),
    (
        "create.topic.policy.class.name", "class", None, "", "low", "read-only", "refused",
        "A Java class that judges new topics.",
    ),
    (
        "delete.topic.enable", "boolean", "true", "", "high", "read-only", "honoured",
        "Whether topics can be deleted by clients.",
    ),
    (
        "fetch.max.bytes", "int", "57671680", "[1024,...]", "medium", "read-only", "honoured",
        "The most bytes that the answer to one fetch holds, over all its partitions; a first batch that is larger "
        "is sent nevertheless.",
    ),
    (
        "initial.broker.registration.timeout.ms", "int", "60000", "", "medium", "read-only", "no_effect",
        "KRaft mode only: how long to try to register with the controllers, in milliseconds.",
    ),
    (
        "inter.broker.listener.name", "string", None, "", "medium", "read-only", "honoured",
        "The listener that brokers use among themselves; must be one of the advertised ones.",
    ),
    (
        "inter.broker.protocol.version", "string", "3.9-IV0", "version", "medium", "read-only", "no_effect",
        "The version of Kafka's protocol between brokers; it has no bearing on clients.",
    ),
    (
        "kafka.metrics.polling.interval.secs", "int", "10", "[1,...]", "low", "read-only", "no_effect",
        "How often the Java metrics reporters are called, in seconds.",
    ),
    (
        "kafka.metrics.reporters", "list", "", "", "low", "read-only", "no_effect",
        "Java classes that report metrics.",
    ),
    (
        "listener.security.protocol.map",
        "string",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "",
        "low",
        "per-broker",
        "honoured",
        "Which security protocol each listener name speaks, as `NAME:PROTOCOL,...`; only PLAINTEXT can be served "
        "yet.",
    ),
    (
        "listeners", "string", "PLAINTEXT://:9092", "", "high", "per-broker", "honoured",
        "The addresses to listen on, as `NAME://host:port,...`. An empty host means all interfaces; port 0 lets "
        "the system choose one, which is resolved before it is announced.",
    ),
    (
        "max.connection.creation.rate", "int", "2147483647", "[0,...]", "medium", "cluster-wide", "honoured",
        "The most new connections per second; more of them wait.",
    ),
    (
        "max.connections.per.ip.overrides", "string", "", "", "medium", "cluster-wide", "honoured",
        "Other limits than `max.connections.per.ip` for single addresses, as `address:count,...`; names of hosts are "
        "not looked up.",
    ),
    (
        "max.connections.per.ip", "int", "2147483647", "[0,...]", "medium", "cluster-wide", "honoured",
        "The most connections from one address at any time.",
    ),
    (
        "max.connections", "int", "2147483647", "[0,...]", "medium", "cluster-wide", "honoured",
        "The most connections to this broker at any time; further ones are closed at once.",
    ),
    (
        "max.incremental.fetch.session.cache.slots", "int", "1000", "[0,...]", "medium", "read-only", "honoured",
        "How many incremental fetch sessions are kept.",
    ),
    (
        "max.request.partition.size.limit", "int", "2000", "[1,...]", "medium", "read-only", "no_effect",
        "The most partitions that one request about topic partitions (DescribeTopicPartitions) is answered for.",
    ),
    (
        "message.max.bytes", "int", "1048588", "[0,...]", "high", "cluster-wide", "honoured",
        "The largest record batch taken, in bytes, after compression; `max.message.bytes` says it for one topic.",
    ),
    (
        "metric.reporters", "list", "", "", "low", "cluster-wide", "no_effect",
        "Java classes that report metrics.",
    ),
    (
        "metrics.num.samples", "int", "2", "[1,...]", "low", "read-only", "no_effect",
        "How many samples a metric is computed from.",
    ),
    (
        "metrics.recording.level", "string", "INFO", "", "low", "read-only", "no_effect",
        "Which metrics are recorded: INFO, DEBUG or TRACE.",
    ),
    (
        "metrics.sample.window.ms", "long", "30000", "[1,...]", "low", "read-only", "no_effect",
        "The time that one sample of a metric covers, in milliseconds.",
    ),
    (
        "num.io.threads", "int", "8", "[1,...]", "high", "cluster-wide", "no_effect",
        "Threads that work off requests in Apache Kafka; here one event loop does, so the number is accepted and "
        "not used.",
    ),
    (
        "num.network.threads", "int", "3", "[1,...]", "high", "cluster-wide", "no_effect",
        "Threads that read and write sockets in Apache Kafka; here one event loop does, so the number is accepted "
        "and not used.",
    ),
    (
        "queued.max.request.bytes", "long", "-1", "", "medium", "read-only", "honoured",
        "The most bytes of requests that are kept while they are worked on (large ones, and those that wait); beyond "
        "it, connections in the middle of a request are not read. -1 for no limit.",
    ),
    (
        "queued.max.requests", "int", "500", "[1,...]", "high", "read-only", "no_effect",
        "The most waiting requests in Apache Kafka's queue; here each connection has one request in work and the "
        "rest waits in its buffer.",
    ),
    (
        "request.timeout.ms", "int", "30000", "", "high", "read-only", "no_effect",
        "How long a request that the broker itself makes may take, in milliseconds.",
    ),
    (
        "reserved.broker.max.id", "int", "1000", "[0,...]", "medium", "read-only", "honoured",
        "The highest id to give by hand; generated ids are above it.",
    ),
    (
        "server.max.startup.time.ms", "long", "9223372036854775807", "[0,...]", "medium", "read-only", "no_effect",
        "How long the start of the server may take, in milliseconds.",
    ),
    (
        "socket.connection.setup.timeout.max.ms", "long", "30000", "", "medium", "read-only", "no_effect",
        "The longest time to wait for a connection to another broker, in milliseconds.",
    ),
    (
        "socket.connection.setup.timeout.ms", "long", "10000", "", "medium", "read-only", "no_effect",
        "The first time limit for making a connection to another broker, in milliseconds.",
    ),
    (
        "socket.listen.backlog.size", "int", "50", "[1,...]", "medium", "read-only", "no_effect",
        "How many connections may wait to be accepted; left to the system here.",
    ),
    (
        "socket.receive.buffer.bytes", "int", "102400", "", "high", "read-only", "no_effect",
        "Size of the sockets' receive buffer (SO_RCVBUF), in bytes; left to the system here, which adapts it.",
    ),
    (
        "socket.request.max.bytes", "int", "104857600", "[1,...]", "high", "read-only", "honoured",
        "The largest request taken, in bytes; a larger one closes its connection.",
    ),
    (
        "socket.send.buffer.bytes", "int", "102400", "", "high", "read-only", "honoured",
        "Size of the sockets' send buffer (SO_SNDBUF), in bytes; -1 leaves it to the system, which adapts it.",
    ),
    (
        "telemetry.max.bytes", "int", "1048576", "[1,...]", "low", "read-only", "no_effect",
        "The largest batch of client metrics taken, in bytes.",
    ),
    (
        "unstable.api.versions.enable", "boolean", "false", "", "high", "read-only", "no_effect",
        "Whether versions of requests that are not stable yet are served.",
    ),
    (
        "unstable.feature.versions.enable", "boolean", "false", "", "high", "read-only", "no_effect",
        "Whether feature levels that are not stable yet can be chosen.",
    ),
)
