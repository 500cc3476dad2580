"""Moves whose writes ZooKeeper did not answer, and whose topics cannot be read back at once."""

from __future__ import annotations

import pytest

from ottla.cluster.controller_events import ReassignmentResult, ReplicaMove, TopicCreated
from ottla.cluster.topics import TopicSpec
from ottla.zk.client import ConnectionLossError
from unit.broker.control.test_watched_changes import Broker, run

pytestmark = pytest.mark.spec("R5", "Z3")


def test_a_move_whose_answer_was_lost_is_taken_up_though_the_topic_cannot_be_read_at_once() -> None:
    async def body(broker: Broker) -> None:
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        await broker.until(lambda: "t" in broker.changes._watched and not broker.changes._due)
        take_over, asked = broker.control.take_over, []

        async def take_over_later(name: str) -> None:
            asked.append(name)
            if len(asked) == 1:
                raise ConnectionLossError(name, "away")
            await take_over(name)

        broker.control.take_over = take_over_later  # type: ignore[method-assign]
        broker.zk.answers_lost = 1
        result = await broker.control.admin.reassign({("t", 0): (7, 8)})
        assert isinstance(result, ReassignmentResult)
        assert list(result.refusals) == [("t", 0)]
        await broker.until(lambda: bool(asked) and bool(broker.changes._due))
        controller = broker.control.controller.controller
        assert not controller.reassignments()
        broker.changes.resume(is_new_session=False)
        await broker.until(lambda: bool(controller.reassignments()))
        [(known, move)] = controller.reassignments().values()
        assert (known.replicas, move) == ((7, 8), ReplicaMove((8,), ()))
        assert broker.data("/brokers/topics/t")["adding_replicas"] == {"0": [8]}  # type: ignore[index]

    run(body)
