"""Whether the broker is ready: what a load balancer or a rolling restart should wait for."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices

#: Partitions that are looked at in one piece of work.
PARTITIONS_PER_PIECE: Final = 256


def not_ready(broker: BrokerServices) -> Generator[None, None, list[str]]:
    """Why a broker that has started is not ready, in pieces of work; empty if it is."""
    reasons = []
    control = broker.control
    has_heard = control.is_controller or (broker.control_requests.has_heard and not control.unheard_topics.names)
    if control.membership.controller_id < 0:
        reasons.append("no controller is known")
    elif not has_heard:
        reasons.append("the controller has not sent this broker its partitions yet")
    without_role = yield from _without_role(broker)
    if without_role:
        reasons.append(f"{without_role} partitions of this broker have no role yet")
    loading = broker.groups.loading_count
    if loading:
        reasons.append(f"{loading} partitions of __consumer_offsets are being loaded")
    return reasons


def _without_role(broker: BrokerServices) -> Generator[None, None, int]:
    """Replicas that the cluster places on this broker and that still have to lead or follow here.

    Those that are offline or lost, or wait for a leader, are not among them: another broker may wait for this one.
    """
    control, hosting, image, count, seen = broker.control, broker.control_requests.hosting, broker.image, 0, 0
    is_controller = control.is_controller
    deleting = control.controller.controller.deleting if is_controller else ()
    for topic in tuple(image.topics.values()):
        for index, state in enumerate(topic.partitions if topic.name not in deleting else ()):
            if broker.id in state.replicas:
                count += hosting.awaits_role(
                    topic.name,
                    index,
                    may_be_unhosted=is_controller,
                    leader_is_alive=state.leader in image.brokers,
                )
            seen += 1
            if seen % PARTITIONS_PER_PIECE == 0:
                yield
    return count
