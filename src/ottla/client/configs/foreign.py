"""Setting names and values of other clients, and Kafka's own for them.

Sources: the configuration pages of librdkafka (confluent-kafka), kafka-python, aiokafka and Kafka 0.8's clients.
"""

from __future__ import annotations

_CALLBACK = "give send() a callback, or await the future that it gives"
_AUTOMATIC = "versions are agreed on with each broker; leave it out"
_NOT_NEEDED = "nothing like it is needed here; leave it out"
_LOGGING = 'this client logs to Python\'s logger "ottla.client", its connections to "ottla.peer"; set the levels there'
_METRICS = "call metrics()"
_NO_LOGIN = "set sasl.mechanism, and sasl.username and sasl.password or sasl.jaas.config"
_NO_REVOCATION = "lists of revoked certificates are not read"
_NO_PROXY = "brokers are reached directly, without a proxy; leave it out"
_TIMEOUT = "give poll() a timeout_ms, or leave the loop when it gives nothing"
_STORE_OFFSETS = "set enable.auto.commit to false and call commit() with the offsets you mean"
_EXCEPTIONS = "errors are raised by the call that they concern, or given to its future"

RENAMED: dict[str, tuple[str, ...]] = {
    # librdkafka
    "auto.commit.enable": ("enable.auto.commit",),
    "batch.num.messages": ("batch.size",),
    "compression.codec": ("compression.type",),
    "compression.level": ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
    "consume.callback.max.messages": ("max.poll.records",),
    "coordinator.query.interval.ms": ("retry.backoff.ms",),
    "fetch.error.backoff.ms": ("retry.backoff.ms",),
    "fetch.message.max.bytes": ("max.partition.fetch.bytes",),
    "fetch.wait.max.ms": ("fetch.max.wait.ms",),
    "max.in.flight": ("max.in.flight.requests.per.connection",),
    "message.max.bytes": ("max.request.size",),
    "message.send.max.retries": ("retries",),
    "message.timeout.ms": ("delivery.timeout.ms",),
    "metadata.broker.list": ("bootstrap.servers",),
    "metadata.request.timeout.ms": ("request.timeout.ms",),
    "partitioner": ("partitioner.class",),
    "plugin.library.paths": ("interceptor.classes",),
    "queue.buffering.max.kbytes": ("buffer.memory",),
    "queue.buffering.max.messages": ("buffer.memory",),
    "queue.buffering.max.ms": ("linger.ms",),
    "queued.max.messages.kbytes": ("fetch.max.bytes",),
    "receive.message.max.bytes": ("fetch.max.bytes",),
    "reconnect.backoff.jitter.ms": ("reconnect.backoff.ms",),
    "request.required.acks": ("acks",),
    "oauth.cb": ("sasl.login.callback.handler.class",),
    "oauthbearer.token.refresh.cb": ("sasl.login.callback.handler.class",),
    "sasl.mechanisms": ("sasl.mechanism",),
    "sasl.oauthbearer.client.id": ("sasl.oauthbearer.client.credentials.client.id",),
    "sasl.oauthbearer.client.secret": ("sasl.oauthbearer.client.credentials.client.secret",),
    "socket.receive.buffer.bytes": ("receive.buffer.bytes",),
    "socket.send.buffer.bytes": ("send.buffer.bytes",),
    "socket.timeout.ms": ("request.timeout.ms",),
    "topic.metadata.refresh.fast.interval.ms": ("retry.backoff.ms",),
    "ssl.ca.location": ("ssl.truststore.location",),
    "ssl.ca.pem": ("ssl.truststore.certificates",),
    "ssl.certificate.location": ("ssl.keystore.location",),
    "ssl.certificate.pem": ("ssl.keystore.certificate.chain",),
    "ssl.key.location": ("ssl.keystore.location",),
    "ssl.key.pem": ("ssl.keystore.key",),
    "topic.metadata.refresh.interval.ms": ("metadata.max.age.ms",),
    # kafka-python, aiokafka
    "bootstrap.timeout.ms": ("max.block.ms", "default.api.timeout.ms"),
    "max.batch.size": ("batch.size",),
    "rebalance.timeout.ms": ("max.poll.interval.ms",),
    "sasl.oauth.token.provider": ("sasl.login.callback.handler.class",),
    "sasl.plain.password": ("sasl.password",),
    "sasl.plain.username": ("sasl.username",),
    "ssl.cafile": ("ssl.truststore.location",),
    "ssl.certfile": ("ssl.keystore.location",),
    "ssl.check.hostname": ("ssl.endpoint.identification.algorithm",),
    "ssl.ciphers": ("ssl.cipher.suites",),
    "ssl.keyfile": ("ssl.keystore.location",),
    "ssl.password": ("ssl.key.password",),
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
"""Another client's setting, and Kafka's names for it."""

INSTEAD: dict[str, str] = {
    # librdkafka
    "api.version.fallback.ms": _AUTOMATIC,
    "api.version.request": _AUTOMATIC,
    "api.version.request.timeout.ms": _AUTOMATIC,
    "broker.address.family": "give addresses of that family in bootstrap.servers",
    "broker.address.ttl": _NOT_NEEDED,
    "broker.version.fallback": _AUTOMATIC,
    "client.software.name": _NOT_NEEDED,
    "client.software.version": _NOT_NEEDED,
    "debug": _LOGGING,
    "default.topic.config": "give its settings at the top, beside the others",
    "delivery.report.only.error": _CALLBACK,
    "dr.cb": _CALLBACK,
    "dr.msg.cb": _CALLBACK,
    "enable.auto.offset.store": _STORE_OFFSETS,
    "enable.gapless.guarantee": "enable.idempotence keeps the order; look at the futures for what failed",
    "enable.partition.eof": "compare position() with end_offsets()",
    "enable.sparse.connections": _NOT_NEEDED,
    "error.cb": _EXCEPTIONS,
    "fetch.queue.backoff.ms": _NOT_NEEDED,
    "go.delivery.reports": _CALLBACK,
    "log.connection.close": _LOGGING,
    "log.level": _LOGGING,
    "log.queue": _LOGGING,
    "log.thread.name": _LOGGING,
    "logger": _LOGGING,
    "message.copy.max.bytes": _NOT_NEEDED,
    "offset.store.method": "offsets are kept by the cluster; leave it out",
    "on.commit": "give commit_async() a callback",
    "on.delivery": _CALLBACK,
    "produce.offset.report": "the result of send()'s future has the offset",
    "queue.buffering.backpressure.threshold": _NOT_NEEDED,
    "queued.min.messages": _NOT_NEEDED,
    "queuing.strategy": _NOT_NEEDED,
    "schema.registry.url": "make the (de)serializer with it, and give that object",
    "socket.blocking.max.ms": _NOT_NEEDED,
    "socket.keepalive.enable": _NOT_NEEDED,
    "statistics.interval.ms": _METRICS,
    "stats.cb": _METRICS,
    "sticky.partitioning.linger.ms": "records without a key stay with a partition for batch.size bytes; leave it out",
    "socket.max.fails": _NOT_NEEDED,
    "socket.nagle.disable": "it is always disabled; leave it out",
    "enable.ssl.certificate.verification": "it is always verified; give ssl.truststore.location",
    "ssl.crl.location": _NO_REVOCATION,
    "topic.blacklist": "subscribe to a pattern that leaves those topics out",
    "topic.metadata.propagation.max.ms": _NOT_NEEDED,
    "topic.metadata.refresh.fast.cnt": _NOT_NEEDED,
    "topic.metadata.refresh.sparse": _NOT_NEEDED,
    # kafka-python, aiokafka
    "api.version": _AUTOMATIC,
    "api.version.auto.timeout.ms": _AUTOMATIC,
    "consumer.timeout.ms": _TIMEOUT,
    "default.offset.commit.callback": "give commit_async() a callback",
    "enable.incremental.fetch.sessions": _AUTOMATIC,
    "kafka.client": _NOT_NEEDED,
    "loop": "a client runs in the loop that it is started in; leave it out",
    "metric.group.prefix": _METRICS,
    "metrics.enabled": _METRICS,
    "selector": _NOT_NEEDED,
    "sock.chunk.bytes": _NOT_NEEDED,
    "socket.options": "there are send.buffer.bytes and receive.buffer.bytes",
    "proxy.url": _NO_PROXY,
    "socks5.proxy": _NO_PROXY,
    "ssl.context": "give ssl.keystore.location, ssl.truststore.location and the like; the client makes the context",
    "ssl.crlfile": _NO_REVOCATION,
    "topics": "call subscribe()",
    # Kafka 0.8's clients
    "offsets.storage": "offsets are kept by the cluster; leave it out",
    "producer.type": "set linger.ms, and wait for the future of send() or not",
    "zookeeper.connect": "give bootstrap.servers, the addresses of brokers",
    "zookeeper.session.timeout.ms": "give session.timeout.ms",
}
"""Another client's setting, and what to do instead if Kafka has no such setting."""


def instead_of(name: str) -> str | None:
    """Return what to do instead of a setting of another client (dotted name); None for an unknown name."""
    if name.startswith("sasl."):
        return _NO_LOGIN
    return INSTEAD.get(name)


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
"""Values of other clients, and Kafka's own values for them."""
