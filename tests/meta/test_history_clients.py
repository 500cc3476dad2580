"""The clients of fault courses note what they did as it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from support.cluster_history import Committed
from support.history_clients import COMMIT_TIMEOUT_S, LibrdkafkaHistoryMember, RecordedHistory

if TYPE_CHECKING:
    from confluent_kafka import Consumer as LibrdkafkaConsumer

PLACE = ("orders", 2)


class Records:
    """A consumer that brings one record in each call, and keeps the commits that it was asked for."""

    def __init__(self) -> None:
        self.commits: list[list[Any]] = []
        self._offset = -1

    def consume(self, _count: int, _wait_s: float) -> list[Any]:
        self._offset += 1
        offset = self._offset
        record = SimpleNamespace(
            error=lambda: None,
            topic=lambda: PLACE[0],
            partition=lambda: PLACE[1],
            offset=lambda: offset,
            value=lambda: b"librdkafka#7",
        )
        return [record]

    def commit(self, offsets: list[Any], asynchronous: bool) -> None:
        assert asynchronous
        self.commits.append(offsets)


def test_a_late_answer_is_that_of_its_own_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr("support.history_clients.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    history = RecordedHistory()
    member = LibrdkafkaHistoryMember("m", "g", history, "nowhere:1", [PLACE])
    consumer = Records()

    def turn() -> None:
        member._round(cast("LibrdkafkaConsumer", consumer))

    turn()
    now_s[0] += 1
    turn()
    assert len(consumer.commits) == 1, "one is on its way"
    now_s[0] += COMMIT_TIMEOUT_S
    turn()
    early, late = consumer.commits
    assert [(each.offset) for each in (*early, *late)] == [1, 3]
    now_s[0] += 1
    member._on_commit(None, late)
    turn()
    now_s[0] += 1
    member._on_commit(None, early)
    found = [(each.offset, each.began_s) for each in history.events if isinstance(each, Committed)]
    assert found == [(3, 116.0), (1, 100.0)]
    assert len(consumer.commits) == 3
    now_s[0] += 1
    turn()
    assert len(consumer.commits) == 3, "an early commit's answer is not that of the one on its way"
