"""The cures of the errors that brokers answer with, where brokers do not name them."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.wire.errors import ErrorCode

ALLOW = "have the cluster's administrator allow it to the user of this client (an ACL)"
REPLICAS = "bring the missing brokers back, or lower the topic's min.insync.replicas"

CURES: Mapping[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ALLOW,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ALLOW,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ALLOW,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ALLOW,
    ErrorCode.NOT_ENOUGH_REPLICAS: REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: REPLICAS,
    ErrorCode.INVALID_GROUP_ID: "set group.id to a name that is not empty",
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "set session.timeout.ms between the broker's group.min.session.timeout.ms and group.max.session.timeout.ms"
    ),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "give all members of the group a partition.assignment.strategy in common, or use another group.id"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: "run fewer members, or raise the broker's group.max.size",
    ErrorCode.FENCED_INSTANCE_ID: "give each running consumer a group.instance.id of its own",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: (
        "if it lasts, see whether the topic __consumer_offsets exists and its partitions have leaders; to create it "
        "there must be as many brokers as offsets.topic.replication.factor says"
    ),
    ErrorCode.LEADER_NOT_AVAILABLE: "if it lasts, bring back a broker that has an in-sync replica of the partition",
    ErrorCode.MESSAGE_TOO_LARGE: (
        "raise the topic's max.message.bytes (message.max.bytes of the brokers), or send smaller records"
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise the topic's segment.bytes, or lower batch.size",
    ErrorCode.INVALID_TIMESTAMP: (
        "compare the clocks of client and broker; the topic's message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms say how far a timestamp may be off"
    ),
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: (
        "raise the topic's message.format.version (log.message.format.version of the brokers) to 0.11 or newer; until "
        "then switch enable.idempotence off and send no headers"
    ),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "choose a compression.type that brokers and consumers of this age know",
    ErrorCode.INVALID_REQUIRED_ACKS: "set acks to 0, 1 or all",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "use at most 249 of the letters a-z, A-Z, 0-9, '.', '_' and '-'; topics like __consumer_offsets are written by "
        "brokers only"
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: "see the broker's log: one of its log.dirs has failed, or its disk is full",
    ErrorCode.UNSUPPORTED_VERSION: (
        "the broker does not serve what is asked: upgrade it (or its inter.broker.protocol.version), or do without"
    ),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "commit less text with the offset, or raise offset.metadata.max.bytes",
}
"""By error code. A cure names settings by Kafka's names, and says whose they are where they are not the client's."""
