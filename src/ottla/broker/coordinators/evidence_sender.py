"""Gives the evidence of rebalances to another broker that leads its topic, as Produce requests."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.broker.handlers.produce import ADMIN_CLIENT_ID
from ottla.cluster.image import NO_LEADER
from ottla.groups.evidence import EVIDENCE_TOPIC
from ottla.peer.errors import KNOWN_CODES, ClientError
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.control.plane import ControlPlane
    from ottla.cluster.image import BrokerImage
    from ottla.peer.connection import PeerConnection

log = logging.getLogger("ottla.groups")

#: Time for the leader to answer, in milliseconds.
TIMEOUT_MS: Final = 10_000


class LeaderOfEvidence:
    """See `EvidenceSender`. One connection, which is kept; requests come one after the other.

    The client id is the one that Kafka's brokers let write to internal topics.
    """

    def __init__(self, control: ControlPlane) -> None:
        self._control = control
        self._connection: PeerConnection | None = None
        self._target: BrokerImage | None = None

    async def send(self, batch: bytes) -> ErrorCode:
        from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

        target = self._leader()
        if target is None:
            return ErrorCode.LEADER_NOT_AVAILABLE
        data = TopicProduceData(name=EVIDENCE_TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=1, timeout_ms=TIMEOUT_MS, topic_data=[data])
        try:
            connection = await self._connected(target)
            answer = await connection.request(request, timeout_ms=TIMEOUT_MS)
        except ClientError as error:
            log.debug("evidence of rebalances cannot be given to broker %d: %s", target.id, error)
            self.close()
            return ErrorCode.LEADER_NOT_AVAILABLE
        code = answer.responses[0].partition_responses[0].error_code
        return KNOWN_CODES.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _leader(self) -> BrokerImage | None:
        """The other broker that leads the topic, if there is one."""
        image = self._control.image
        topic = image.topics.get(EVIDENCE_TOPIC)
        leader = topic.partitions[0].leader if topic is not None and topic.partitions else NO_LEADER
        return None if leader == self._control.broker_id else image.brokers.get(leader)

    async def _connected(self, target: BrokerImage) -> PeerConnection:
        if self._connection is None or not self._connection.is_open or self._target != target:
            self.close()
            self._connection = await self._control.connector.connect(target, ADMIN_CLIENT_ID, TIMEOUT_MS)
            self._target = target
        return self._connection
