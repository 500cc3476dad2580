"""The cooperative sticky assignor: members keep what they own, and what moves is free for one rebalance in between.

The assignment is that of the sticky assignor, less what another member still owns: its owner gives it up when it sees
the assignment and joins again, and the next assignment gives it to its new owner. What members own they say in their
subscriptions; the generation stands there since version 2, before that it is the user data (an int32).

Source: Apache Kafka 3.9, `org.apache.kafka.clients.consumer.CooperativeStickyAssignor`; KIP-429, KIP-792.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from ottla.assign.assignor import GroupMetadata, RebalanceProtocol
from ottla.assign.consumer_protocol import Assignment, Subscription
from ottla.assign.sticky_base import AbstractStickyAssignor, StickyAssignment
from ottla.assign.sticky_partitions import NO_GENERATION, MemberData

_INT32 = struct.Struct(">i")


class CooperativeStickyAssignor(AbstractStickyAssignor):
    """Wire name "cooperative-sticky"; also takes part in eager groups, which is how a group changes over."""

    name = "cooperative-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """The generation of this member's last assignment."""
        return _INT32.pack(self._generation)

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Remember the generation."""
        self._generation = metadata.generation_id

    def member_data(self, subscription: Subscription) -> MemberData:
        """The partitions that the member says it owns, and their generation."""
        owned, user_data = subscription.owned_partitions, subscription.user_data
        if subscription.generation_id >= 0:
            return MemberData(owned, subscription.generation_id)
        if user_data is None:
            return MemberData(owned, None)
        if len(user_data) < _INT32.size:
            return MemberData(owned, NO_GENERATION)
        return MemberData(owned, _INT32.unpack_from(user_data)[0])

    def held_back(self, assignment: StickyAssignment, sent: Mapping[str, Subscription]) -> Mapping[int, str]:
        """The partitions that another member must revoke first, with their new owners."""
        if assignment.changing_hands is not None:
            return assignment.changing_hands
        added: dict[int, str] = {}
        revoked: set[int] = set()
        for member_id, after in assignment.assigned.items():
            before = set(assignment.numbered.numbers(sent[member_id].owned_partitions))
            added.update((number, member_id) for number in after if number not in before)
            revoked |= before.difference(after)
        return {number: member_id for number, member_id in added.items() if number in revoked}
