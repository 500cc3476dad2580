"""Fetch sessions (KIP-227), step by step beside Apache Kafka, by topic name (v12) and by topic id (v17)."""

from __future__ import annotations

from typing import Any

import pytest

from interop.both_brokers import BrokerPair, Each, assert_alike
from interop.raw import batch, values_of
from interop.wire_json import Json

pytestmark = [pytest.mark.needs_kafka]

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
UNKNOWN_TOPIC_ID = 100
FINAL_EPOCH = -1
LIMIT = {"partition_max_bytes": 1 << 20}
MISSING_TOPIC = "not-there"


class Session:
    """A fetch session on both brokers."""

    def __init__(self, pair: BrokerPair, version: int) -> None:
        self.pair = pair
        self.version = version
        self.id = Each(0, 0)
        self.topic_ids: dict[str, Each] = {}

    def make_topic(self, name: str, partitions: int) -> None:
        self.topic_ids[name] = self.pair.create_topic(name, partitions)

    def topic(self, name: str) -> Json:
        return {"topic": name} if self.version < 13 else {"topic_id": self.topic_ids[name]}

    def check_fetch(self, epoch: int, wanted: dict[tuple[str, int], int], forgotten: Any = (), **more: Any) -> Json:
        """Fetch with this session; `wanted` is topic and partition to offset."""
        topics = [
            {**self.topic(name), "partitions": [{"partition": number, "fetch_offset": offset, **LIMIT}]}
            for (name, number), offset in wanted.items()
        ]
        gone = [{**self.topic(name), "partitions": [number]} for name, number in forgotten]
        body: Json = {"max_wait_ms": 0, "min_bytes": 0, "session_id": self.id, "session_epoch": epoch, **more}
        body |= {"topics": topics, "forgotten_topics_data": gone}
        if self.version < 15:
            body["replica_id"] = -1
        answers = self.pair.ask_each("Fetch", self.version, **body)
        assert_alike(told(answers.ours, self, "ours"), told(answers.theirs, self, "theirs"), f"epoch {epoch}")
        if epoch == 0:
            self.id = Each(answers.ours["session_id"], answers.theirs["session_id"])
        ours: Json = answers.ours
        return ours

    def produce(self, name: str, number: int, value: bytes) -> None:
        data = [{"name": name, "partition_data": [{"index": number, "records": batch([value])}]}]
        self.pair.check_alike("Produce", 9, acks=-1, timeout_ms=20_000, topic_data=data)


def told(answer: Json, session: Session, side: str) -> Json:
    """An answer with topic names for ids and its partitions in an order of their own."""
    names = {getattr(ids, side): name for name, ids in session.topic_ids.items()}
    partitions = [
        {"topic": topic["topic"] if "topic" in topic else names.get(topic["topic_id"]), **partition}
        for topic in answer["responses"]
        for partition in topic["partitions"]
    ]
    partitions.sort(key=lambda one: (str(one["topic"]), one["partition_index"]))
    return {"error": answer["error_code"], "in a session": answer["session_id"] != 0, "partitions": partitions}


def values(answer: Json) -> list[bytes | None]:
    return [
        value
        for topic in answer["responses"]
        for partition in topic["partitions"]
        for value in values_of(partition["records"])
    ]


@pytest.fixture(params=[7, 12, 13, 17])
def session(pair: BrokerPair, unique: str, request: pytest.FixtureRequest) -> Session:
    """A session about a topic `unique` of 3 partitions, not opened yet."""
    made = Session(pair, request.param)
    made.make_topic(unique, 3)
    return made


def test_only_news_are_reported(session: Session, unique: str) -> None:
    everything = {(unique, number): 0 for number in range(3)}
    session.produce(unique, 0, b"old")
    first = session.check_fetch(0, everything)
    assert first["session_id"] != 0
    assert values(first) == [b"old"]
    # The session still stands at offset 0 of partition 0: nobody told it otherwise.
    assert values(session.check_fetch(1, {})) == [b"old"]
    assert values(session.check_fetch(2, {(unique, 0): 1})) == []
    session.produce(unique, 2, b"new")
    answer = session.check_fetch(3, {})
    assert values(answer) == [b"new"]
    assert [one["partition_index"] for one in answer["responses"][0]["partitions"]] == [2]
    assert values(session.check_fetch(4, {(unique, 2): 1})) == []
    assert session.check_fetch(5, {})["responses"] == []


def test_a_partition_is_forgotten_and_remembered(session: Session, unique: str) -> None:
    session.check_fetch(0, {(unique, number): 0 for number in range(3)})
    session.produce(unique, 1, b"a")
    assert values(session.check_fetch(1, {}, forgotten=[(unique, 1)])) == []
    session.produce(unique, 1, b"b")
    assert values(session.check_fetch(2, {})) == []
    assert values(session.check_fetch(3, {(unique, 1): 0})) == [b"a", b"b"]
    # Forgotten and wanted in one request: wanted wins.
    session.check_fetch(4, {(unique, 1): 1}, forgotten=[(unique, 1)])
    session.check_fetch(5, {})
    # Forgetting what was never wanted is no error.
    session.check_fetch(6, {}, forgotten=[(unique, 2), (unique, 2)])
    session.check_fetch(7, {})


