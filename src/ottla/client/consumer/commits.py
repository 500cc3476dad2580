"""Offset commits of a consumer: synchronous, asynchronous and automatic; and reading committed offsets.

Commits are sent in the order of the calls. A failed asynchronous commit is not retried, as a later one may have been
sent meanwhile. A consumer that does not know whether it is still a member does not commit.

Source: Apache Kafka 3.9, `ConsumerCoordinator`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.client.consumer.coordinator_link import CoordinatorLink
from ottla.client.consumer.listener import UserCall
from ottla.client.consumer.membership import NO_GENERATION, Generation, Membership, MemberState, is_overtaken
from ottla.client.consumer.subscription_state import SubscriptionState
from ottla.client.errors import (
    BrokerError,
    ClientError,
    ClientTimeoutError,
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    as_client_error,
)
from ottla.client.group_offsets import fetch_request, offset_and_metadata, topics_to_commit
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.peer import arguments
from ottla.peer.cluster import Cluster
from ottla.peer.errors import COORDINATOR_MOVED
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_fetch import OffsetFetchResponse

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OffsetsToCommit = Mapping[TopicPartition, OffsetAndMetadata | int]
"""Offsets to commit, as callers pass them."""
CommitCallback = Callable[[Offsets, ClientError | None], Any]
"""Called with the offsets and None, or the error; a plain function or a coroutine."""

MAX_PENDING_COMMITS = 10_000
"""Limit of asynchronous commits in flight or waiting for a poll to run their callback; more are refused."""
STABLE_OFFSETS_SINCE = 7
NOT_A_MEMBER = (
    "offsets cannot be committed, as this consumer is not a member of its group any more: the group gave its "
    "partitions to others. Processing took longer than max.poll.interval.ms between two polls, or no heartbeat reached "
    "the coordinator within session.timeout.ms; raise these, or lower max.poll.records, then poll to join again"
)
REBALANCING = (
    "offsets cannot be committed while the consumer takes part in a rebalance: poll until it is over, then commit what "
    "is still assigned"
)


def offsets_to_commit(offsets: OffsetsToCommit | None) -> dict[TopicPartition, OffsetAndMetadata] | None:
    """Return the offsets with their metadata, None for None. Raises InvalidArgumentError for what is not an offset."""
    if offsets is None:
        return None
    wanted = arguments.by_partition("offsets", offsets)
    return {each: offset_and_metadata(each, at) for each, at in wanted.items()}


@dataclass(slots=True, eq=False)
class AsyncCommit:
    """One asynchronous commit; when `done`, `error` is None if it succeeded."""

    offsets: Offsets
    callback: CommitCallback | None
    done: bool = False
    error: ClientError | None = None


class Commits:
    """See the module. `interceptors` gets committed offsets (on_commit); `call` runs user code, inside polls."""

    def __init__(
        self,
        cluster: Cluster,
        link: CoordinatorLink,
        membership: Membership,
        subscriptions: SubscriptionState,
        call: UserCall,
        on_commit: Callable[[Offsets], Any] | None = None,
    ) -> None:
        self._cluster = cluster
        self._link = link
        self._membership = membership
        self._subscriptions = subscriptions
        self._call = call
        self._on_commit = on_commit
        self._default_timeout_ms = cluster.settings.default_api_timeout_ms
        self._order = asyncio.Lock()
        self._pending: deque[AsyncCommit] = deque()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._settled = asyncio.Event()
        self.on_done: Callable[[], None] = lambda: None
        """Called when an asynchronous commit has ended."""
        self.total = 0
        """Commits that succeeded."""
        self.latency_total_ms = self.latency_max_ms = 0.0

    @property
    def has_callbacks(self) -> bool:
        """Whether `run_callbacks` has anything to do."""
        return bool(self._pending) and self._pending[0].done

    # Committing

    async def commit_sync(self, offsets: Offsets | None, timeout_ms: float | None = None) -> None:
        """Commit these offsets, or for None all polled records; retries until the timeout (default.api.timeout.ms).

        Raises CommitFailedError if the consumer is not a member any more, RebalanceInProgressError during a rebalance,
        FencedInstanceIdError, BrokerError; ClientTimeoutError at the timeout. Runs callbacks of earlier asynchronous
        commits before it returns.
        """
        wanted = dict(self._subscriptions.all_consumed() if offsets is None else offsets)
        timeout_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._now_ms() + arguments.milliseconds("timeout_ms", timeout_ms)
        if wanted:
            try:
                await self._commit_until(wanted, deadline_ms, timeout_ms)
                self._succeeded(wanted)
            finally:
                await self.run_callbacks()
        else:
            await self.drain(deadline_ms)

    async def _commit_until(
        self, offsets: Offsets, deadline_ms: float, timeout_ms: float, final: tuple[ErrorCode, ...] = ()
    ) -> None:
        """Commit with retries; error codes in `final` are not retried."""
        settings = self._membership.settings
        backoff_ms = float(settings.retry_backoff_ms)
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline_ms - self._now_ms()) / 1000):
                    await self._commit_once(offsets, deadline_ms)
                return
            except TimeoutError as error:
                problem: BaseException = error
                if isinstance(error, ClientError) and not error.retriable:
                    raise
            except ClientError as error:
                if not error.retriable or (isinstance(error, BrokerError) and error.code in final):
                    raise
                problem = error
            if self._now_ms() + backoff_ms >= deadline_ms:
                what = f"committing offsets of group {settings.group_id}"
                message = str(problem) or "the coordinator did not answer"
                raise ClientTimeoutError(f"{what} did not succeed within {timeout_ms:.0f} ms: {message}") from problem
            await asyncio.sleep(self._cluster.jittered(backoff_ms) / 1000)
            backoff_ms = min(backoff_ms * 2, settings.retry_backoff_max_ms)

    async def commit_patiently(self, offsets: Offsets, timeout_ms: float) -> None:
        """Commit before partitions are revoked, and only log errors. Topics may have been deleted.

        May run beside the caller's polls, so interceptors are called later, by `run_callbacks`.
        """
        final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
        try:
            await self._commit_until(offsets, self._now_ms() + timeout_ms, timeout_ms, final)
        except ClientError as error:
            log.warning("group %s: offsets are not committed: %s", self._membership.settings.group_id, error)
        else:
            self._succeeded(offsets)

    def _succeeded(self, offsets: Offsets) -> None:
        """Handle the success of a synchronous commit: queue it for the interceptors, which `run_callbacks` calls."""
        commit = AsyncCommit(offsets, None)
        self._pending.append(commit)
        self._end(commit, None)

    def commit_async(self, offsets: Offsets | None, callback: CommitCallback | None = None) -> None:
        """Commit these offsets, or for None all polled ones, without waiting; a later poll or commit runs `callback`.

        The callback gets RetriableCommitFailedError if a later commit may succeed; nothing is retried here. The same
        error is raised, and nothing committed, if MAX_PENDING_COMMITS are in flight or waiting for their callback.
        """
        wanted = dict(self._subscriptions.all_consumed() if offsets is None else offsets)
        if len(self._pending) >= MAX_PENDING_COMMITS:
            raise RetriableCommitFailedError(
                f"{MAX_PENDING_COMMITS} asynchronous commits are under way or wait for their callbacks, which poll and "
                "commit call: poll before more are made, or commit less often"
            )
        commit = AsyncCommit(wanted, callback)
        self._pending.append(commit)
        if not wanted:
            self._end(commit, None)
        else:
            task = asyncio.get_running_loop().create_task(self._commit_later(commit))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    async def _commit_later(self, commit: AsyncCommit) -> None:
        settings = self._cluster.settings
        try:
            await self._commit_once(commit.offsets, self._now_ms() + settings.request_timeout_ms)
        except ClientError as error:
            if error.retriable:
                failed = RetriableCommitFailedError(f"offsets are not committed, a later commit may succeed: {error}")
                failed.__cause__ = error
                self._end(commit, failed)
            else:
                self._end(commit, error)
        except asyncio.CancelledError:
            self._end(commit, RetriableCommitFailedError("the consumer was closed before the commit was answered"))
            raise
        except Exception as error:  # whatever it is: the commits behind it wait for this one
            self._end(commit, as_client_error("offsets are not committed", error))
        else:
            self._end(commit, None)

    def _end(self, commit: AsyncCommit, error: ClientError | None) -> None:
        commit.done, commit.error = True, error
        if error is not None and commit.callback is None:
            log.error("group %s: asynchronous commit: %s", self._membership.settings.group_id, error)
        self._settled.set()
        self.on_done()

    async def run_callbacks(self) -> None:
        """Run the callbacks of the asynchronous commits that have ended, in the order of the commits."""
        while self._pending and self._pending[0].done:
            commit = self._pending.popleft()
            if commit.error is None and commit.offsets and self._on_commit is not None:
                await self._call(self._on_commit, commit.offsets)
            if commit.callback is not None:
                await self._call(commit.callback, commit.offsets, commit.error)

    async def drain(self, deadline_ms: float) -> None:
        """Wait for the asynchronous commits, and run their callbacks."""
        await self.run_callbacks()
        while self._pending:
            self._settled.clear()
            try:
                async with asyncio.timeout(max(0.0, deadline_ms - self._now_ms()) / 1000):
                    await self._settled.wait()
            except TimeoutError:
                return
            await self.run_callbacks()

    async def close(self) -> None:
        """Cancel the commits in flight, and run their callbacks."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.run_callbacks()

    async def _commit_once(self, offsets: Offsets, deadline_ms: float) -> None:
        async with self._order:
            found = await self._link.wait_until_found(deadline_ms)
            sent_as, began_ms = self._who_commits(), self._now_ms()
            try:
                response = await self._link.send(self._request(offsets, sent_as))
            except ClientError as error:
                self._unanswered(error, found)
                raise
        try:
            answer: OffsetCommitResponse = await response
        except ClientError as error:
            self._unanswered(error, found)
            raise
        refused = [
            (each.error_code, f"the offset of {topic.name}-{each.partition_index} is not committed")
            for topic in answer.topics
            for each in topic.partitions
            if each.error_code != ErrorCode.NONE
        ]
        # UNKNOWN_TOPIC_OR_PARTITION explains least: other errors are raised first.
        refused.sort(key=lambda one: one[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for code, what in refused:
            self._refused(code, what, sent_as)
        took_ms = self._now_ms() - began_ms
        self.total += 1
        self.latency_total_ms += took_ms
        self.latency_max_ms = max(self.latency_max_ms, took_ms)

    def _unanswered(self, error: ClientError, times_found: int) -> None:
        if error.retriable:
            self._link.lost(error, times_found)

    def _who_commits(self) -> Generation:
        """Return the generation to commit in, none for manually assigned partitions. Raises if a member has none."""
        membership = self._membership
        if not self._subscriptions.has_auto_assigned_partitions:
            return NO_GENERATION
        if membership.state is MemberState.STABLE:
            return membership.generation
        if membership.fenced is not None:
            raise membership.fenced
        if membership.is_rebalancing:
            raise RebalanceInProgressError(REBALANCING)
        raise CommitFailedError(NOT_A_MEMBER)

    def _request(self, offsets: Offsets, who: Generation) -> OffsetCommitRequest:
        settings = self._membership.settings
        return OffsetCommitRequest(
            group_id=settings.group_id,
            generation_id_or_member_epoch=who.generation_id,
            member_id=who.member_id,
            group_instance_id=None if who is NO_GENERATION else settings.group_instance_id,
            topics=topics_to_commit(offsets),
        )

    def _refused(self, code: int, what: str, sent_as: Generation) -> None:
        """Update the membership for the error code, then raise the error."""
        membership = self._membership
        error = BrokerError(code, f"group {membership.settings.group_id}: {what}")
        is_current = sent_as == membership.generation
        if code in COORDINATOR_MOVED or code == ErrorCode.REQUEST_TIMED_OUT:
            self._link.lost(error)
            raise error
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            membership.request_rejoin("offset commit failed since group is already rebalancing")
            raise RebalanceInProgressError(REBALANCING)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID):
            if sent_as is NO_GENERATION:
                raise CommitFailedError(
                    f"{error}; the group has members that subscribe, and only they may commit: subscribe, too, or use "
                    "another group.id"
                )
            if is_overtaken(code, membership.state) or (not is_current and membership.is_rebalancing):
                raise RebalanceInProgressError(REBALANCING)
            if is_current:
                membership.kicked_out(code, "offset commit")
                if code == ErrorCode.FENCED_INSTANCE_ID and isinstance(membership.fenced, FencedInstanceIdError):
                    raise membership.fenced
            raise CommitFailedError(NOT_A_MEMBER)
        raise error

    # Reading what is committed

    async def fetch_committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets, None where there is none; waits for pending transactional commits.

        Raises ClientTimeoutError at the timeout (default.api.timeout.ms), BrokerError. Source: KIP-447.
        """
        wanted = list(dict.fromkeys(arguments.partitions(partitions)))
        if not wanted:
            return {}
        timeout_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._now_ms() + arguments.milliseconds("timeout_ms", timeout_ms)
        settings = self._membership.settings
        backoff_ms = float(settings.retry_backoff_ms)
        while True:
            try:
                return await self._fetch_once(wanted, deadline_ms)
            except ClientError as error:
                if not error.retriable:
                    raise
                if self._now_ms() + backoff_ms >= deadline_ms:
                    raise ClientTimeoutError(
                        f"reading offsets of group {settings.group_id} did not succeed within {timeout_ms:.0f} ms: "
                        f"{error}"
                    ) from error
            await asyncio.sleep(self._cluster.jittered(backoff_ms) / 1000)
            backoff_ms = min(backoff_ms * 2, settings.retry_backoff_max_ms)

    async def _fetch_once(
        self, partitions: Sequence[TopicPartition], deadline_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        found_times = await self._link.wait_until_found(deadline_ms)
        try:
            stable = await self._link.version(ApiKey.OFFSET_FETCH) >= STABLE_OFFSETS_SINCE
            answer: OffsetFetchResponse = await self._link.ask(
                fetch_request(self._membership.settings.group_id, partitions, require_stable=stable)
            )
        except ClientError as error:
            self._unanswered(error, found_times)
            raise
        self._check_read(answer.error_code, "offsets cannot be read")
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(partitions)
        for topic in answer.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                self._check_read(each.error_code, f"the offset of {partition} cannot be read")
                if each.committed_offset >= 0:
                    found[partition] = OffsetAndMetadata(
                        each.committed_offset, each.metadata or "", each.committed_leader_epoch
                    )
        return found

    def _check_read(self, code: int, what: str) -> None:
        if code == ErrorCode.NONE:
            return
        error = BrokerError(code, f"group {self._membership.settings.group_id}: {what}")
        if code in COORDINATOR_MOVED:
            self._link.lost(error)
        raise error

    def _now_ms(self) -> float:
        return self._cluster.clock.monotonic_ms()
