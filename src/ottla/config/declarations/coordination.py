"""Settings of ZooKeeper and of KRaft roles."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.config.settings import Row

# fmt: off
ROWS: tuple[Row, ...] = (
    (
        "broker.heartbeat.interval.ms", "int", "2000", "", "medium", "read-only", "no_effect",
        "KRaft mode only: time between a broker's heartbeats to the controller, in milliseconds.",
    ),
    (
        "broker.session.timeout.ms", "int", "9000", "", "medium", "read-only", "no_effect",
        "KRaft mode only: how long a broker counts as alive without a heartbeat, in milliseconds.",
    ),
    (
        "controller.listener.names", "string", None, "", "high", "read-only", "refused",
        "KRaft mode only: the listeners of the controllers.",
    ),
    (
        "controller.quorum.append.linger.ms", "int", "25", "", "medium", "read-only", "no_effect",
        "KRaft mode only: how long the quorum's leader gathers writes, in milliseconds.",
    ),
    (
        "controller.quorum.bootstrap.servers", "list", "", "", "high", "read-only", "refused",
        "KRaft mode only: addresses where the quorum is found.",
    ),
    (
        "controller.quorum.election.backoff.max.ms", "int", "1000", "", "high", "read-only", "no_effect",
        "KRaft mode only: the longest pause before another election, in milliseconds.",
    ),
    (
        "controller.quorum.election.timeout.ms", "int", "1000", "", "high", "read-only", "no_effect",
        "KRaft mode only: how long a voter waits for the leader before it calls an election, in milliseconds.",
    ),
    (
        "controller.quorum.fetch.timeout.ms", "int", "2000", "", "high", "read-only", "no_effect",
        "KRaft mode only: how long a voter goes on without a fetch from the leader, in milliseconds.",
    ),
    (
        "controller.quorum.request.timeout.ms", "int", "2000", "", "medium", "read-only", "no_effect",
        "KRaft mode only: time limit of requests in the quorum, in milliseconds.",
    ),
    (
        "controller.quorum.retry.backoff.ms", "int", "20", "", "low", "read-only", "no_effect",
        "KRaft mode only: pause before a request in the quorum is sent again, in milliseconds.",
    ),
    (
        "controller.quorum.voters", "list", "", "", "high", "read-only", "refused",
        "KRaft mode only: the voters of the quorum, as `id@host:port,...`.",
    ),
    (
        "metadata.log.dir", "string", None, "", "high", "read-only", "no_effect",
        "KRaft mode only: directory of the metadata log.",
    ),
    (
        "metadata.log.max.record.bytes.between.snapshots",
        "long",
        "20971520",
        "[1,...]",
        "high",
        "read-only",
        "no_effect",
        "KRaft mode only: bytes in the metadata log between two snapshots.",
    ),
    (
        "metadata.log.max.snapshot.interval.ms", "long", "3600000", "[0,...]", "high", "read-only", "no_effect",
        "KRaft mode only: the longest time between two snapshots, in milliseconds.",
    ),
    (
        "metadata.log.segment.bytes", "int", "1073741824", "[12,...]", "high", "read-only", "no_effect",
        "KRaft mode only: segment size of the metadata log, in bytes.",
    ),
    (
        "metadata.log.segment.min.bytes", "int", "8388608", "[12,...]", "high", "read-only", "no_effect",
        "KRaft mode only: the smallest segment of the metadata log, in bytes.",
    ),
    (
        "metadata.log.segment.ms", "long", "604800000", "", "high", "read-only", "no_effect",
        "KRaft mode only: after this time the metadata log begins a segment, in milliseconds.",
    ),
    (
        "metadata.max.idle.interval.ms", "int", "500", "[0,...]", "low", "read-only", "no_effect",
        "KRaft mode only: how often the controller writes when it has nothing to write, in milliseconds.",
    ),
    (
        "metadata.max.retention.bytes", "long", "104857600", "", "high", "read-only", "no_effect",
        "KRaft mode only: the most bytes of metadata log and snapshots.",
    ),
    (
        "metadata.max.retention.ms", "long", "604800000", "", "high", "read-only", "no_effect",
        "KRaft mode only: how long metadata log and snapshots are kept, in milliseconds.",
    ),
    (
        "node.id", "int", "-1", "", "high", "read-only", "honoured",
        "KRaft's name of `broker.id`; set alone it is the broker's id.",
    ),
    (
        "process.roles", "list", "", "[broker, controller]", "high", "read-only", "refused",
        "KRaft mode: whether this process is broker, controller or both; empty for ZooKeeper mode.",
    ),
    (
        "zookeeper.clientCnxnSocket", "string", None, "", "medium", "read-only", "no_effect",
        "Java class of the ZooKeeper client's connection.",
    ),
    (
        "zookeeper.connection.timeout.ms", "int", None, "", "high", "read-only", "honoured",
        "How long to wait for a connection to ZooKeeper, in milliseconds; the session timeout where it is left out.",
    ),
    (
        "zookeeper.connect", "string", None, "", "high", "read-only", "honoured",
        "Addresses of a ZooKeeper ensemble, as `host:port,.../chroot`. Left out: coordination metadata embedded in "
        "the broker, in files beside the log.",
    ),
    (
        "zookeeper.max.in.flight.requests", "int", "10", "[1,...]", "high", "read-only", "honoured",
        "The most unanswered requests to ZooKeeper.",
    ),
    (
        "zookeeper.metadata.migration.enable", "boolean", "false", "", "high", "read-only", "refused",
        "Whether the cluster moves from ZooKeeper to KRaft.",
    ),
    (
        "zookeeper.metadata.migration.min.batch.size", "int", "200", "[1,...]", "medium", "read-only", "no_effect",
        "Records per batch of such a move.",
    ),
    (
        "zookeeper.session.timeout.ms", "int", "18000", "", "high", "read-only", "honoured",
        "Session timeout towards ZooKeeper, in milliseconds.",
    ),
    (
        "zookeeper.set.acl", "boolean", "false", "", "high", "read-only", "refused",
        "Whether znodes are made with access lists.",
    ),
    (
        "zookeeper.ssl.cipher.suites", "list", None, "", "low", "read-only", "no_effect",
        "TLS to ZooKeeper: the cipher suites.",
    ),
    (
        "zookeeper.ssl.client.enable", "boolean", "false", "", "medium", "read-only", "refused",
        "TLS to ZooKeeper: whether it is used.",
    ),
    (
        "zookeeper.ssl.crl.enable", "boolean", "false", "", "low", "read-only", "no_effect",
        "TLS to ZooKeeper: whether revocation lists are used.",
    ),
    (
        "zookeeper.ssl.enabled.protocols", "list", None, "", "low", "read-only", "no_effect",
        "TLS to ZooKeeper: the versions.",
    ),
    (
        "zookeeper.ssl.endpoint.identification.algorithm", "string", "HTTPS", "", "low", "read-only", "no_effect",
        "TLS to ZooKeeper: how the server's name is checked.",
    ),
    (
        "zookeeper.ssl.keystore.location", "string", None, "", "medium", "read-only", "no_effect",
        "TLS to ZooKeeper: file of the key store.",
    ),
    (
        "zookeeper.ssl.keystore.password", "password", None, "", "medium", "read-only", "no_effect",
        "TLS to ZooKeeper: password of the key store.",
    ),
    (
        "zookeeper.ssl.keystore.type", "string", None, "", "medium", "read-only", "no_effect",
        "TLS to ZooKeeper: format of the key store.",
    ),
    (
        "zookeeper.ssl.ocsp.enable", "boolean", "false", "", "low", "read-only", "no_effect",
        "TLS to ZooKeeper: whether certificates are checked by OCSP.",
    ),
    (
        "zookeeper.ssl.protocol", "string", "TLSv1.2", "", "low", "read-only", "no_effect",
        "TLS to ZooKeeper: the version preferred.",
    ),
    (
        "zookeeper.ssl.truststore.location", "string", None, "", "medium", "read-only", "no_effect",
        "TLS to ZooKeeper: file of the trust store.",
    ),
    (
        "zookeeper.ssl.truststore.password", "password", None, "", "medium", "read-only", "no_effect",
        "TLS to ZooKeeper: password of the trust store.",
    ),
    (
        "zookeeper.ssl.truststore.type", "string", None, "", "medium", "read-only", "no_effect",
        "TLS to ZooKeeper: format of the trust store.",
    ),
)
