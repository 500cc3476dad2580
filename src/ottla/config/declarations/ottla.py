"""Settings that Apache Kafka does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.config.settings import Row

# fmt: off
ROWS: tuple[Row, ...] = (
    (
        "ottla.flush.interval.ms", "long", "5000", "[1,...]", "medium", "read-only", "honoured",
        "How often dirty data of each partition is forced to disk in the background, in milliseconds, where Kafka's "
        "default leaves it to the system; the partitions in turn, not all at once. `flush.ms` and `flush.messages` of "
        "a topic come on top of it.",
    ),
    (
        "ottla.log.flush.on.ack", "boolean", "false", "", "medium", "read-only", "honoured",
        "Whether an acknowledgement means that the records are on the disk, not just in the page cache: for producers "
        "with acks 1 and -1, for committed offsets and whatever else a coordinator writes, and for topics and their "
        "settings. Records that wait for the disk together are forced together. Consumers see records once they are "
        "there. `ottla serve --durable` sets it.",
    ),
    (
        "ottla.metrics.host", "string", "127.0.0.1", "", "medium", "read-only", "honoured",
        "Address on which `/metrics` is served where `ottla.metrics.port` is set. Nobody has to log in there: choose "
        "another one than the loopback only in a network that you trust.",
    ),
    (
        "ottla.metrics.port", "int", "-1", "[-1,...,65535]", "medium", "read-only", "honoured",
        "Port on which metrics are served by HTTP, in Prometheus's text format (docs/metrics.md); 0 takes any free "
        "one, -1 serves them to nobody. Needs `pip install 'ottla[metrics]'`.",
    ),
    (
        "ottla.request.max.elements", "int", "200000", "[5000,...]", "medium", "read-only", "honoured",
        "The most elements that the arrays of one request may have together (topics, partitions, groups, keys and so "
        "on). A request with more is refused with INVALID_REQUEST, or by closing the connection where the response has "
        "no place for an error of the whole; its client should ask for less at a time. Ten times as many are taken in "
        "the requests of a controller, which name all partitions of a cluster: raise it for more than 250,000 "
        "partitions of factor 3.",
    ),
    (
        "ottla.zookeeper.port", "int", "-1", "[-1,...,65535]", "medium", "read-only", "honoured",
        "Port on which the embedded coordination metadata is served to other processes, in ZooKeeper's protocol, at "
        "the address of the first listener; 0 takes any free one, -1 serves it to nobody. `ottla serve "
        "--zookeeper-port` sets it.",
    ),
    (
        "ottla.tree.unclean.start.enable", "boolean", "false", "", "medium", "read-only", "honoured",
        "Whether a start goes on where changes are missing from the embedded coordination metadata that were on the "
        "disk once (its log was cut, removed or damaged, or its snapshot is an older one): they are lost then. For "
        "one start; without it the broker refuses. Nothing is done where nothing is missing.",
    ),
    (
        "ottla.rebalance.evidence.enable", "boolean", "true", "", "medium", "read-only", "honoured",
        "Whether the cause and cost of every rebalance is recorded in the topic `__ottla_rebalances`.",
    ),
)
