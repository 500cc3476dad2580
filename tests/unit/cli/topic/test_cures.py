"""What the topic commands say helps fits the cause of a refusal, not only its error code."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from ottla.cli.topic.changes import with_cure
from ottla.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import Chance, TopicSpec, plan_partitions, plan_topic
from ottla.peer.errors import BrokerError
from ottla.wire.errors import ErrorCode
from support.storage_logs import broker_config

pytestmark = pytest.mark.spec("R4")


def image(*racks: str | None) -> ClusterImage:
    """Brokers 1 and on in these racks, and a topic of two partitions and two replicas."""
    topic = TopicImage("orders.eu", UUID(int=1), (PartitionImage(1, 0, (1, 2), (1, 2)),) * 2, {}, False)
    brokers = {number: BrokerImage(number, (), rack) for number, rack in enumerate(racks, 1)}
    return ClusterImage(brokers=brokers, topics={"orders.eu": topic})


def shown(refusal: object) -> str:
    assert isinstance(refusal, TopicRefusal)
    return with_cure(BrokerError(refusal.error, "topic t", refusal.message))


@pytest.mark.parametrize(
    ("spec", "racks", "cure"),
    [
        (TopicSpec("t", partitions=0), [None], "give --partitions at least 1"),
        (TopicSpec("t", replication_factor=0), [None], "give --replication-factor at least 1"),
        (TopicSpec("t", replication_factor=3), [None], "start more brokers, or give a smaller --replication-factor"),
        (TopicSpec("t", replication_factor=1), [None, "a"], "set broker.rack for all brokers or for none"),
        (TopicSpec(".."), [None], "and not '.' or '..' alone"),
        (TopicSpec("orders_eu"), [None], "'.' and '_' are one letter in the names of metrics"),
        (TopicSpec("orders.eu"), [None], "choose another name, or give --if-not-exists"),
    ],
)
def test_creation(spec: TopicSpec, racks: Sequence[str | None], cure: str) -> None:
    assert cure in shown(plan_topic(spec, image(*racks), broker_config(), Chance(0, 0))).partition("; ")[2]


@pytest.mark.parametrize(
    ("count", "assignments", "racks", "cure"),
    [
        (2, None, [None, None], "give --partitions a larger number than there are"),
        (1, None, [None, None], "give --partitions a larger number than there are"),
        (3, None, [None, "a"], "set broker.rack for all brokers or for none"),
        (3, [[1, 9]], [None, None], "name brokers that run"),
        (3, [[1, 2], [2, 1]], [None, None], "--replica-assignment names the brokers of all --partitions"),
        (3, [[1]], [None, None], "name as many brokers for each partition as the topic has replicas"),
    ],
)
def test_more_partitions(
    count: int, assignments: Sequence[Sequence[int]] | None, racks: Sequence[str | None], cure: str
) -> None:
    assert f"; {cure}" in shown(plan_partitions("orders.eu", count, assignments, image(*racks)))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (ErrorCode.INVALID_PARTITIONS, "a cause that nobody knows yet"),
        (ErrorCode.INVALID_REPLICATION_FACTOR, "a cause that nobody knows yet"),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "Cannot write to internal topic"),
    ],
)
def test_a_cause_that_is_not_known_gets_no_cure(code: ErrorCode, message: str) -> None:
    assert with_cure(BrokerError(code, "topic t", message)).endswith(f"{message} ({code.name})")
