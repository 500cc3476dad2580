"""The transaction coordinator: the transactional ids of the partitions of `__transaction_state` led here.

Handlers call it; the state machines are in `ottla.txn`, hosted by `CoordinatorRuntime`. Loaded when it is first needed.
Source: Apache Kafka 3.9, `TransactionCoordinator`, `TransactionStateManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.broker.control.producer_ids import ProducerIdsUnavailableError
from ottla.broker.control.refusals import METADATA_ERRORS
from ottla.broker.coordinators.coordinator_log import CoordinatorLog
from ottla.broker.coordinators.runtime import CoordinatorRuntime, SteadyClock
from ottla.broker.coordinators.shard_router import ShardRouter
from ottla.broker.coordinators.transaction_kind import ROUTED_TOPIC, TransactionKind
from ottla.broker.coordinators.transaction_markers import MarkerRequests, MarkerWriter
from ottla.broker.coordinators.verification import TransactionVerifier
from ottla.cluster.topics import TRANSACTION_STATE_TOPIC
from ottla.records.compression import Compression
from ottla.txn.events import TransactionRequest, TransactionStep, TransactionView
from ottla.txn.failures import refused
from ottla.txn.machine import TransactionLimits
from ottla.txn.shard import TransactionShard
from ottla.txn.states import TransactionState
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.control.producer_ids import ProducerIds
    from ottla.broker.coordinators.groups import GroupCoordinatorService
    from ottla.broker.coordinators.shard import BrokerRequests, Topics
    from ottla.broker.replicas.manager import ReplicaManager
    from ottla.cluster.image import ImageDelta
    from ottla.config.broker import BrokerConfig
    from ottla.env.clock import Clock

log = logging.getLogger("ottla.transactions")


class TransactionCoordinatorService:
    """The transactions of this broker.

    `markers` and `questions`, which it closes, send to other brokers, over connections of their own: a broker answers
    one request after the other, and a marker's answer may take long.
    """

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        clock: Clock,
        partitions: ReplicaManager,
        topics: Topics,
        groups: GroupCoordinatorService,
        producer_ids: ProducerIds,
        markers: BrokerRequests,
        questions: BrokerRequests,
    ) -> None:
        timeout_ms = config.get_int("request.timeout.ms")
        self._clock = SteadyClock(clock)
        self._log = CoordinatorLog(partitions)
        self._producer_ids = producer_ids
        self.markers = MarkerWriter(partitions, groups, clock, timeout_ms)
        self._requests = MarkerRequests(broker_id, topics.image, self.markers, markers)
        self._questions = questions
        limits = TransactionLimits(
            config.get_int("transaction.max.timeout.ms"), config.get_int("transactional.id.expiration.ms")
        )
        self.runtime: CoordinatorRuntime[TransactionShard, TransactionStep] = CoordinatorRuntime(
            TransactionKind(limits, self._take_producer_id),
            self._log,
            self._clock,
            Compression.NONE,
            timeout_ms,
            self._requests,
        )
        shards = self.runtime.shards
        self.router: ShardRouter[TransactionShard] = ShardRouter(ROUTED_TOPIC, config, topics, shards, log)
        self.verifier = TransactionVerifier(broker_id, self.router, self.submit, questions)

    def start(self) -> None:
        """Load the partitions that this broker leads (in the background) and begin to serve requests."""
        self.router.start()
        self._log.follow_roles(TRANSACTION_STATE_TOPIC, self.runtime)

    async def stop(self) -> None:
        """Stop; pending requests get no response, since their connections are closed, too."""
        self.router.stop()
        self._log.follow_roles(TRANSACTION_STATE_TOPIC, None)
        self._requests.close()
        self._questions.close()
        await self.runtime.stop()

    def image_changed(self, delta: ImageDelta) -> None:
        """Handle a change of topics. Which partitions this broker coordinates follows from its roles, not from this."""
        self.router.image_changed(delta)

    def submit(self, request: TransactionRequest) -> None:
        """Handle a request; its `token`, a `Callable[[TransactionResult], None]`, is called once with the result."""
        is_named = bool(request.transactional_id)
        shard = self.router.find(request.transactional_id) if is_named else ErrorCode.INVALID_REQUEST
        if isinstance(shard, ErrorCode):
            answer = request.token
            assert callable(answer)
            answer(refused(request, shard))
            return
        self.runtime.carry_out(shard, shard.handle(request, self._clock.now_ms()))

    async def prepare_producer_id(self) -> None:
        """Have a producer id at hand for a new transactional id. Raises as `ProducerIds.next`."""
        await self._producer_ids.fill()

    def describe(self, transactional_id: str) -> TransactionView | ErrorCode:
        """The state of one transactional id, or why there is none."""
        shard = self.router.find(transactional_id)
        return shard if isinstance(shard, ErrorCode) else shard.describe(transactional_id)

    def list(
        self, producer_ids: Collection[int], states: Collection[TransactionState] | None, longer_than_ms: int
    ) -> tuple[ErrorCode, list[TransactionView]]:
        """The transactional ids of this broker, as `TransactionShard.list`; an error while some are being loaded."""
        if not self.router.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        if self.runtime.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
        now_ms = self._clock.now_ms()
        shards = self.runtime.shards.values()
        return ErrorCode.NONE, [
            view for shard in shards for view in shard.list(now_ms, producer_ids, states, longer_than_ms)
        ]

    def _take_producer_id(self) -> int | None:
        producer_id = self._producer_ids.take()
        if producer_id is None:
            self.runtime.spawn(self._fill())
        return producer_id

    async def _fill(self) -> None:
        try:
            await self._producer_ids.fill()
        except (*METADATA_ERRORS, ProducerIdsUnavailableError) as error:
            log.warning("no producer ids for transactions: %s", error)
