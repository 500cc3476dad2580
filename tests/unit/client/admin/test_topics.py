from __future__ import annotations

import re

import pytest

from ottla.client.admin.partitions import PartitionAdmin
from ottla.client.admin.topics import TopicAdmin
from ottla.client.errors import (
    BrokerError,
    InvalidArgumentError,
    PartlyFailedError,
    TopicExistsError,
    UnknownTopicError,
)
from ottla.client.model import LATEST, TopicPartition
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode


def admin(work):
    return lambda cluster: work(TopicAdmin(cluster))


def test_create_list_describe_delete(fake, with_cluster):
    async def work(admin):
        await admin.create_topic("b", 3, config={"retention.ms": "5"})
        await admin.create_topic("a")
        described = await admin.describe_topics(["b"])
        listed = await admin.list_topics()
        await admin.delete_topic("b")
        return described["b"], listed, await admin.list_topics()

    described, before, after = with_cluster(fake, admin(work))
    assert [each.partition for each in described.partitions] == [0, 1, 2]
    assert (before, after) == (["a", "b"], ["a"])
    [topic] = fake.requests_of(ApiKey.CREATE_TOPICS)[0].topics
    assert (topic.num_partitions, topic.replication_factor) == (3, -1)
    assert [(config.name, config.value) for config in topic.configs] == [("retention.ms", "5")]


def test_listing_by_pattern_leaves_internal_topics_out(fake, with_cluster):
    for name in ("click", "clicks", "clicks-eu", "__consumer_offsets"):
        fake.topic(name, 0)
    assert with_cluster(fake, admin(lambda a: a.list_topics("clicks.*"))) == ["clicks", "clicks-eu"]
    assert with_cluster(fake, admin(lambda a: a.list_topics("click"))) == ["click"]
    assert with_cluster(fake, admin(lambda a: a.list_topics(".*"))) == ["click", "clicks", "clicks-eu"]


def test_a_pattern_that_is_none(fake, with_cluster):
    with pytest.raises(InvalidArgumentError, match=r"'\(' is not a regular expression"):
        with_cluster(fake, admin(lambda a: a.list_topics("(")))


def test_a_topic_that_is_there_already(fake, with_cluster):
    fake.topic("t", 0)
    with pytest.raises(TopicExistsError, match="told by 0"):
        with_cluster(fake, admin(lambda a: a.create_topic("t")))


@pytest.mark.parametrize("fault", ["DROP", "DROP_AFTER", ErrorCode.REQUEST_TIMED_OUT])
def test_creation_survives_a_lost_answer(fake, with_cluster, faults, fault):
    fake.faults[ApiKey.CREATE_TOPICS].append(faults.get(fault, fault))
    with_cluster(fake, admin(lambda a: a.create_topic("t")))
    assert len(fake.requests_of(ApiKey.CREATE_TOPICS)) == 2


@pytest.mark.parametrize("fault", ["DROP", "DROP_AFTER"])
def test_deletion_survives_a_lost_answer(fake, with_cluster, faults, fault):
    fake.topic("t", 0)
    fake.faults[ApiKey.DELETE_TOPICS].append(faults[fault])
    with_cluster(fake, admin(lambda a: a.delete_topic("t")))
    assert fake.leaders == {}


def test_the_controller_is_asked_and_followed(fakes, with_cluster):
    fakes.controller = 1

    async def work(admin):
        await admin.create_topic("a")
        fakes.controller = 2
        await admin.create_topic("b")

    with_cluster(fakes, admin(work))
    assert [node for node, key, _ in fakes.requests if key == ApiKey.CREATE_TOPICS] == [1, 1, 2]


def test_it_returns_when_all_partitions_have_leaders(fake, with_cluster):
    fake.faults[ApiKey.METADATA].extend([ErrorCode.NONE] * 2)

    async def work(admin):
        await admin.create_topic("t", 1)

    with_cluster(fake, admin(work))
    assert fake.requests_of(ApiKey.METADATA)[-1].topics[0].name == "t"


def test_refusals_carry_the_brokers_words(fake, with_cluster):
    fake.faults[ApiKey.CREATE_TOPICS].append(ErrorCode.INVALID_CONFIG)
    with pytest.raises(BrokerError, match=re.escape("topic t is not created: told by 0 (INVALID_CONFIG)")):
        with_cluster(fake, admin(lambda a: a.create_topic("t")))


@pytest.mark.parametrize("ask", [lambda a: a.delete_topic("t"), lambda a: a.describe_topics(["t"])])
def test_a_topic_that_is_not_there(fake, with_cluster, ask):
    with pytest.raises(UnknownTopicError):
        with_cluster(fake, admin(ask))


def test_what_is_there_is_described_beside_what_is_not(fake, with_cluster):
    fake.topic("t", 0)
    with pytest.raises(PartlyFailedError, match="describing 3 topics failed for 2 of 3") as caught:
        with_cluster(fake, lambda cluster: TopicAdmin(cluster).describe_topics(["t", "u", "v"]))
    assert [name for name, error in caught.value.errors.items() if isinstance(error, UnknownTopicError)] == ["u", "v"]
    assert caught.value.values["t"].name == "t"


def test_many_partitions_of_a_topic_that_is_not_there_are_looked_for_once(fake, with_cluster):
    [there] = fake.topic("t", 0)
    wanted = {TopicPartition("u", number): LATEST for number in range(50)}
    with pytest.raises(PartlyFailedError) as caught:
        with_cluster(fake, lambda cluster: PartitionAdmin(cluster).list_offsets({there: LATEST, **wanted}))
    assert caught.value.errors.keys() == wanted.keys()
    assert caught.value.values[there].offset == 0
    assert (
        len([each for each in fake.requests_of(ApiKey.METADATA) if each.topics is None]) <= 2
    )  # looks for similar names