def test_a_partition_is_added(session: Session, unique: str) -> None:
    session.produce(unique, 0, b"a")
    session.produce(unique, 1, b"b")
    assert values(session.check_fetch(0, {(unique, 0): 0})) == [b"a"]
    assert sorted(map(str, values(session.check_fetch(1, {(unique, 1): 0})))) == ["b'a'", "b'b'"]


def test_wrong_epochs(session: Session, unique: str) -> None:
    session.check_fetch(0, {(unique, 0): 0})
    for epoch in (2, 5, 100):
        assert session.check_fetch(epoch, {})["error_code"] == INVALID_FETCH_SESSION_EPOCH
    # The session survives what it refused.
    assert session.check_fetch(1, {})["error_code"] == NONE
    assert session.check_fetch(1, {})["error_code"] == INVALID_FETCH_SESSION_EPOCH
    assert session.check_fetch(2, {})["error_code"] == NONE


def test_unknown_sessions(session: Session, unique: str) -> None:
    session.id = Each(123456, 123456)
    assert session.check_fetch(1, {(unique, 0): 0})["error_code"] == FETCH_SESSION_ID_NOT_FOUND
    session.id = Each(0, 0)
    assert session.check_fetch(3, {(unique, 0): 0})["error_code"] == FETCH_SESSION_ID_NOT_FOUND
    session.id = Each(-7, -7)
    assert session.check_fetch(1, {(unique, 0): 0})["error_code"] == FETCH_SESSION_ID_NOT_FOUND


def test_no_session(session: Session, unique: str) -> None:
    session.produce(unique, 0, b"a")
    answer = session.check_fetch(FINAL_EPOCH, {(unique, 0): 0, (unique, 1): 0})
    assert answer["session_id"] == 0
    assert values(answer) == [b"a"]


def test_a_session_ends(session: Session, unique: str) -> None:
    session.produce(unique, 0, b"a")
    session.check_fetch(0, {(unique, 0): 0})
    assert values(session.check_fetch(FINAL_EPOCH, {(unique, 0): 0})) == [b"a"]
    assert session.check_fetch(1, {})["error_code"] == FETCH_SESSION_ID_NOT_FOUND


def test_a_session_is_opened_anew(session: Session, unique: str) -> None:
    session.check_fetch(0, {(unique, 0): 0})
    old = session.id
    session.check_fetch(0, {(unique, 1): 0})
    assert session.id.ours != old.ours
    session.produce(unique, 1, b"b")
    assert values(session.check_fetch(1, {})) == [b"b"]
    session.id = old
    assert session.check_fetch(1, {})["error_code"] == FETCH_SESSION_ID_NOT_FOUND


def test_errors_are_reported_again_and_again(session: Session, unique: str) -> None:
    session.check_fetch(0, {(unique, 0): 0, (unique, 9): 0})
    session.check_fetch(1, {})
    session.check_fetch(2, {(unique, 0): 55})
    session.check_fetch(3, {})
    session.check_fetch(4, {(unique, 0): 0})
    session.check_fetch(5, {})


def test_an_empty_session(session: Session, unique: str) -> None:
    session.check_fetch(0, {})
    session.check_fetch(1, {(unique, 0): 0})
    session.check_fetch(2, {})


def test_a_session_without_its_last_partition(session: Session, unique: str) -> None:
    session.check_fetch(0, {(unique, 0): 0})
    session.check_fetch(1, {}, forgotten=[(unique, 0)])
    session.check_fetch(2, {(unique, 1): 0})
    session.check_fetch(3, {})


def test_a_moved_log_start_is_news(session: Session, unique: str) -> None:
    for value in (b"a", b"b"):
        session.produce(unique, 0, value)
    session.check_fetch(0, {(unique, 0): 2, (unique, 1): 0})
    assert session.check_fetch(1, {})["responses"] == []
    one = {"name": unique, "partitions": [{"partition_index": 0, "offset": 1}]}
    session.pair.check_alike("DeleteRecords", 2, topics=[one], timeout_ms=20_000)
    answer = session.check_fetch(2, {})
    assert answer["responses"][0]["partitions"][0]["log_start_offset"] == 1
    assert session.check_fetch(3, {})["responses"] == []


def test_a_topic_that_is_deleted(session: Session, unique: str) -> None:
    session.make_topic(unique + "-gone", 1)
    session.check_fetch(0, {(unique + "-gone", 0): 0, (unique, 0): 0})
    session.pair.check_alike("DeleteTopics", 5, topic_names=[unique + "-gone"], timeout_ms=20_000)
    session.produce(unique, 0, b"a")
    body: Json = {"max_wait_ms": 0, "min_bytes": 0, "session_id": session.id, "session_epoch": 1, "topics": []}
    answers = session.pair.ask_each("Fetch", session.version, **body, forgotten_topics_data=[])
    for answer in (answers.ours, answers.theirs):
        assert values(answer) == [b"a"]
        errors = {one["error_code"] for topic in answer["responses"] for one in topic["partitions"]}
        # By id it depends on who learned of the deletion first.
        assert errors in ({NONE, UNKNOWN_TOPIC_OR_PARTITION}, {NONE, UNKNOWN_TOPIC_ID})


@pytest.mark.parametrize("version", [7, 12])
def test_a_topic_that_never_was(pair: BrokerPair, unique: str, version: int) -> None:
    session = Session(pair, version)
    session.make_topic(unique, 1)
    session.check_fetch(0, {(MISSING_TOPIC, 0): 0, (unique, 0): 0})
    session.check_fetch(1, {})
