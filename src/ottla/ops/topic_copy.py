"""Records of one topic as records of another, and whether two clusters are one."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.producer.record import ProducerRecord
from ottla.client.sync import Admin
from ottla.records.consumed import ConsumerRecord

Bytes = bytes | None


def records_to(
    topic: str, records: Iterable[ConsumerRecord[Bytes, Bytes]], *, keep_partition: bool
) -> list[ProducerRecord[Bytes, Bytes]]:
    """Records of another topic with the same key, value, headers and timestamp; one without a timestamp gets one."""
    return [
        ProducerRecord(
            topic,
            each.value,
            each.key,
            each.partition if keep_partition else None,
            each.timestamp if each.timestamp >= 0 else None,
            each.headers,
        )
        for each in records
    ]


def is_same_cluster(one: Admin, other: Admin) -> bool:
    """Whether two clients are clients of one cluster, by its id, or by its brokers where it has none."""
    first, second = one.describe_cluster(), other.describe_cluster()
    if first.cluster_id is not None and second.cluster_id is not None:
        return first.cluster_id == second.cluster_id
    return bool({(each.host, each.port) for each in first.nodes} & {(each.host, each.port) for each in second.nodes})
