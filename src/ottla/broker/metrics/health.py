"""Whether the broker is ready: what a load balancer or a rolling restart should wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices


def not_ready(broker: BrokerServices) -> list[str]:
    """Why a broker that has started is not ready; empty if it is."""
    reasons = []
    if broker.control.membership.controller_id < 0:
        reasons.append("no controller is known")
    without_role = _without_role(broker)
    if without_role:
        reasons.append(f"{without_role} partitions of this broker have no role yet")
    loading = broker.groups.loading_count
    if loading:
        reasons.append(f"{loading} partitions of __consumer_offsets are being loaded")
    return reasons


def _without_role(broker: BrokerServices) -> int:
    """Replicas that the cluster assigns to this broker, and that neither lead nor follow here; offline ones aside."""
    partitions, count = broker.partitions, 0
    for topic in broker.image.topics.values():
        for index, state in enumerate(topic.partitions):
            if broker.id in state.replicas and not partitions.is_offline(topic.name, index):
                found = partitions.get(topic.name, index)
                count += found is None or found.leader_id is None
    return count
