"""Where our controller does otherwise than Apache Kafka's on purpose: one list, used by every comparison of the two.

`test_recorded_controller`, `test_recorded_failovers` (three brokers of Apache Kafka, recorded) and `test_beside`
(scripts played to either controller) allow for what stands here, and for nothing else.
"""

from __future__ import annotations

from enum import Enum


class Wanted(Enum):
    """A difference that is wanted, with its reason."""

    REPEATED = """Apache Kafka repeats requests with what a broker was told before, where a state machine of its own
    passes through a second state, or a proposed ISR is in force already. Brokers ignore it."""

    PASSED_OVER = """Apache Kafka's controller goes through states that ours passes over: where a broker dies, and at a
    failover, it writes that a partition has no leader before it elects one; at the end of a reassignment it writes the
    new leader before it shrinks the ISR, replica by replica; a broker that registers anew is gone for a moment. Each
    state has a leader epoch of its own: ours are lower. Whether an epoch is raised is compared, not by how much."""

    STOP_EPOCH = """StopReplica carries the leader epoch from before the change that it follows from, ours the one after
    it: either is at least the one that the broker knows."""

    MOVED_AWAY = """When a broker of a reassignment is removed, Apache Kafka repeats LeaderAndIsr to it, or to those
    that stay, on the way."""

    NEW_WHILE_ADDED = """A replica that a reassignment adds is marked new in every LeaderAndIsr until it is in sync, not
    only in the first: one that was lost is made wherever there is a log directory left."""

    ISR_ORDER = """In an ISR the order of the brokers is that of the leader that proposes it; it has no meaning."""

    OFFLINE_AGAIN = """At a failover, and when a broker goes, Apache Kafka writes once more, with another leader
    epoch, that a partition without a live replica in sync has no leader. Nothing follows from it."""

    TOLD_BEFORE = """A broker that registers, and the others, are told of what there is before moves to that broker go
    on with a raised leader epoch; Apache Kafka raises it first."""

    ANSWERED_TOGETHER = """Of replicas that failed on two brokers all hear in the order in which these two have
    answered, which is chance."""

    DELETED = """A topic that is being deleted has no leaders for us from the first moment. Apache Kafka takes its
    replicas offline one by one, writes each state (no leader, another epoch), tells brokers of it that come back, has
    each stop its replica before it deletes it, and waits while one of the brokers is not alive; we ask each one as soon
    as it is. When the topic's znodes go is compared."""

    UNANSWERED = """Apache Kafka never answers ElectLeaders where one of the partitions is not there or has had no
    leader yet; we say of each what became of it."""

    REGISTERED_SINCE = """A broker that registered anew while there was no controller leaves the ISRs in which it is not
    alone: after an unclean stop it may lack what it acknowledged. Apache Kafka's controller does not notice that it was
    gone. Until the states of the partition agree again, what differs follows from this."""

    LEADS_ON = """A leader that registered anew while there was no controller, and is still to lead, leads on in a new
    leader epoch: after a loss of power it may lack what its followers have, and in the old epoch nobody would notice.
    Apache Kafka's controller leaves it the epoch."""

    # Differences that are known, and that the scripts avoid, since all that follows would differ.

    PROPOSER = """A proposed ISR is refused (INVALID_REQUEST) if it is not its leader's, or names a broker without a
    replica, as in Kafka's KRaft mode. With ZooKeeper Apache Kafka writes what was proposed, and who did as leader."""

    FAILED_REPLICA = """A replica whose log directory has failed cannot come into the ISR (INELIGIBLE_REPLICA); Apache
    Kafka asks only whether its broker is alive."""

    NEVER_LED = """A partition that has never had a leader is not moved, and whoever asked for it is told. Apache Kafka
    writes the move, has no leader to carry it out, and begins with a new replica when the brokers change next."""

    NOT_WAITED = """Where no replica of a new topic is alive CreateTopics says at once that it is made, and DeleteTopics
    deletes it; with Apache Kafka the one times out, though it makes the topic, and the other does not know it."""
