"""A topic that is deleted and created again under a consumer is logged once."""

from __future__ import annotations

import logging
import uuid
from types import SimpleNamespace

import pytest

from ottla.client.consumer.consumer_metadata import RecreatedTopics
from ottla.client.consumer.subscription_state import OffsetReset
from support.fake_cluster import Log
from support.waiting import wait_until

LOGGER = "ottla.client.consumer.consumer_metadata"
FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)


@pytest.fixture
def messages(caplog):
    caplog.set_level(logging.WARNING, LOGGER)
    return lambda: [each.getMessage() for each in caplog.records if each.name == LOGGER]


def test_each_new_id_is_logged_once_also_after_a_time_without_the_topic(messages):
    topics = {}
    recreated = RecreatedTopics(SimpleNamespace(metadata=SimpleNamespace(topics=topics)), OffsetReset.LATEST)

    def note(**ids):
        topics.clear()
        topics.update({name: SimpleNamespace(topic_id=topic_id) for name, topic_id in ids.items()})
        recreated.note(["clicks", "views"])

    note(clicks=FIRST)
    note(clicks=FIRST, views=FIRST)
    note(clicks=None)  # a broker that has no ids
    note()
    assert messages() == []
    note(clicks=SECOND)
    note(clicks=SECOND, views=FIRST)
    [message] = messages()
    assert f"topic clicks was deleted and created again (its id was {FIRST} and is {SECOND})" in message
    assert "auto.offset.reset=latest" in message


def test_a_topic_that_is_not_read_any_more_is_forgotten(messages):
    topics = {"clicks": SimpleNamespace(topic_id=FIRST)}
    recreated = RecreatedTopics(SimpleNamespace(metadata=SimpleNamespace(topics=topics)), OffsetReset.NONE)
    recreated.note(["clicks"])
    recreated.note([])
    topics["clicks"] = SimpleNamespace(topic_id=SECOND)
    recreated.note(["clicks"])
    assert messages() == []


@pytest.mark.spec("C1")
@pytest.mark.usefixtures("patient")
def test_the_new_topic_is_read_as_auto_offset_reset_says_where_its_log_is_shorter(fakes, open_consumer, messages):
    [partition] = fakes.topic("clicks", 0)
    fakes.topic_ids["clicks"] = FIRST
    fakes.fill(partition, 30)
    consumer = open_consumer(auto_offset_reset="earliest", fetch_max_wait_ms=20)
    consumer.assign([partition])
    read = []
    wait_until(lambda: read.extend(consumer.poll(20)) or len(read) == 30, "the records of the first topic")
    fakes.topic_ids["clicks"] = SECOND
    fakes.logs[partition] = Log()
    fakes.fill(partition, 10)
    wait_until(lambda: read.extend(consumer.poll(20)) or len(read) == 40, "the records of the second topic")
    wait_until(messages, "the warning")
    assert [record.offset for record in read[30:]] == list(range(10))
    assert len(messages()) == 1
