"""Requests of brokers to the controller: AlterPartition, ControlledShutdown, AllocateProducerIds.

`ServedByController` answers them where this broker is the controller. `RequestsToController` makes this broker's own
requests: in the process where it is the controller itself, else over its connection to the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.control.producer_ids import ProducerIdsUnavailableError
from ottla.broker.control.refusals import METADATA_ERRORS
from ottla.broker.control.znodes import PRODUCER_IDS_PER_BLOCK, take_producer_ids
from ottla.cluster.controller_events import (
    IsrAccepted,
    IsrProposed,
    IsrRefused,
    IsrsProposed,
    ShutdownProgress,
    ShutdownRequested,
)
from ottla.cluster.refusal import TopicRefusal
from ottla.peer.errors import KNOWN_CODES, ClientError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from ottla.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ottla.zk.layout import RECOVERING, ProducerIdBlock

if TYPE_CHECKING:
    from ottla.broker.control.controller_shell import ControllerShell
    from ottla.broker.control.interbroker import ControllerLink
    from ottla.broker.control.membership import ClusterMembership
    from ottla.zk.client import ZkClient

log = logging.getLogger("ottla.controller")

#: Newest version of AlterPartition, in which this broker asks itself.
ALTER_PARTITION_VERSION = 3
TOPIC_IDS_SINCE = 2
EPOCHS_SINCE = 3
#: The newest version for topics without ids.
WITHOUT_TOPIC_IDS = 1
#: The epoch of a replica in a proposed ISR that the leader does not know.
NOT_CHECKED = -1
#: Pause before a controller is looked for again, in milliseconds.
NO_CONTROLLER_MS = 100
#: Of a request's timeout so much is for waiting for a controller.
SHARE_FOR_CONTROLLER = 0.9
#: Partitions that a log line names.
SHOWN_PARTITIONS = 10
_NO_CONTROLLER = (ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)


class ServedByController:
    """Answers the requests of brokers; refuses them where this broker is not the controller.

    `highest_producer_id` is the highest one in this broker's logs, -1 for none.
    """

    def __init__(
        self, zk: ZkClient, membership: ClusterMembership, controller: ControllerShell, highest_producer_id: int
    ) -> None:
        self._highest_producer_id = highest_producer_id
        self._zk = zk
        self._membership = membership
        self._controller = controller
        #: Called when another broker has asked for a controlled shutdown.
        self.on_others_shutdown: Callable[[], None] = lambda: None

    @property
    def all_shut_down(self) -> bool:
        """Whether this broker is the controller, and every broker of the cluster is shutting down."""
        return self.is_active and self._controller.controller.all_shut_down

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, and has taken office."""
        return self._membership.is_controller and self._controller.controller.epoch > 0

    async def wait_for_controller(self, timeout_ms: int, is_gone: Callable[[], bool]) -> None:
        """Wait until this broker can change the metadata, or another is the controller; at most a request's timeout.

        ZooKeeper may have been away for longer than the session: it comes back, and the controller is elected again,
        while the client still waits. `is_gone` says whether it does not. What is left of the timeout is for the answer:
        clients wait no longer than the request's timeout.
        """
        loop = asyncio.get_running_loop()
        ends_at_s = loop.time() + SHARE_FOR_CONTROLLER * timeout_ms / 1000
        while not self._is_decided and not is_gone():
            left_s = ends_at_s - loop.time()
            if left_s <= 0:
                return
            await asyncio.sleep(min(left_s, NO_CONTROLLER_MS / 1000))  # sleep: until a controller is elected

    @property
    def _is_decided(self) -> bool:
        """Whether a controller is known, which can write if it is this broker."""
        membership = self._membership
        if membership.is_controller:
            return membership.is_connected and self.is_active
        return membership.controller_id != -1

    async def alter_partitions(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """Answer AlterPartition: the ISRs that leaders propose."""
        if not self.is_active:
            return AlterPartitionResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        names = self._controller.controller.image.topic_names
        by_id = version >= TOPIC_IDS_SINCE
        # Looked up once: topics come and go while the ISRs are written.
        named = [(names.get(topic.topic_id) if by_id else topic.topic_name, topic) for topic in request.topics]
        proposals = [
            _proposed(request, name, partition, version)
            for name, topic in named
            if name is not None
            for partition in topic.partitions
        ]
        sender = self._membership.brokers.get(request.broker_id)
        if not proposals and (sender is None or sender.epoch != request.broker_epoch):
            return AlterPartitionResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        answers = await self._controller.ask(lambda token: IsrsProposed(token, proposals))
        if isinstance(answers, TopicRefusal):
            return AlterPartitionResponse(error_code=int(answers.error))
        assert isinstance(answers, tuple)
        if any(isinstance(each, IsrRefused) and each.error_code == ErrorCode.STALE_BROKER_EPOCH for each in answers):
            return AlterPartitionResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        results = iter(answers)
        topics = []
        for name, topic in named:
            partitions = [
                _altered(
                    partition.partition_index,
                    IsrRefused(ErrorCode.UNKNOWN_TOPIC_ID) if name is None else next(results),
                    version,
                )
                for partition in topic.partitions
            ]
            answered = AlterPartitionResponseTopicData(
                topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=partitions
            )
            topics.append(answered)
        return AlterPartitionResponse(topics=topics)

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Answer ControlledShutdown: move the leaders of a broker that wants to stop.

        Where this broker is not the controller it answers STALE_CONTROLLER_EPOCH, the code of Apache Kafka's
        `ControllerMovedException`.
        """
        answer = await self._controller.ask(
            lambda token: ShutdownRequested(token, request.broker_id, request.broker_epoch)
        )
        if isinstance(answer, TopicRefusal):
            is_elsewhere = answer.error is ErrorCode.NOT_CONTROLLER
            error = ErrorCode.STALE_CONTROLLER_EPOCH if is_elsewhere else answer.error
            return ControlledShutdownResponse(error_code=int(error))
        assert isinstance(answer, ShutdownProgress)
        if request.broker_id != self._membership.broker_id:
            self.on_others_shutdown()
        remaining = [RemainingPartition(topic_name=topic, partition_index=index) for topic, index in answer.remaining]
        return ControlledShutdownResponse(remaining_partitions=remaining)

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        """Answer AllocateProducerIds: the next block, conditional on the version of its znode."""
        error = ErrorCode.NONE
        broker = self._membership.brokers.get(request.broker_id)
        if not self.is_active:
            error = ErrorCode.NOT_CONTROLLER
        elif broker is None:
            error = ErrorCode.BROKER_ID_NOT_REGISTERED
        elif broker.epoch != request.broker_epoch:
            error = ErrorCode.STALE_BROKER_EPOCH
        if error is not ErrorCode.NONE:
            return AllocateProducerIdsResponse(error_code=int(error))
        try:
            block = await self.take_producer_ids(request.broker_id)
        except METADATA_ERRORS as failure:
            log.error("no producer ids can be allocated for broker %d: %s", request.broker_id, failure)
            return AllocateProducerIdsResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=PRODUCER_IDS_PER_BLOCK)

    async def take_producer_ids(self, broker_id: int) -> ProducerIdBlock:
        """Take the next block for a broker from the znode. Raises `DiskError`, `ZkError`."""
        return await take_producer_ids(self._zk, broker_id, self._highest_producer_id)


def _proposed(
    request: AlterPartitionRequest, name: str, proposed: AlterPartitionRequestPartitionData, version: int
) -> IsrProposed:
    with_epochs = (replica.broker_id for replica in proposed.new_isr_with_epochs)
    isr = tuple(with_epochs) if version >= EPOCHS_SINCE else tuple(proposed.new_isr)
    return IsrProposed(
        0,
        request.broker_id,
        request.broker_epoch,
        name,
        proposed.partition_index,
        proposed.leader_epoch,
        proposed.partition_epoch,
        isr,
        proposed.leader_recovery_state == RECOVERING,
        {
            replica.broker_id: replica.broker_epoch
            for replica in proposed.new_isr_with_epochs
            if replica.broker_epoch != NOT_CHECKED
        },
    )


def _altered(index: int, result: IsrAccepted | IsrRefused, version: int) -> AlterPartitionResponsePartitionData:
    if isinstance(result, IsrRefused):
        error = result.error_code
        if error == ErrorCode.INELIGIBLE_REPLICA and version < TOPIC_IDS_SINCE:
            error = ErrorCode.OPERATION_NOT_ATTEMPTED
        return AlterPartitionResponsePartitionData(partition_index=index, error_code=int(error))
    return AlterPartitionResponsePartitionData(
        partition_index=index,
        leader_id=result.state.leader,
        leader_epoch=result.state.leader_epoch,
        isr=list(result.state.isr),
        leader_recovery_state=RECOVERING if result.is_recovering else 0,
        partition_epoch=result.partition_epoch,
    )


class RequestsToController:
    """The requests of this broker to the controller, wherever it is."""

    def __init__(self, served: ServedByController, link: ControllerLink, membership: ClusterMembership) -> None:
        self._served = served
        self._link = link
        self._membership = membership
        #: Set when a broker has registered, left, or asked this one for a controlled shutdown.
        self._others_changed = asyncio.Event()
        served.on_others_shutdown = self.others_changed

    def others_changed(self) -> None:
        """Hear that brokers have registered or left, or are about to."""
        self._others_changed.set()

    async def alter_partitions(self, topics: list[AlterPartitionRequestTopicData]) -> AlterPartitionResponse:
        """Propose ISRs: as `new_isr_with_epochs`, or where a topic has no id as `new_isr`, in an older version.

        The answer may have NOT_CONTROLLER or STALE_BROKER_EPOCH for the whole request. Raises ClientError without an
        answer: whether the ISRs were written is unknown then.
        """
        request = AlterPartitionRequest(
            broker_id=self._membership.broker_id, broker_epoch=self._membership.broker_epoch, topics=topics
        )
        newest = ALTER_PARTITION_VERSION if all(topic.topic_id.int for topic in topics) else WITHOUT_TOPIC_IDS
        if self._served.is_active:
            return await self._served.alter_partitions(request, newest)
        response = await self._link.request(request, versions=(0, newest))
        assert isinstance(response, AlterPartitionResponse)
        return response

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """The next block of producer ids. Raises ProducerIdsUnavailableError."""
        own_id = self._membership.broker_id
        request = AllocateProducerIdsRequest(broker_id=own_id, broker_epoch=self._membership.broker_epoch)
        try:
            if self._served.is_active:
                response = await self._served.allocate_producer_ids(request)
            else:
                response = await self._link.request(request)
        except ClientError as error:
            raise ProducerIdsUnavailableError(f"the controller gives no producer ids: {error}") from error
        if response.error_code != ErrorCode.NONE:
            raise ProducerIdsUnavailableError(f"the controller gives no producer ids: error {response.error_code}")
        first = response.producer_id_start
        return ProducerIdBlock(own_id, first, first + response.producer_id_len - 1)

    async def shut_down(self, attempts: int, backoff_ms: int) -> None:
        """Controlled shutdown: have this broker's leaders moved to others.

        Tried `attempts` times with pauses of `backoff_ms`: other replicas may be coming back into the ISRs. Without a
        controller it looks for one more often, for as long. Where all brokers shut down it waits for none: the
        controller leaves first, and those that are left ask the next one at once.
        """
        without_controller = max(1, attempts * backoff_ms // NO_CONTROLLER_MS)
        left_s = backoff_ms / 1000
        while without_controller and len(self._membership.brokers) > 1:
            self._others_changed.clear()
            response = await self._ask_for_shutdown()
            if response.error_code == ErrorCode.NONE and not response.remaining_partitions:
                return
            if response.error_code in _NO_CONTROLLER:
                without_controller -= 1
                await asyncio.sleep(NO_CONTROLLER_MS / 1000)  # sleep: until another is elected
                continue
            if self._served.all_shut_down:
                break
            if attempts <= 1:
                log.warning("this broker stops, but its leaders are not moved: %s", _why_not_moved(response))
                return
            left_s -= await self._until_others_change(left_s)
            if left_s <= 0:
                attempts -= 1
                left_s = backoff_ms / 1000
                log.warning("a controlled shutdown is tried again: %s", _why_not_moved(response))
        if without_controller:
            log.info("no other broker stays: this one stops without a controlled shutdown")
        else:
            log.warning("this broker stops, but its leaders are not moved: no controller is elected")

    async def _until_others_change(self, timeout_s: float) -> float:
        """Wait until brokers register, leave or shut down, at most so long; return the seconds that passed."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(timeout_s):
                await self._others_changed.wait()
        except TimeoutError:
            return timeout_s
        return loop.time() - began_s

    async def _ask_for_shutdown(self) -> ControlledShutdownResponse:
        """The controller's response; NOT_CONTROLLER where there is none."""
        membership = self._membership
        request = ControlledShutdownRequest(broker_id=membership.broker_id, broker_epoch=membership.broker_epoch)
        try:
            if self._served.is_active:
                return await self._served.controlled_shutdown(request)
            response = await self._link.request(request)
        except ClientError as error:
            log.info("the controller cannot be asked for a controlled shutdown: %s", error)
            return ControlledShutdownResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        assert isinstance(response, ControlledShutdownResponse)
        return response


def _why_not_moved(response: ControlledShutdownResponse) -> str:
    if response.error_code != ErrorCode.NONE:
        known = KNOWN_CODES.get(response.error_code)
        return f"the controller refused it with error code {response.error_code if known is None else known.name}"
    remaining = response.remaining_partitions
    names = [f"{each.topic_name}-{each.partition_index}" for each in remaining[:SHOWN_PARTITIONS]]
    more = f" and {len(remaining) - len(names)} more" if len(remaining) > len(names) else ""
    return f"no other broker in sync can lead {', '.join(names)}{more}"
