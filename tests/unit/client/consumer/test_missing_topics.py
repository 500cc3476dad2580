"""Topics that metadata leave out for a moment, as those of a broker do that was just started."""

from __future__ import annotations

import re

import pytest

from ottla.client.consumer import missing_topics
from ottla.client.consumer.missing_topics import GONE_AFTER_MS, MissingTopics
from ottla.client.consumer.subscription_state import SubscriptionState
from ottla.env.clock import VirtualClock
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataResponseTopic
from unit.client.consumer.test_coordinator import member, poll_until, serve_members


@pytest.fixture(autouse=True)
def heartbeats(fake):
    """The broker serves them."""
    serve_members(fake)


@pytest.mark.spec("C7")
def test_a_topic_is_gone_once_it_was_missing_for_long():
    clock = VirtualClock()
    missing = MissingTopics(clock)
    assert missing.passing(["a", "b"], {"a", "b"}) == set()
    assert missing.passing(["a", "b"], {"b"}) == {"a"}
    clock.advance(int(GONE_AFTER_MS) - 1)
    assert missing.passing(["a", "b"], {}) == {"a", "b"}
    clock.advance(1)
    assert missing.passing(["a", "b"], {}) == {"b"}, "each has its own time"
    assert missing.passing(["a", "b"], {"a", "b"}) == set()
    clock.advance(int(GONE_AFTER_MS))
    assert missing.passing(["a", "b"], {}) == {"a", "b"}, "it was there again in between"
    assert missing.passing(["b"], {}) == {"b"}
    assert missing.passing(["a", "b"], {}) == {"a", "b"}, "nobody expected it any more"


def without_topics(fake, *, code):
    """Answers metadata requests as a broker does that knows its cluster's brokers, but not yet their topics."""

    def answer(request):
        found = fake.on_metadata(0, request, None)
        asked = [each.name for each in request.topics or ()]
        found.topics = [MetadataResponseTopic(name=name, error_code=code) for name in asked]
        return found

    return answer


def leading(cluster, subscriptions, pattern=None):
    """The leader of a group whose assignment was made from the metadata of now."""
    made = member(cluster, subscriptions, partition_assignment_strategy=("range",), enable_auto_commit=False)
    if pattern is None:
        subscriptions.subscribe(["a"])
    else:
        subscriptions.unsubscribe()
        subscriptions.subscribe_pattern(re.compile(pattern))
    made._metadata.request_update()
    return made


async def learned(made, fake):
    """Wait for one more answer, and have the member look at it."""
    version = made._metadata.version
    made._metadata.request_update()
    await poll_until(made, lambda: made._metadata.version > version and not fake.faults[ApiKey.METADATA])
    await made.poll(0)


@pytest.mark.spec("C7", "G10")
@pytest.mark.parametrize("pattern", [None, "a.*"])
@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE])
def test_a_leader_does_not_rebalance_its_group_for_a_topic_that_comes_back(
    fake, with_cluster, monkeypatch, pattern, code
):
    fake.topic("a", 0, 0)

    async def work(cluster):
        subscriptions = SubscriptionState()
        made = leading(cluster, subscriptions, pattern)
        await poll_until(made, lambda: cluster.metadata.topics and subscriptions.subscription == {"a"})
        rebalance, membership = made._rebalance, made.membership
        membership.is_leader, rebalance._assigned_from = True, rebalance.snapshot()
        rebalance._joined_subscription, membership.rejoin_needed = subscriptions.subscription, False
        assert list(rebalance._assigned_from) == ["a"]

        fake.faults[ApiKey.METADATA].append(without_topics(fake, code=code))
        await learned(made, fake)
        assert not membership.rejoin_needed
        await learned(made, fake)
        assert cluster.metadata.topics
        assert not membership.rejoin_needed

        fake.leaders.clear()
        await learned(made, fake)
        assert not membership.rejoin_needed
        monkeypatch.setattr(missing_topics, "GONE_AFTER_MS", 20.0)
        await poll_until(made, lambda: membership.rejoin_needed)
        assert membership.rejoin_reason in (
            "cached metadata has changed",
            "the subscription has changed since the last join",
        )
        await made.close(0)

    with_cluster(fake, work)
