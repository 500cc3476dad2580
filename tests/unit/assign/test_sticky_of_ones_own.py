"""A sticky assignor of a user's own: it says what members had, the rest is done for it."""

from __future__ import annotations

import pytest

from ottla.assign.assignor import ClusterMetadata, MemberSubscription, SubscribedTopic
from ottla.assign.consumer_protocol import HIGHEST_VERSION, Partitions, Subscription
from ottla.assign.sticky_base import AbstractStickyAssignor
from ottla.assign.sticky_partitions import MemberData


class RackSticky(AbstractStickyAssignor):
    """Members tell in their rack which partition of "t" they would like to keep."""

    name = "rack-sticky"

    def member_data(self, subscription: Subscription) -> MemberData:
        return MemberData({"t": (int(subscription.rack_id or 0),)}, None)


def wish(partition: int, owned: Partitions | None = None) -> MemberSubscription:
    return MemberSubscription(Subscription(HIGHEST_VERSION, ("t",), None, owned or {}, -1, str(partition)))


@pytest.mark.spec("A6")
def test_it_keeps_what_it_says():
    members = {"a": wish(3), "b": wish(0, {"t": (3,)}), "c": wish(1)}
    assigned = RackSticky().assign(ClusterMetadata({"t": SubscribedTopic(4)}), members)
    assert assigned["a"].partitions["t"][0] == 3
    assert assigned["b"].partitions["t"][0] == 0
    assert assigned["c"].partitions["t"][0] == 1
    assert sorted(sum((one.partitions["t"] for one in assigned.values()), ())) == [0, 1, 2, 3]
