"""Mistakes that are told before a broker is asked; above all those that would delete something else."""

from __future__ import annotations

import pytest

from ottla.client import NewTopic
from ottla.client.admin.model import ConfigOperation, ConfigResource
from ottla.client.errors import BrokerError, ClientError, InvalidArgumentError
from ottla.client.model import TopicPartition
from ottla.client.sync import Admin
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

TOPIC = ConfigResource.topic("t")


@pytest.fixture
def admin(fake):
    for name in "abt":
        fake.topic(name, 0)
    with Admin(bootstrap_servers=fake.bootstrap) as admin:
        yield admin


@pytest.mark.parametrize(
    ("call", "arguments", "options"),
    [
        ("delete_topics", ["ab"], {}),
        ("describe_topics", ["ab"], {}),
        ("describe_topics", [7], {}),
        ("create_topics", ["ab"], {}),
        ("create_topics", [NewTopic("n")], {}),
        ("describe_groups", ["ab"], {}),
        ("delete_groups", ["ab"], {}),
        ("delete_group_offsets", ["g", TopicPartition("t", 0)], {}),
        ("list_group_offsets", ["g", TopicPartition("t", 0)], {}),
        ("remove_members_from_group", ["g", "ab"], {}),
        ("list_groups", [], {"states": "Stable"}),
        ("describe_configs", [TOPIC], {}),
        ("describe_log_dirs", [0], {}),
    ],
)
def test_one_thing_in_place_of_several(fake, admin, call, arguments, options):
    with pytest.raises(InvalidArgumentError, match="are given as a list, also where there is one"):
        getattr(admin, call)(*arguments, **options)
    assert not fake.requests
    assert set(fake.leaders) == {TopicPartition(name, 0) for name in "abt"}


def test_a_topic_to_create_is_no_name(admin):
    with pytest.raises(InvalidArgumentError, match=r"is a NewTopic: NewTopic\('clicks'\), not 'clicks'"):
        admin.create_topics(["clicks"])


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.create_topics([NewTopic("n", configs={"retention.ms": 1000})]),
        lambda admin: admin.alter_configs({TOPIC: {"retention.ms": 1000}}),
        lambda admin: admin.incremental_alter_configs({TOPIC: {"retention.ms": 1000}}),
        lambda admin: admin.incremental_alter_configs({TOPIC: [ConfigOperation("set", "retention.ms", 1000)]}),
    ],
)
def test_values_of_settings_are_text(admin, call):
    with pytest.raises(InvalidArgumentError, match=r"the value of retention\.ms is given as text, '1000', not as 1000"):
        call(admin)


def test_iterators_will_do(admin):
    assert list(admin.describe_topics(iter(["a", "b"]))) == ["a", "b"]


@pytest.mark.parametrize("call", ["describe_topics", "delete_topics", "describe_groups", "delete_groups"])
@pytest.mark.parametrize("name", [None, 5])
def test_names_are_texts(fake, admin, call, name):
    with pytest.raises(InvalidArgumentError, match=f"are texts, not {name}"):
        getattr(admin, call)(["a", name])
    assert not fake.requests


def test_offsets_are_whole_numbers(admin):
    with pytest.raises(InvalidArgumentError, match=r"the offset of t-0 is a whole number from 0 to .*, not '5'"):
        admin.alter_group_offsets("g", {TopicPartition("t", 0): "5"})


def test_what_a_broker_says_of_settings(fake, admin):
    fake.faults[ApiKey.DESCRIBE_CONFIGS].append(ErrorCode.INVALID_CONFIG)
    with pytest.raises(BrokerError, match=r"^topic t: its settings cannot be described: "):
        admin.describe_configs([TOPIC])


LONG = "x" * 32_768


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("delete_topics", [[LONG]]),
        ("describe_topics", [[LONG]]),
        ("describe_groups", [[LONG]]),
        ("delete_groups", [[LONG]]),
        ("list_group_offsets", [LONG]),
        ("alter_group_offsets", ["g", {TopicPartition(LONG, 0): 1}]),
        ("alter_group_offsets", ["g", {TopicPartition("t", 0): (1, LONG)}]),
        ("delete_group_offsets", ["g", [TopicPartition(LONG, 0)]]),
        ("create_topics", [[NewTopic("n", 1, 1, configs={"retention.ms": LONG})]]),
    ],
)
def test_texts_that_no_request_can_hold(fake, admin, call, arguments):
    with pytest.raises(
        InvalidArgumentError, match="has 32768 bytes, and a string of Kafka's protocol has 32767 at most"
    ):
        getattr(admin, call)(*arguments)
    assert not fake.requests


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("create_topics", [[NewTopic(LONG, 1, 1)]]),
        ("describe_configs", [[ConfigResource.topic(LONG)]]),
    ],
)
def test_other_texts_are_refused_by_the_name_of_their_field(admin, call, arguments):
    with pytest.raises(
        ClientError, match=r"(name|topic) has 32768 bytes, and a string of Kafka's protocol has 32767 at most"
    ):
        getattr(admin, call)(*arguments)
