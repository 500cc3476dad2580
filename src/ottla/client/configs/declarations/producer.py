"""Settings of producers only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.configs.settings import ClientRow

# fmt: off
ROWS: tuple[ClientRow, ...] = (
    (
        "acks", "string", "all", "[all, -1, 0, 1]", "low", "honoured",
        "Who must have a batch before it counts as sent: `all` (or -1) the replicas in sync, 1 the leader, 0 nobody.",
    ),
    (
        "batch.size", "int", "16384", "[0,...]", "medium", "honoured",
        "Size at which a batch is sent without waiting for more; a larger record goes alone.",
    ),
    (
        "buffer.memory", "long", "33554432", "[0,...]", "high", "honoured",
        "Size of all records that wait to be sent; beyond it `send` waits, for `max.block.ms` at most.",
    ),
    (
        "compression.gzip.level", "int", "-1", "1 to 9 or -1", "medium", "honoured",
        "Level of gzip; -1 is its own default.",
    ),
    ("compression.lz4.level", "int", "9", "[1,...,17]", "medium", "honoured", "Level of lz4."),
    (
        "compression.type", "string", "none", "[none, gzip, snappy, lz4, zstd]", "high", "honoured",
        "How batches are compressed.",
    ),
    ("compression.zstd.level", "int", "3", "[-131072,...,22]", "medium", "honoured", "Level of zstd."),
    (
        "connections.max.idle.ms", "long", "540000", "", "medium", "honoured",
        "A connection that was not used for so long is closed; negative: never.",
    ),
    (
        "delivery.timeout.ms", "int", "120000", "[0,...]", "medium", "honoured",
        "From `send` to the success or failure of a record, with all retries. At least `linger.ms` and "
        "`request.timeout.ms` together; where it is not given it is raised to that.",
    ),
    (
        "enable.idempotence", "boolean", "true", "", "low", "honoured",
        "Retries make neither duplicates nor a new order. Needs `acks=all`, `retries` and at most 5 requests in "
        "flight; where it is not given and they say otherwise, it is off.",
    ),
    (
        "interceptor.classes", "list", "", "", "low", "honoured",
        "Interceptors (`on_send`, `on_acknowledgement`), called in this order: objects, classes, dotted names.",
    ),
    (
        "key.serializer", "class", None, "", "high", "honoured",
        "Makes bytes of keys: an object, a class, a callable, a dotted name, the name of a Java serializer. Without "
        "one keys are bytes.",
    ),
    (
        "linger.ms", "long", "0", "[0,...]", "medium", "honoured",
        "How long a batch that is not full waits for more records.",
    ),
    (
        "max.block.ms", "long", "60000", "[0,...]", "medium", "honoured",
        "How long `send` and `partitions_for` wait for metadata and for room in the buffer.",
    ),
    (
        "max.in.flight.requests.per.connection", "int", "5", "[1,...]", "low", "honoured",
        "How many requests to a broker may be without answer. Without idempotence more than 1 may change the order.",
    ),
    (
        "max.request.size", "int", "1048576", "[0,...]", "medium", "honoured",
        "Size of the largest request, and of the largest record before compression.",
    ),
    (
        "metadata.max.idle.ms", "long", "300000", "[5000,...]", "low", "honoured",
        "Metadata of a topic that nothing was sent to for so long is forgotten.",
    ),
    (
        "partitioner.adaptive.partitioning.enable", "boolean", "true", "", "low", "honoured",
        "Records without a key go more often to partitions whose brokers keep up.",
    ),
    (
        "partitioner.availability.timeout.ms", "long", "0", "[0,...]", "low", "honoured",
        "Partitions whose broker took no batch for so long get no records without a key; 0: they do.",
    ),
    (
        "partitioner.class", "class", None, "", "medium", "honoured",
        "Chooses partitions: an object, a class, a callable, a dotted name, the name of a Java partitioner. Without "
        "one keys are hashed as Java hashes them, and records without a key stick to a partition for a batch.",
    ),
    (
        "partitioner.ignore.keys", "boolean", "false", "", "medium", "honoured",
        "Records with a key are partitioned as if they had none.",
    ),
    (
        "receive.buffer.bytes", "int", "32768", "[-1,...]", "medium", "honoured",
        "Size of the socket's receive buffer (SO_RCVBUF). -1 leaves it to the operating system, which adapts it.",
    ),
    (
        "retries", "int", "2147483647", "[0,...,2147483647]", "high", "honoured",
        "How often a batch is sent again. Better left alone: `delivery.timeout.ms` is the limit that matters.",
    ),
    (
        "transaction.timeout.ms", "int", "60000", "", "low", "no_effect",
        "How long a transaction may take; transactions are not supported yet.",
    ),
    (
        "transactional.id", "string", None, "non-empty string", "low", "refused",
        "Name of this producer across restarts, for transactions, which are not supported yet.",
    ),
    (
        "value.serializer", "class", None, "", "high", "honoured",
        "Makes bytes of values: as `key.serializer` does of keys.",
    ),
)
