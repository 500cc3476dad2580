"""Settings of internal topics for clusters that are smaller than Apache Kafka's defaults want."""

from __future__ import annotations

REPLICATION_FACTOR = 3
MIN_ISR = 2


def settings_of_internal_topics(brokers: int) -> dict[str, str]:
    """Kafka's default replication of internal topics, with at most as many replicas as there are brokers."""
    factor = str(min(REPLICATION_FACTOR, brokers))
    return {
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": str(min(MIN_ISR, brokers)),
    }
