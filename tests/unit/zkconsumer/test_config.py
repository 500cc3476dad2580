from __future__ import annotations

import pytest

from ottla.client.errors import InvalidConfigError
from ottla.zkconsumer.highlevel_config import OF_NEWER_CONSUMERS, SETTINGS, parse_highlevel_config
from support.java import PROJECT

NEEDED = {"group.id": "g", "zookeeper.connect": "127.0.0.1:2181"}


def problems_of(**keywords):
    with pytest.raises(InvalidConfigError) as caught:
        parse_highlevel_config(NEEDED, keywords)
    return str(caught.value)


@pytest.mark.parametrize("name", ["group.id", "client.id", "consumer.id"])
def test_names_that_no_request_can_hold(name):
    with pytest.raises(
        InvalidConfigError, match=f"{name} has 32768 bytes, and a string of Kafka's protocol has 32767 at"
    ):
        parse_highlevel_config({**NEEDED, name: "x" * 32_768})


@pytest.mark.spec("Z5")
def test_defaults_are_those_of_the_older_consumer():
    config = parse_highlevel_config(NEEDED)
    assert (config.auto_commit_enable, config.auto_commit_interval_ms) == (True, 60_000)
    assert (config.offsets_storage, config.dual_commit_enabled) == ("zookeeper", False)
    assert (config.rebalance_max_retries, config.rebalance_backoff_ms) == (4, 2000)
    assert (config.zookeeper_session_timeout_ms, config.zookeeper_connection_timeout_ms) == (6000, 6000)
    assert (config.client_id, config.consumer_id) == ("g", None)
    assert (config.auto_offset_reset, config.consumer_timeout_ms) == ("largest", -1)
    assert (config.queued_max_message_chunks, config.num_consumer_fetchers) == (2, 1)
    assert config.partition_assignment_strategy == "range"


def test_defaults_that_are_other_settings():
    config = parse_highlevel_config(
        {**NEEDED, "zookeeper.sync.time.ms": "7", "offsets.storage": "kafka"}, {"zookeeper_session_timeout_ms": 9}
    )
    assert (config.rebalance_backoff_ms, config.zookeeper_connection_timeout_ms) == (7, 9)
    assert config.dual_commit_enabled
    assert not parse_highlevel_config(
        {**NEEDED, "offsets.storage": "kafka", "dual.commit.enabled": False}
    ).dual_commit_enabled


def test_what_is_missing():
    with pytest.raises(InvalidConfigError) as caught:
        parse_highlevel_config({})
    assert "group.id is missing" in str(caught.value)
    assert "zookeeper.connect is missing" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"auto_offset_reset": "earliest"}, "the word for it is smallest"),
        ({"auto_offset_reset": "none"}, r"[smallest, largest]"),
        ({"offsets_storage": "redis"}, "[zookeeper, kafka]"),
        ({"group_id": "g"}, None),
        ({"group_id": "h"}, "given twice"),
        ({"client_id": "a/b"}, "letters of ASCII"),
        ({"consumer_id": "a/b"}, "letters of ASCII"),
        ({"queued_max_message_chunks": 0}, "[1,...]"),
        ({"auto_commit_enable": 1}, "Expected boolean, not int"),
        ({"num_consumer_fetchers": True}, "Expected int, not bool"),
        ({"socket_timeout_ms": 100}, "not longer than fetch.wait.max.ms"),
        ({"quoued_max_message_chunks": 1}, "did you mean queued.max.message.chunks?"),
        ({"bootstrap_servers": "a:1"}, "zookeeper.connect"),
    ],
)
def test_what_cannot_be(given, told):
    if told is None:
        parse_highlevel_config(NEEDED, given)
    else:
        assert told in problems_of(**given)


def test_settings_of_newer_consumers_are_none_of_these():
    assert not OF_NEWER_CONSUMERS.keys() & SETTINGS.keys()


def test_every_setting_is_in_the_documents():
    page = (PROJECT / "docs" / "client-highlevel.md").read_text()
    for setting in SETTINGS.values():
        default = "" if setting.default is None else f"`{setting.default}`"
        assert f"| `{setting.name}` | {setting.type} | {default} | {setting.documentation}" in page
