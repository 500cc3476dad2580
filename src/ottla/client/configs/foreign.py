"""Names and values that people carry over from other clients, and what Kafka's own client calls them.

Sources: the configuration pages of librdkafka (confluent-kafka), kafka-python, aiokafka and Kafka 0.8's clients.
"""

from __future__ import annotations

_CALLBACK = "give send() a callback, or await the future that it gives"
_AUTOMATIC = "versions are agreed on with each broker; leave it out"
_NOT_NEEDED = "nothing like it is needed here; leave it out"
_LOGGING = 'this client logs to Python\'s logger "ottla.client"; set its level there'
_METRICS = "call metrics()"
_NO_TLS_OR_LOGIN = "TLS and logins are not there yet; reach the cluster by a PLAINTEXT listener"
_TIMEOUT = "give poll() a timeout_ms, or leave the loop when it gives nothing"
_STORE_OFFSETS = "set enable.auto.commit to false and call commit() with the offsets you mean"
_EXCEPTIONS = "errors are raised by the call that they concern, or given to its future"

RENAMED: dict[str, tuple[str, ...]] = {
    # librdkafka
    "auto.commit.enable": ("enable.auto.commit",),
    "batch.num.messages": ("batch.size",),
    "compression.codec": ("compression.type",),
    "compression.level": ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
    "fetch.message.max.bytes": ("max.partition.fetch.bytes",),
    "fetch.wait.max.ms": ("fetch.max.wait.ms",),
    "max.in.flight": ("max.in.flight.requests.per.connection",),
    "message.max.bytes": ("max.request.size",),
    "message.send.max.retries": ("retries",),
    "message.timeout.ms": ("delivery.timeout.ms",),
    "metadata.broker.list": ("bootstrap.servers",),
    "partitioner": ("partitioner.class",),
    "queue.buffering.max.kbytes": ("buffer.memory",),
    "queue.buffering.max.messages": ("buffer.memory",),
    "queue.buffering.max.ms": ("linger.ms",),
    "queued.max.messages.kbytes": ("fetch.max.bytes",),
    "request.required.acks": ("acks",),
    "socket.receive.buffer.bytes": ("receive.buffer.bytes",),
    "socket.send.buffer.bytes": ("send.buffer.bytes",),
    "socket.timeout.ms": ("request.timeout.ms",),
    "topic.metadata.refresh.interval.ms": ("metadata.max.age.ms",),
    # kafka-python, aiokafka
    "max.batch.size": ("batch.size",),
    "rebalance.timeout.ms": ("max.poll.interval.ms",),
    # Kafka 0.8's clients
    "autocommit.enable": ("enable.auto.commit",),
    "autocommit.interval.ms": ("auto.commit.interval.ms",),
    "autooffset.reset": ("auto.offset.reset",),
    "block.on.buffer.full": ("max.block.ms",),
    "consumer.id": ("client.id", "group.instance.id"),
    "fetch.size": ("max.partition.fetch.bytes",),
    "key.serializer.class": ("key.serializer",),
    "metadata.fetch.timeout.ms": ("max.block.ms",),
    "queue.time": ("linger.ms",),
    "rebalance.backoff.ms": ("retry.backoff.ms",),
    "serializer.class": ("value.serializer",),
    "socket.buffersize": ("receive.buffer.bytes",),
    "timeout.ms": ("request.timeout.ms",),
}
"""Another client's name, and Kafka's own for what it does."""

INSTEAD: dict[str, str] = {
    # librdkafka
    "api.version.fallback.ms": _AUTOMATIC,
    "api.version.request": _AUTOMATIC,
    "broker.version.fallback": _AUTOMATIC,
    "debug": _LOGGING,
    "default.topic.config": "give its settings at the top, beside the others",
    "delivery.report.only.error": _CALLBACK,
    "dr.cb": _CALLBACK,
    "dr.msg.cb": _CALLBACK,
    "enable.auto.offset.store": _STORE_OFFSETS,
    "enable.partition.eof": "compare position() with end_offsets()",
    "error.cb": _EXCEPTIONS,
    "go.delivery.reports": _CALLBACK,
    "log.level": _LOGGING,
    "logger": _LOGGING,
    "on.commit": "give commit_async() a callback",
    "on.delivery": _CALLBACK,
    "queued.min.messages": _NOT_NEEDED,
    "socket.keepalive.enable": _NOT_NEEDED,
    "statistics.interval.ms": _METRICS,
    "stats.cb": _METRICS,
    # kafka-python, aiokafka
    "api.version": _AUTOMATIC,
    "api.version.auto.timeout.ms": _AUTOMATIC,
    "consumer.timeout.ms": _TIMEOUT,
    "default.offset.commit.callback": "give commit_async() a callback",
    "kafka.client": _NOT_NEEDED,
    "loop": "a client runs in the loop that it is started in; leave it out",
    "metrics.enabled": _METRICS,
    "selector": _NOT_NEEDED,
    "sock.chunk.bytes": _NOT_NEEDED,
    "socket.options": "there are send.buffer.bytes and receive.buffer.bytes",
    "sasl.mechanisms": _NO_TLS_OR_LOGIN,
    "sasl.password": _NO_TLS_OR_LOGIN,
    "sasl.plain.password": _NO_TLS_OR_LOGIN,
    "sasl.plain.username": _NO_TLS_OR_LOGIN,
    "sasl.username": _NO_TLS_OR_LOGIN,
    "ssl.ca.location": _NO_TLS_OR_LOGIN,
    "ssl.cafile": _NO_TLS_OR_LOGIN,
    "ssl.certfile": _NO_TLS_OR_LOGIN,
    "ssl.certificate.location": _NO_TLS_OR_LOGIN,
    "ssl.check.hostname": _NO_TLS_OR_LOGIN,
    "ssl.context": _NO_TLS_OR_LOGIN,
    "ssl.key.location": _NO_TLS_OR_LOGIN,
    "ssl.keyfile": _NO_TLS_OR_LOGIN,
    "topics": "call subscribe()",
    # Kafka 0.8's clients
    "offsets.storage": "offsets are kept by the cluster; leave it out",
    "producer.type": "set linger.ms, and wait for the future of send() or not",
    "zookeeper.connect": "give bootstrap.servers, the addresses of brokers",
    "zookeeper.session.timeout.ms": "give session.timeout.ms",
}
"""Another client's name, and what to do instead where Kafka has no such setting."""

OTHER_WORDS: dict[str, dict[str, str]] = {
    "auto.offset.reset": {
        "beginning": "earliest",
        "end": "latest",
        "error": "none",
        "largest": "latest",
        "smallest": "earliest",
    },
    "isolation.level": {"0": "read_uncommitted", "1": "read_committed"},
}
"""Values of other clients, and Kafka's own word for them."""
