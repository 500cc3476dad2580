"""Refusals of changes whose metadata cannot be written: the disk fails, or ZooKeeper is unreachable."""

from __future__ import annotations

from ottla.cluster.refusal import TopicRefusal
from ottla.env.disk import DiskError
from ottla.wire.errors import ErrorCode
from ottla.zk.client import ConnectionLossError
from ottla.zk.layout import ControllerEpochZnode, DeleteTopicZnode
from ottla.zk.tree import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    SessionMovedError,
    ZkError,
)

METADATA_ERRORS = (DiskError, ZkError)
"""Errors of a metadata change that are not the request's fault."""


def is_passing(error: Exception) -> bool:
    """Whether a retry may succeed after reconnection, while this broker is the controller."""
    if isinstance(error, BadVersionError):
        return error.path == ControllerEpochZnode.PATH
    return isinstance(error, ConnectionLossError | SessionExpiredError | SessionMovedError)


def metadata_refusal(error: DiskError | ZkError) -> TopicRefusal:
    """The refusal of a change. If its outcome is unknown, the metadata decide as soon as they can be read."""
    if isinstance(error, DiskError):
        return TopicRefusal(ErrorCode.KAFKA_STORAGE_ERROR, f"{error}. {error.cure}")
    if isinstance(error, BadVersionError) and is_passing(error):
        return TopicRefusal(ErrorCode.NOT_CONTROLLER, "The session with ZooKeeper has expired; try again.")
    if is_passing(error):
        return TopicRefusal(
            ErrorCode.REQUEST_TIMED_OUT,
            f"ZooKeeper could not be asked, so that this may not have been done. Try again when it is there: {error}",
        )
    if isinstance(error, NodeExistsError):
        return TopicRefusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Another broker or a tool has just created it: {error}")
    if isinstance(error, NoNodeError) and error.path.startswith(f"{DeleteTopicZnode.ROOT}/"):
        return TopicRefusal(
            ErrorCode.REQUEST_TIMED_OUT,
            f"The mark of the deletion, {error.path}, was removed before its end, not by this broker. The records are "
            "deleted; the topic is there, empty, where its znodes still are. To delete it, try again.",
        )
    return TopicRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refused it: {error}")
