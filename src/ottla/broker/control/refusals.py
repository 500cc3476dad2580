"""What a change answers whose tree cannot be written: a disk that fails, a ZooKeeper that is away."""

from __future__ import annotations

from ottla.cluster.refusal import TopicRefusal
from ottla.env.disk import DiskError
from ottla.wire.errors import ErrorCode
from ottla.zk.client import ConnectionLossError
from ottla.zk.layout import ControllerEpochZnode
from ottla.zk.tree import BadVersionError, NodeExistsError, SessionExpiredError, ZkError

TREE_ERRORS = (DiskError, ZkError)
"""What a change of the tree may raise through no fault of the request."""


def is_passing(error: Exception) -> bool:
    """Whether the same may be tried again once there is a connection and this broker is the controller in it."""
    if isinstance(error, BadVersionError):
        return error.path == ControllerEpochZnode.PATH
    return isinstance(error, ConnectionLossError | SessionExpiredError)


def tree_refusal(error: DiskError | ZkError) -> TopicRefusal:
    """The refusal of a change. Where the outcome is not known, what the tree says holds as soon as it can be read."""
    if isinstance(error, DiskError):
        return TopicRefusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    if isinstance(error, BadVersionError) and is_passing(error):
        return TopicRefusal(ErrorCode.NOT_CONTROLLER, "The session with ZooKeeper has expired; try again.")
    if is_passing(error):
        return TopicRefusal(
            ErrorCode.REQUEST_TIMED_OUT,
            f"ZooKeeper could not be asked, so that this may not have been done. Try again when it is there: {error}",
        )
    if isinstance(error, NodeExistsError):
        return TopicRefusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Somebody else makes it at this moment: {error}")
    return TopicRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refused it: {error}")
