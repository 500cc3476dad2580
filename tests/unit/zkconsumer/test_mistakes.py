"""What a user gives by mistake is told at once: no traceback of ours, nothing that hangs."""

from __future__ import annotations

import re
import threading

import pytest

from ottla.client.errors import ClientClosedError, InvalidArgumentError, InvalidConfigError
from ottla.client.model import OffsetAndMetadata
from ottla.zkconsumer.connector import create_connector
from ottla.zkconsumer.rebalancer import ConsumerRebalanceFailedError
from ottla.zkconsumer.topic_filters import Blacklist, Whitelist
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("Z4"), pytest.mark.filterwarnings("error")]


@pytest.mark.parametrize(
    ("topics", "told"),
    [
        ("clicks", r"\{'clicks': 1\}"),
        (["clicks"], r"\{'clicks': 1\}"),
        ({"clicks", "views"}, "threads of each"),
        (None, "threads of each"),
        ({1: 1}, "name of a topic.*1"),
        ({b"clicks": 1}, "name of a topic"),
        ({"": 1}, "empty string"),
        ({"a/b": 1}, "a/b.*ASCII alphanumerics"),
        ({"..": 1}, r"'\.\.' is not allowed"),
        ({"t" * 250: 1}, "longer than"),
        ({"clicks": 0}, "1 or more"),
        ({"clicks": 1_000_000}, "at most"),
    ],
)
def test_topics_that_cannot_be(group, topics, told):
    connector = group.connect()
    with pytest.raises(InvalidArgumentError, match=told):
        connector.create_message_streams(topics)
    group.topic("t", 0)
    connector.create_message_streams({"t": 1})  # a mistake does not count as the one time


@pytest.mark.parametrize("pattern", [None, b"a", 3, re.compile("a"), ["a"]])
@pytest.mark.parametrize("kind", [Whitelist, Blacklist])
def test_filters_that_are_no_text(kind, pattern):
    with pytest.raises(InvalidArgumentError, match="text"):
        kind(pattern)


@pytest.mark.parametrize(
    "offsets",
    [
        [("t", 0, 5)],
        {"t": 5},
        {("t", "0"): 5},
        {("t", -1): 5},
        {("a/b", 0): 5},
        {("t", 0): True},
        {("t", 0): 1.0},
        {("t", 0): 1 << 63},
        {("t", 0): OffsetAndMetadata(5, None)},
        7,
    ],
)
def test_offsets_that_cannot_be(group, offsets):
    group.topic("t", 0)
    connector = group.connect()
    connector.create_message_streams({"t": 1})
    with pytest.raises(InvalidArgumentError):
        connector.commit_offsets(offsets)


class Misspelt:
    """Java's names."""

    def beforeReleasingPartitions(self, owned):  # noqa: N802
        raise AssertionError

    def beforeStartingFetchers(self, consumer, assignment):  # noqa: N802
        raise AssertionError


class Asynchronous:
    async def before_releasing_partitions(self, owned):
        raise AssertionError


@pytest.mark.parametrize("listener", [None, object(), Misspelt(), print, Asynchronous()])
def test_listeners_that_would_never_be_called(group, listener):
    with pytest.raises(InvalidArgumentError, match="before_releasing_partitions"):
        group.connect().set_rebalance_listener(listener)


@pytest.mark.parametrize("config", ["zookeeper.connect=x", ["group.id"], 3])
def test_settings_that_are_no_mapping(config):
    with pytest.raises(InvalidConfigError, match="mapping"):
        create_connector(config)


@pytest.mark.spec("Z6")
def test_a_connector_whose_first_rebalance_fails_leaves_its_group(group):
    """Nobody has its streams, so nobody would read what it owned later."""
    group.topic("t", 0)
    group.connect().create_message_streams({"t": 1})
    other = group.connect(partition_assignment_strategy="roundrobin", rebalance_max_retries=2)
    with pytest.raises(ConsumerRebalanceFailedError):
        other.create_message_streams({"u": 1})
    assert other.consumer_id not in group.tree.children("/consumers/g/ids")
    with pytest.raises(ClientClosedError):
        other.commit_offsets()


def test_streams_are_made_once_however_many_threads_ask(group):
    group.topic("t", 0)
    connector = group.connect()
    made, refused = [], []

    def make():
        try:
            made.append(connector.create_message_streams({"t": 1}))
        except Exception as error:
            refused.append(error)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(made) == 1
    assert all("once" in str(error) for error in refused)
    wait_until(lambda: len(group.owners()) == 1, "the owner")


@pytest.mark.spec("Z6")
@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_whatever_a_listener_raises_the_rebalance_does_not_hang(group, error):
    group.topic("t", 0)
    raised = []

    class Raising:
        def before_starting_fetchers(self, consumer, assignment):
            if not raised:
                raised.append(error)
                raise error

    connector = group.connect()
    connector.set_rebalance_listener(Raising())
    connector.create_message_streams({"t": 1})
    assert raised
    assert len(group.owners()) == 1
