"""Topics that do not exist: logged once with a similar name, and the cause that `health` gives."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ottla.client.configs.base import ClientConfig
from ottla.client.consumer.consumer_metadata import MAX_NAMED, UnknownTopics
from ottla.client.consumer.health import HealthCause
from ottla.client.errors import BrokerUnreachableError
from ottla.env.clock import VirtualClock
from ottla.wire.errors import ErrorCode
from support.waiting import wait_until

PATIENCE_MS = 2_000
LOGGER = "ottla.client.consumer.consumer_metadata"


class Cluster:
    """What is known of topics, and which names are similar to others."""

    def __init__(self):
        self.name = "h:1"
        self.clock = VirtualClock()
        self.settings = SimpleNamespace(unknown_topic_timeout_ms=PATIENCE_MS)
        self.metadata = SimpleNamespace(errors={})
        self.similar = {}
        self.requested = []

    async def nearest_topics(self, names):
        self.requested.append(list(names))
        if self.similar is None:
            raise BrokerUnreachableError("gone")
        return self.similar


def noted(unknown, *topics):
    """Note these topics and wait for what is logged; gives the messages."""

    async def body():
        unknown.note(topics)
        if unknown._logging is not None:
            await unknown._logging

    asyncio.run(body())


@pytest.fixture
def messages(caplog):
    caplog.set_level(logging.WARNING, LOGGER)
    return lambda: [each.getMessage() for each in caplog.records if (each.name, each.levelname) == (LOGGER, "WARNING")]


def test_a_topic_is_logged_once_it_was_missing_for_long_and_again_when_it_was_there_meanwhile(messages):
    cluster = Cluster()
    cluster.similar = {"clisk": "clicks"}
    cluster.metadata.errors["clisk"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown = UnknownTopics(cluster)
    names = "topic clisk does not exist at h:1: did you mean clicks? Otherwise create it first"
    noted(unknown, "clisk", "other")
    assert (messages(), list(unknown.errors)) == ([], ["clisk"])
    for _ in range(3):
        cluster.clock.advance(PATIENCE_MS)
        noted(unknown, "clisk", "other")
    assert messages() == [f"{names} (UNKNOWN_TOPIC_OR_PARTITION); it is read as soon as it exists"]
    assert str(unknown.errors["clisk"]).startswith(names)
    cluster.metadata.errors.clear()
    noted(unknown, "clisk", "other")
    assert unknown.errors == {}
    cluster.metadata.errors["clisk"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    noted(unknown, "clisk")
    cluster.clock.advance(PATIENCE_MS)
    noted(unknown, "clisk")
    assert len(messages()) == 2


def test_a_topic_that_is_no_longer_wanted_is_forgotten(messages):
    cluster = Cluster()
    cluster.metadata.errors["t"] = ErrorCode.UNKNOWN_TOPIC_ID
    unknown = UnknownTopics(cluster)
    noted(unknown, "t")
    cluster.clock.advance(PATIENCE_MS)
    noted(unknown)
    assert (messages(), unknown.errors) == ([], {})


def test_many_topics_at_once_are_counted(messages):
    cluster = Cluster()
    cluster.similar = None
    topics = [f"t{number}" for number in range(MAX_NAMED + 100)]
    cluster.metadata.errors.update(dict.fromkeys(topics, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    unknown = UnknownTopics(cluster)
    noted(unknown, *topics)
    cluster.clock.advance(PATIENCE_MS)
    noted(unknown, *topics)
    assert cluster.requested == [topics[:MAX_NAMED]]
    assert len(messages()) == MAX_NAMED + 1
    assert "check its name, or create it first" in messages()[0]
    assert messages()[-1] == "100 more topics to read do not exist"


@pytest.fixture
def impatient(monkeypatch):
    settings = ClientConfig.client_settings.fget
    at_once = property(lambda self: replace(settings(self), unknown_topic_timeout_ms=0))
    monkeypatch.setattr(ClientConfig, "client_settings", at_once)


def causes(consumer):
    return [each.cause for each in consumer.health().findings]


@pytest.mark.spec("G10")
@pytest.mark.usefixtures("impatient")
def test_health_names_the_topic_until_it_is_there(fakes, open_consumer, messages):
    fakes.topic("clicks", 0)
    consumer = open_consumer()
    consumer.assign([("clisk", 0)])
    wait_until(lambda: not consumer.poll(20) and causes(consumer) == [HealthCause.TOPIC_MISSING], "the cause")
    wait_until(lambda: not consumer.poll(20) and messages(), "the warning")
    assert "topic clisk does not exist" in messages()[0]
    assert "did you mean clicks?" in messages()[0]
    assert not consumer.health().is_progressing
    [partition] = fakes.topic("clisk", 0)
    fakes.fill(partition, 1)
    wait_until(lambda: consumer.poll(20), "the record")
    assert causes(consumer) == []
    assert len(messages()) == 1
