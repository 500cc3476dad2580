"""Cluster-wide nodes: cluster id, controller, features, allocated producer ids."""

from __future__ import annotations

from typing import NamedTuple

from ottla.zk.layout.codec import KraftMigrationError, ZnodeDataError, dump, expected, load

PERSISTENT_PATHS = (
    "/consumers",
    "/brokers/ids",
    "/brokers/topics",
    "/config/changes",
    "/admin/delete_topics",
    "/brokers/seqid",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""The nodes that a broker creates when it starts, if they are missing."""


class ControllerZnode:
    """`/controller`, ephemeral: which broker is the controller (version 2)."""

    PATH = "/controller"

    @staticmethod
    def encode(broker_id: int, timestamp_ms: int) -> bytes:
        """The JSON as Kafka writes it."""
        return dump({"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1})

    @staticmethod
    def decode(data: bytes | None) -> int:
        """The controller's broker id. Raises `ZnodeDataError`, and `KraftMigrationError` for a controller of KRaft."""
        value = load(ControllerZnode.PATH, data)
        with expected(ControllerZnode.PATH, "names no controller"):
            controller_id, epoch = int(value["brokerid"]), int(value.get("kraftControllerEpoch", -1))
        if epoch >= 0:
            raise KraftMigrationError(
                f"{ControllerZnode.PATH} names controller {controller_id} of KRaft (kraftControllerEpoch={epoch}): the "
                "cluster is being migrated from ZooKeeper to KRaft, which ottla does not take part in. Take ottla's "
                "brokers out of it before a migration, or go back to ZooKeeper"
            )
        return controller_id


class ControllerEpochZnode:
    """`/controller_epoch`: the number of controller elections, as decimal text."""

    PATH = "/controller_epoch"

    @staticmethod
    def encode(epoch: int) -> bytes:
        """Decimal text."""
        return b"%d" % epoch

    @staticmethod
    def decode(data: bytes | None) -> int:
        """Raises `ZnodeDataError`."""
        try:
            return int(data or b"")
        except ValueError as error:
            raise ZnodeDataError(f"{ControllerEpochZnode.PATH} holds no number: {data!r}") from error


class ClusterIdZnode:
    """`/cluster/id`."""

    PATH = "/cluster/id"

    @staticmethod
    def encode(cluster_id: str) -> bytes:
        """The JSON as Kafka writes it; its version is text."""
        return dump({"version": "1", "id": cluster_id})

    @staticmethod
    def decode(data: bytes | None) -> str:
        """Raises `ZnodeDataError`."""
        cluster_id = load(ClusterIdZnode.PATH, data).get("id")
        if not isinstance(cluster_id, str) or not cluster_id:
            raise ZnodeDataError(f"{ClusterIdZnode.PATH} names no cluster")
        return cluster_id


class FeatureZnode:
    """`/feature`: the finalized features; there are none yet."""

    PATH = "/feature"
    ENABLED = 1

    @staticmethod
    def encode() -> bytes:
        """No features, versioning enabled (version 2 of its JSON)."""
        return dump({"features": {}, "version": 2, "status": FeatureZnode.ENABLED})


class ProducerIdBlock(NamedTuple):
    """A range of producer ids that one broker may assign, both ends included."""

    broker_id: int
    first: int
    last: int


class ProducerIdBlockZnode:
    """`/latest_producer_id_block`: the last allocated block; its ends are text."""

    PATH = "/latest_producer_id_block"

    @staticmethod
    def encode(block: ProducerIdBlock) -> bytes:
        """The JSON as Kafka writes it."""
        return dump(
            {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
        )

    @staticmethod
    def decode(data: bytes | None) -> ProducerIdBlock | None:
        """None for the empty node that brokers create when they start. Raises `ZnodeDataError`."""
        if not data:
            return None
        value = load(ProducerIdBlockZnode.PATH, data)
        with expected(ProducerIdBlockZnode.PATH, "holds no block"):
            return ProducerIdBlock(int(value["broker"]), int(value["block_start"]), int(value["block_end"]))
